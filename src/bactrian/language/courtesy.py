"""Courtesy turns: turns that only thank, say goodbye, praise, wait or agree.

The ending ``repeat_loop`` and the behaviour ``infinite_loop`` both call :func:`is_courtesy`, so that a session that
ends because of courtesy is also reported for it.
"""

from __future__ import annotations

import re

from bactrian.language.body import is_blank
from bactrian.language.words import STOP_WORDS, iterate_sentences, tokenize
from bactrian.records.session import Session

_LONGEST = 600
"""Characters; a longer turn is never mere courtesy."""
_STRANGE = 0.34
"""Maximum share of other words in a polite sentence."""
_INTENDS = re.compile(r"(?:and |but |so |yes, )?(?:i|we)(?:'ll| will| shall)\b[^\d\"“:]*\Z")
_LONGEST_INTENT = 15
"""Maximum number of words in a promise, which is neither an instruction nor a solution."""
_SIGNATURE = 2
"""Maximum number of words of a name under "Best regards,"."""
_LONGEST_FOREIGN = 10
"""Maximum number of words in a sentence of an unknown language with a known word of thanks or goodbye."""

_POLITE = re.compile(
    r"\b(?:thank (?:you|u|ya)|thanks|ta|welcome|bye|goodbye|good bye|farewell|pleasure|glad|happy|take care"
    r"|take it easy"
    r"|see (?:you|ya)"
    r"|until next time|good ?night|good luck|best of luck|best wishes|all the best|(?:best|kind|warm) regards"
    r"|cheers"
    r"|(?:great|good|excellent|amazing|fantastic) (?:job|work)|well done|congratulations|congrats|appreciate\w*"
    r"|appreciation"
    r"|sorry|apologi[sz]e|no (?:problem|worries)|any ?time|have a|good (?:night|day|evening)|likewise|stay safe"
    r"|sleep well"
    r"|keep in touch|look forward|looking forward|talk to you|in touch|awesome|collaborat\w+|helpful|wonderful"
    r"|lovely|fantastic|delighted|pleased|enjoy\w*|kindness|reach (?:me|us|out)|hesitate|assist(?:ing"
    r"|ance)?|compliments?|feel free|let me know|anything else"
    r"|here (?:to help|for you)"
    r"|nice (?:working|meeting|weekend|day)|hope (?:this|that|it|you)|further assistance|help|kind words|wish"
    r"|safe travels"
    r"|understanding|next request|(?:further|more|other|additional|next) (?:requests?|instructions?|questions?"
    r"|tasks?)|using my services?|thx|tysm|np|yw|ttyl|cya|go ahead|carry on|keep up"
    r"|your (?:next )?(?:instructions?|request|solution|task)|give me an? instruction|waiting for|ready"
    r"|let's (?:begin|start"
    r"|get started|go)|that(?:'s| is| will be) all|no, (?:thank|nothing)|nothing else|task[_ ]done|you too"
    r"|same (?:here|to you)|(?:please )?(?:continue|proceed|go on)|okay|ok|alright|all right"
    r"|sounds good"
    r"|perfect|great|understood|hello|hi|hey|(?:is|are) (?:complete|completed|done|finished)|cooperation|success"
    r"|proud|honou?r"
    r"|at your (?:service|disposal)|gracias|de nada|adiós|hasta luego|igualmente|danke|dank|gern geschehen"
    r"|wiedersehen|bitte|tschüss|merci|de rien"
    r"|au revoir|bonne journée|grazie|prego|figurati|ciao|saludos|placer|piacere|plaisir|freut|arrivederci"
    r"|obrigad[oa]|tchau|спасибо|пожалуйста|до свидания|dziękuję)\b"
    r"|谢谢|感谢|不客气|再见|好的|ありがとう|どういたしまして|さようなら|감사합니다|고맙습니다|안녕히|धन्यवाद|स्वागत"
    r"|شكرا|عفوا|مع السلامة"
)
_POLITE_WORDS = (
    STOP_WORDS
    | frozenset(
        "thank thanks thx ty tysm np yw ttyl cya thankful ta ya u k pls using services goodnight congrats "
        "grateful gratitude welcome bye goodbye good farewell pleasure glad "
        "happy pleased delighted excited thrilled proud take care easy see soon later next time until luck best "
        "wishes warm "
        "regards cheers great job work excellent well done congratulations congratulate appreciate appreciation "
        "appreciated "
        "sorry apologize apologise apologies problem worries anytime any have having day evening night morning "
        "week weekend "
        "afternoon ahead rest nice lovely wonderful fantastic amazing awesome outstanding incredible brilliant "
        "successful "
        "success likewise stay safe healthy sleep keep touch look looking forward talk hear hearing hesitate feel "
        "free let "
        "know anything everything something nothing else further assistance assist assisting help helping helpful "
        "helped "
        "valuable kind kindness words wish hope hopes hoped enjoy request requests instruction instructions "
        "solution waiting "
        "wait await ready begin start started starting get go going sure certainly course absolutely okay ok "
        "alright right yes "
        "no sounds perfect understood confusion understanding hello hi hey there moment today now always here "
        "again once much "
        "many lot really truly very indeed back working worked meeting met collaborating future questions "
        "question reach "
        "contact need needed needs want information guidance advice insights support cooperation collaboration "
        "partnership "
        "effort efforts hard dedication time attention patience trip travels journey travel family friend mate "
        "everyone team "
        "day ask complete completed finished done task project pleasure privilege honor honour such other another "
        "forward "
        "provide give provided don won didn isn haven ll ve re im s t d m as around too also instruct additional "
        "come like "
        "neither either same later add camel use useful enjoying enjoyed yourself myself collaborate compliment "
        "compliments generous positive note whenever "
        "anywhere point shortly touch got ever heard best "
        "coming type kinds "
        "nothing feedback opportunity continue continued service disposal remain gladly reply respond message "
        "conclude "
        "concludes concluded conversation session end ended proceed carry keep per request".split()
    )
    | frozenset(
        "muchas muchísimas gracias por tu su ayuda de nada fue es un una placer ayudarte ayudarle hasta luego "
        "pronto mañana adiós "
        "que tengas tenga buen buena día tarde noche igualmente también cuídate saludos a ti usted vosotros todo "
        "lo mejor "
        "mille molte grazie per il la tuo suo aiuto prego figurati di niente nulla arrivederci presto buona "
        "giornata serata "
        "anche te lei ciao è stato piacere tutto altrettanto merci beaucoup pour votre ton aide rien je vous te "
        "en prie avec "
        "plaisir bonne journée soirée au revoir bientôt à aussi et vielen herzlichen dank danke für ihre deine "
        "die hilfe gern "
        "gerne geschehen keine ursache schönen tag abend noch ihnen dir ebenfalls auch auf wiedersehen tschüss "
        "bis bald alles "
        "gute freut mich und muito obrigado obrigada pela ajuda nada até logo tenha um bom dia tchau você "
        "igualmente "
        "большое спасибо за помощь вашу пожалуйста до свидания всего хорошего доброго хорошего дня вам вас тоже "
        "рад рада помочь "
        "и не что".split()
    )
)


def find_topic(session: Session) -> frozenset[str]:
    """Return the words of the roles and the task, which polite sentences may contain ("Good luck with the bot!")."""
    texts = (session.assistant.name, session.user.name, session.task.original, session.task.specified or "")
    return frozenset(tokenize(" ".join(texts)))


def is_courtesy(body: str, topic: frozenset[str] = frozenset(), *, by_user: bool) -> bool:
    """Return True if a turn is only polite, waiting or agreeing, or blank.

    Args:
        body: Content of the turn, from :func:`~bactrian.language.body.read_body`.
        topic: Words from :func:`find_topic`.
        by_user: True for a turn of the AI user.
    """
    if len(body) > _LONGEST:
        return False
    if is_blank(body, by_user=by_user) or body.lower().strip(" .") in ("none", "n/a"):
        return True
    polite = False
    before = ""
    for sentence in iterate_sentences(body.lower().replace("’", "'")):
        words = tokenize(sentence)
        signs = before.endswith(",") and len(words) <= _SIGNATURE
        intends = _INTENDS.match(sentence) is not None and len(words) <= _LONGEST_INTENT
        before = sentence
        if not (signs or intends or _is_polite(sentence, words, topic)):
            return False
        polite = polite or _POLITE.search(sentence) is not None
    return polite


def _is_polite(sentence: str, words: list[str], topic: frozenset[str]) -> bool:
    """Return True if a sentence has only polite words, or few others beside a word of courtesy."""
    strange = [word for word in words if word not in _POLITE_WORDS]
    if not strange:
        return True
    # The search for a word of courtesy comes last: it costs most, and ordinary turns never get there.
    if any(map(str.isdigit, sentence)):
        return False
    if len(strange) == len(words):
        return len(words) <= _LONGEST_FOREIGN and _POLITE.search(sentence) is not None
    news = sum(word not in topic for word in strange)
    little = not sentence.endswith("?") and news <= _STRANGE * len(words)
    return little and _POLITE.search(sentence) is not None
