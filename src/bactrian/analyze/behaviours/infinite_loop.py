"""Infinite loop: the agents go on without anything new, thanking, taking leave, waiting for each other (paper, section 4.1).

A turn is void if it only thanks, takes leave, waits or agrees, if it is empty, or if it says what its speaker said
before. Two rounds in a row, four turns, that are void make a loop; every turn that goes on the loop is a finding.
One polite round, or thanks before the next instruction, makes none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bactrian.analyze.behaviours.reading import Heard, Reading
from bactrian.analyze.behaviours.words import STOP_WORDS, sentences, tokens
from bactrian.records.finding import Finding

_TURNS = 4
"""Void turns in a row that make a loop."""
_LONGEST = 480
"""Characters; a longer turn does something besides being polite."""
_REMEMBERED = 3
"""Earlier turns of the same speaker that a turn is compared with."""
_ALIKE = 0.9
"""Share of their words that near-identical turns have in common."""
_STRANGE = 0.25
"""Share of a polite sentence's words that may be others."""
_STRANGE_FOREIGN = 0.6

_POLITE = re.compile(
    r"\b(?:thank|thanks|ta|welcome|bye|goodbye|good bye|farewell|pleasure|glad|happy|take care|take it easy|see (?:you|ya)|until next time|good ?night"
    r"|good luck|best of luck|best wishes|all the best|best regards|cheers|great (?:job|work)|good (?:job|work)|excellent (?:job|work)"
    r"|well done|congratulations|appreciate|appreciation|sorry|apologi[sz]e|no (?:problem|worries)|any ?time|have a|good (?:night|day|evening)"
    r"|likewise|stay safe|sleep well|keep in touch|look forward|talk to you|hesitate|feel free|let me know|anything else"
    r"|nice (?:working|meeting|weekend|day)|hope (?:this|that|it|you)|further assistance|help|kind words|wish|safe travels|understanding"
    r"|next request|further (?:requests?|instructions?)|(?:no )?more requests?|your (?:next )?(?:instruction|request|solution|task)"
    r"|give me an? instruction|waiting for|ready|let's (?:begin|start|get started|go)|that(?:'s| is| will be) all|no, (?:thank|nothing)|nothing else"
    r"|okay|ok|alright|all right|sounds good|perfect|great|understood|hello|hi|hey|(?:is|are) (?:complete|completed|done|finished)|cooperation"
    r"|gracias|de nada|adiós|hasta luego|igualmente|danke|dank|gern geschehen|wiedersehen|bitte|tschüss|merci|de rien|au revoir|bonne journée"
    r"|grazie|prego|arrivederci|obrigad[oa]|tchau|спасибо|пожалуйста|до свидания|dziękuję)\b"
    r"|谢谢|感谢|不客气|再见|好的|ありがとう|どういたしまして|さようなら|감사합니다|고맙습니다|안녕히|धन्यवाद|स्वागत|شكرا|عفوا|مع السلامة"
)
_HINTS = (
    *(
        "thank",
        "welcome",
        "bye",
        "farewell",
        "pleasure",
        "glad",
        "happy",
        "care",
        "see you",
        "next time",
        "luck",
        "wishes",
        "best",
    ),
    *(
        "regards",
        "cheers",
        "job",
        "work",
        "done",
        "congrat",
        "appreciat",
        "sorry",
        "apolog",
        "problem",
        "worries",
        "time",
        "have a",
    ),
    *(
        "night",
        "likewise",
        "safe",
        "sleep",
        "touch",
        "forward",
        "talk",
        "hesitate",
        "feel free",
        "let me know",
        "else",
        "nice",
        "hope",
    ),
    *(
        "assistance",
        "help",
        "kind",
        "wish",
        "travels",
        "understanding",
        "request",
        "instruction",
        "waiting",
        "ready",
        "let's",
        "all",
    ),
    *(
        "okay",
        "ok",
        "sounds",
        "perfect",
        "great",
        "understood",
        "hello",
        "hi",
        "hey",
        "complete",
        "finished",
        "cooperation",
        "ta",
    ),
    *(
        "gracias",
        "nada",
        "adiós",
        "luego",
        "danke",
        "dank",
        "gern",
        "wieder",
        "bitte",
        "merci",
        "rien",
        "revoir",
        "grazie",
        "prego",
    ),
    *(
        "arriv",
        "obrigad",
        "tchau",
        "спасибо",
        "пожал",
        "свидан",
        "谢",
        "客气",
        "再见",
        "好的",
        "ありがとう",
        "さようなら",
        "감사",
        "고맙",
    ),
    *("안녕", "धन्यवाद", "स्वागत", "شكرا", "عفوا"),
)
_POLITE_WORDS = STOP_WORDS | frozenset(
    (
"thank thanks thankful ta ya u goodnight congrats xoxo grateful gratitude welcome bye goodbye good "
"farewell pleasure glad happy pleased take care easy see soon later next time until luck best wishes "
"regards cheers great job work excellent well done congratulations congratulate appreciate "
"appreciation appreciated sorry apologize apologise apologies problem worries anytime any have having "
"day evening night morning week weekend afternoon ahead rest nice lovely wonderful fantastic amazing "
"awesome likewise stay safe healthy sleep keep touch look looking forward talk hear hearing hesitate "
"feel free let know anything everything something nothing else further assistance assist assisting "
"help helping helpful helped kind words wish hope hopes hoped enjoy request requests instruction "
"instructions solution waiting wait await ready begin start started starting get go going sure "
"certainly course okay ok alright right yes no sounds perfect understood confusion understanding "
"hello hi hey there moment today now always here again once much many lot really truly very indeed "
"back working worked meeting met future questions question reach contact need needed needs want "
"information guidance support cooperation collaboration effort efforts time attention patience trip "
"travels journey travel family friend mate everyone day ask complete completed finished done task "
"project pleasure privilege honor honour such other another forward provide give provided don won "
"didn isn haven ll ve re im s t d m as around too also instruct additional come like nothing"
).split()
)


def infinite_loop(reading: Reading) -> Iterator[Finding]:
    """Turns that go on a loop of at least two rounds."""
    void: list[float] = []
    earlier: dict[bool, list[Heard]] = {True: [], False: []}
    own_words = frozenset(
        word for name in (reading.session.assistant.name, reading.session.user.name) for word in tokens(name)
    )
    for heard in reading.heard:
        mine = earlier[heard.by_user]
        said_before = any(_alike(heard, other) for other in mine[-_REMEMBERED:])
        if not heard.is_done and (said_before or is_polite(heard, own_words)):
            void.append(0.9 if said_before else 1.0)
        else:
            void.clear()
        mine.append(heard)
        if len(void) >= _TURNS:
            rounds = len(void) // 2
            yield reading.finding(
                heard, "infinite_loop", min(1.0, 0.6 + 0.1 * rounds), heard.body or heard.turn.text
            )


def is_polite(heard: Heard, own_words: frozenset[str] = frozenset()) -> bool:
    """True if a turn does nothing but be polite, wait or agree."""
    if len(heard.turn.text) > _LONGEST:
        return False
    body = heard.body.lower()
    if not any(character.isalnum() for character in body):
        return True
    if not any(hint in body for hint in _HINTS):
        return False
    polite = False
    for sentence in sentences(body.replace("’", "'")):
        words = tokens(sentence)
        if not words:
            continue
        strange = sum(word not in _POLITE_WORDS and word not in own_words for word in words)
        courteous = _POLITE.search(sentence) is not None
        polite = polite or courteous
        if strange == 0:
            continue
        foreign = courteous and len(words) <= 8 and strange == len(words)
        if any(character.isdigit() for character in sentence) or (sentence.endswith("?") and not foreign):
            return False
        if not courteous or strange > (
            _STRANGE if not _mostly_foreign(words) else _STRANGE_FOREIGN + 0.4
        ) * len(words):
            return False
    return polite


def _mostly_foreign(words: list[str]) -> bool:
    """True if none of the words is an English word of politeness or a stop word."""
    return len(words) <= 10 and not any(word in _POLITE_WORDS for word in words)


def _alike(one: Heard, other: Heard) -> bool:
    """True if two turns are the same but for a word here and there."""
    left, right = one.turn.text, other.turn.text
    if left == right:
        return True
    if not 0.8 < (len(left) + 1) / (len(right) + 1) < 1.25:
        return False
    shared = len(one.words & other.words)
    return shared >= _ALIKE * len(one.words | other.words) and shared > 0
