"""Flake reply: the AI assistant promises ("I will …") and does nothing (paper, section 4.1).

Every sentence of the reply promises, accepts, announces what does not come, or asks for time. One sentence of work is
enough to make it a solution, and so are code, a quotation, a formula or a list after the announcement. The future tense
alone proves nothing: where the instruction asks for a plan, a decision, a forecast or words to somebody, "I will" may
be the answer; it is a promise still if it names the very thing that was asked for ("I will write the letter").
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, auto

from bactrian.analyze.behaviours.reading import HeardTurn, SessionReading
from bactrian.language.words import find_content_words, split_sentences, stem, strip_quotations, tokenize
from bactrian.records.finding import Finding

_LONGEST = 900
"""Characters; a reply that is longer does something besides promising."""
_LONGEST_OFFER = 25
"""Words of content of an offer; a longer one gives reasons, which are work."""
_HEADING = 3
"""Words of a heading."""
_NEWS = 4
"""Words of content in a decision that the instruction does not hold, from which on it is an answer."""


class _Says(Enum):
    """What a sentence does for the one who asked."""

    PROMISE = auto()
    VAGUE = auto()
    """A statement about what the assistant will do, which may be what was asked for."""
    ANNOUNCEMENT = auto()
    """What follows, if anything does, is what counts."""
    COURTESY = auto()
    WORK = auto()


_WORK_VERBS = (
    "write create make draft prepare design develop build implement compose generate produce provide present show "
    "explain "
    "describe analyze analyse review check look find search research investigate study read start begin work get "
    "proceed "
    "continue help assist do try ensure add update fix correct improve test run calculate compute solve draw "
    "sketch plan "
    "organize organise summarize summarise translate compare collect gather send deliver share submit load clean "
    "take "
    "complete finish handle follow keep come discuss cover include identify evaluate assess break outline guide "
    "walk give "
    "answer respond tell let put set list commence initiate undertake revise edit proofread conduct perform "
    "tackle address "
    "brainstorm code "
    "think consider consult examine explore modify refine schedule book call contact arrange order print record"
).split()
_STRONG = frozenset(_WORK_VERBS) - frozenset(
    "take follow keep come include put set list plan order call book let run consider".split()
)
"""What nobody answers with: to say that one will do it is to put it off."""
_KNOWN = frozenset(_WORK_VERBS)

_POLITE = (
    r"sure(?: thing)?|certainly|of course|absolutely|definitely|okay|ok|alright|all right|great|perfect|excellent"
    r"|yes|yeah|yep"
    r"|understood|noted|got it|gladly|right|well|good|fine|very well|no problem|no worries|with pleasure|happy to"
    r"|claro|vale"
    r"|gerne"
    r"|natürlich|bien sûr|d'accord|por supuesto|sí|sì|oui|ja|да|certo|конечно|хорошо|好的"
)
_OPENING = re.compile(
    rf"\A(?:(?:{_POLITE}|first(?:ly| of all)?|second(?:ly)?|third(?:ly)?|then|next|after (?:that|this|which)"
    rf"|finally|lastly"
    r"|also|additionally|in addition|and|but|now|so|to begin(?: with)?|to start(?: with)?|in this step"
    r"|for this(?: \w+)?"
    r"|as (?:your|the|an?) [^,.:]{1,60}(?=,)|to [^,.:]{3,80}(?=,)|(?:once|when|after|before|if|based on|such as"
    r"|including|using"
    r"|with) [^,.:]{3,80}(?=,)"
    r"|thank you[^,.!:]{0,60}|thanks[^,.!:]{0,60})[,:;!.\s，！。—–-]+){0,4}"
)
_COURTESY = re.compile(
    rf"\A(?:{_POLITE}|thank(?:s| you)\b[^:]{{0,80}}|next request|please|i (?:understand|see|agree"
    rf"|hear you)(?:\b[^:,]{{0,80}})?"
    r"|(?:that|this|it)(?:'s| is| sounds like| sounds| seems like)(?: an?)? (?:\w+ )?(?:good|great|excellent"
    r"|interesting|exciting"
    r"|important|fantastic|wonderful|fun|fine|perfect|nice|clear|lovely)\b[^:]{0,60}|[^:.]{3,60} is an? (?:good"
    r"|great|excellent|wonderful|fantastic) idea|sounds (?:good|great"
    r"|like a plan)\b[^:]{0,30}"
    r"|(?:what an?|great|good|excellent|interesting|nice) (?:\w+ )?(?:idea|task|instruction|request|question"
    r"|point|choice)"
    r"|(?:it(?:'s| is|'d be| would be) )?my pleasure\b[^:]{0,40}|i appreciate\b[^:]{0,80}|(?:i'm|i am) (?:so "
    r"|very |really )?sorry for\b[^:]{0,80}|i(?:'m| am) (?:quite |pretty |all )?(?:sure|confident|certain|set"
    r"|ears)\b[^:]{0,60}"
    r"|i(?:'ve)? got (?:it|this|you)|i apologi[sz]e\b[^:]{0,80}|you can (?:\w+ )?(?:ask|tell|reach|contact"
    r"|count on) me\b[^:]{0,120}"
    r"|(?:(?:so|and|but|now),? )?(?:what(?:'s| is| are) (?:your|the|on your) (?:\w+ )?(?:request|instruction|task"
    r"|question|project|challenge|idea|mind"
    r"|plate)\b[^:]{0,80}|how (?:can|may) i (?:help|assist)\b[^:]{0,60}|what (?:would you like|do you want"
    r"|do you need|can i do)\b[^:]{0,80}"
    r"|what (?:kind|sort|type) of (?:\w+ )?(?:project|help|assistance|task|work)\b[^:]{0,80}"
    r"|is there anything\b[^:]{0,80})"
    r"|(?:please )?(?:let me know|feel free|don't hesitate|do not hesitate)\b[^:]{0,120}|i hope\b[^:]{0,60})\W*\Z"
)
_ACCEPTS = re.compile(
    r"\A(?:(?:yes|ok|okay|alright|great),? )?(?:sure|certainly|of course|absolutely|no problem|gladly|noted"
    r"|understood|got it|with pleasure)\b"
)

_ADVERB = (
    r"(?: (?:now|then|also|first|certainly|gladly|immediately|definitely|just|next|surely|happily|currently|still"
    r"|already|always"
    r"|be sure to|make sure to|do my best to|try to|begin by|start by|begin with|start with|begin to|start to"
    r"|go ahead and"
    r"|need to|have to|be able to|\w+ly))*"
)
_FUTURE = re.compile(
    r"\A(?:i|we)(?:'ll| will| shall|'m going to|'re going to| am going to| are going to|'m about to| am about to"
    r"| are about to"
    rf"| plan (?:to|on)| intend (?:to|on)| aim (?:to|at)| promise to| would begin by| would start by"
    rf"|'d start by){_ADVERB}(?: be)? (\w+)"
    rf"|\Alet(?:'s| us| me){_ADVERB} (\w+)"
)
_OFFER = re.compile(
    rf"\A(?:i|we)(?:(?:'m|'re|'d|'d be| am| are| would| would be){_ADVERB} (?:happy to|glad to|love to|like to"
    rf"|ready|pleased to"
    r"|delighted to|more than happy to|willing to|eager to|(?:so |very |really )?excited (?:to|about)|thrilled to"
    r"|honou?red to|looking forward to|able to|here to|(?:help|assist)\b|on it\b|at it\b|looking (?:into|at|for)\b"
    rf"|putting together\b|prepared to)|(?:'ve| have){_ADVERB} (?:begun|started)\b|{_ADVERB} (?:want to|need to"
    rf"|have to)"
    rf"| (?:can|could){_ADVERB} (?:help|assist|do (?:that|this|so|it))\b)"
)
_ABLE = re.compile(rf"\A(?:i|we) (?:can|could){_ADVERB} (\w+)")
_IN_PROGRESS = re.compile(rf"\A(?:(?:i|we)(?:'m|'re| am| are| have been|'ve been))?{_ADVERB} ?(\w+)ing\b")
_STALLING = re.compile(
    r"\A(?:let(?:'s| us| me) (?:go|dive|see|do|get|jump)\b|(?:please )?(?:wait|hold on|bear with|stand by"
    r"|stay tuned|be patient)\b"
    r"|(?:just )?(?:a|one) (?:moment|second|minute|sec)\b"
    r"|(?:please |just )*(?:give|allow) me (?:a |some |one |until |an |the )|you (?:can|may|will|'ll"
    r"|should) (?:\w+ )?(?:expect|receive|have|get|see|find)\b"
    r"|(?:could|can|would) you (?:please )?(?:give|allow) me (?:a|some|one)\b|(?:i|we)(?:'ve"
    r"| have) (?:\w+ )?(?:noted|received|registered)\b|consider it done\b|will do\b|(?:right )?on it\b|(?:will"
    r"|shall) (?:start|begin|get)\b|(?:shall|should"
    r"|may) i\b"
    r"|(?:it|this|that) (?:will|shall|may|might|should) (?:take|be (?:ready|done|finished|completed|available"
    r"|with you|there))\b"
    r"|(?:my|the) (?:plan|first step|next step|goal|intention) is to\b|(?:more|details|results) (?:to follow"
    r"|coming|soon)\b)"
)
_ANNOUNCES = re.compile(
    r"\A(?:here (?:is|are)|here's|here you (?:go|are)|below (?:is|are)|the following|see below"
    r"|as follows)\b[^:]*:?\Z"
)
_UNDER_WAY = re.compile(
    r"\b(?:is|are) (?:now |currently |already )?(?:being \w+|in progress|under ?way|in the works)\b"
    r"|\b(?:will|shall) be \w+ (?:soon|shortly|right away|immediately|as soon as possible|by (?:tomorrow|tonight"
    r"|monday|friday))\b"
)
_WILL_BE_DONE = re.compile(r"\b(?:will|shall|is going to|are going to) be (\w+(?:ed|en|t|ne|wn|de))\b")
_FOREIGN = re.compile(
    r"\A(?:(?:ahora |yo )?voy a |vamos a |ich werde |wir werden |je vais |nous allons |vado a |(?:lo )?farò |vou "
    r"|eu vou "
    r"|я (?:буду|сделаю|напишу|подготовлю|начну)|我会|我将|我马上|我来|je \w+rai\b|\w{2,}(?:erò|irò|arò)\b|\w{2,}(?:aré"
    r"|eré|iré)\b)"
)
_TO_FIND_OUT = re.compile(r"\b(?:because|since|namely|which means|so that is|therefore)\b")
_MAY_ANSWER = re.compile(
    r"\b(?:plan(?: for|\b)|(?:you|we|i)(?:'ll| will| would| are going| intend| can| should)|will|would|forecast"
    r"|predict|promise|vow"
    r"|resolutions?|announce\w*|reassur\w+|guarantee|reply|respond|answer to|letters?|e-?mails?|messages?|speech"
    r"|song|lyrics?"
    r"|chorus|poem|story|novel|scene|dialogue|monologue|role-?play|script|caption|tweet|post|bio|log|diary"
    r"|next (?:steps?|move)"
    r"|schedule|going to|strategy|approach|pitch|toast|line|slogan|motto|tagline|headline|title|greeting|joke"
    r"|example|statement|sentence|quote|say|introduce|pledge|oath"
    r"|apology"
    r"|translate\w*|rewrite|rephrase|paraphrase|reword|shorten|first person|future tense|choose|pick|select"
    r"|decide|which|what|who|where|when|how|name|suggest|recommend|state|estimate|propose"
    r"|tell me)\b"
)
"""An instruction that "I will …" may answer."""
_ASKS_FOR_PROMISE = re.compile(
    r"\b(?:will you|you will|you'll|are you going|translate\w*|rewrite|rephrase|paraphrase|reword|shorten"
    r"|first person|future tense)\b"
)
"""An instruction that a promise does answer."""
_ASKS_FOR_WORDS = re.compile(
    r"\b(?:resolutions?|slogan|motto|tagline|headline|title|greeting|joke|lines?|statement|vow|promise|pledge"
    r"|oath|quote|song"
    r"|lyrics?|chorus|poem|story|scene|dialogue|monologue|message|letter|e-?mail|reply|respond|say|caption|tweet"
    r"|speech|sentence)\b"
)
_IS_QUESTION = re.compile(
    r"\A(?:is|are|do|does|did|can|could|was|were|has|have|should|confirm|check|verify)\b|\?\s*\Z"
)
_WORK_SIGNS = re.compile(r"```|~~~|[=;{}|\\]|^\s*(?:[-*•]|\d+[.)])\s", re.MULTILINE)
_TIME = re.compile(
    r"\d+(?::\d+)?(?: ?(?:-|–|to) ?\d+)? ?(?:%|a\.?m|p\.?m|sec|min|h\b|hours?|days?|weeks?|months?|words?|pages?"
    r"|steps?|parts?|sections?)"
)
_ASKS_FOR_CHOICE = re.compile(r"\W*(?:please )?(?:choose|pick|select|decide|vote)\b")
_HAS_DIGIT = re.compile(r"\w*\d\w*")


def detect_flake_replies(reading: SessionReading) -> Iterator[Finding]:
    """Assistant turns that promise and do nothing."""
    for heard in reading.heard:
        confidence = is_flake(heard)
        if confidence:
            yield reading.make_finding(heard, "flake_reply", confidence, heard.body)


def is_flake(heard: HeardTurn) -> float:
    """How sure a turn only promises, from 0 to 1."""
    body = heard.body
    if heard.by_user or not body or len(body) > _LONGEST:
        return 0.0
    if "```" in body:
        body = re.sub(r"```\w*\s*```", "", body).strip()
    if _WORK_SIGNS.search(body):
        return 0.0
    body = body.lower().replace("’", "'").replace("**", "")
    asked = heard.asked.lower()
    if strip_quotations(body) != body and strip_quotations(asked) == asked:
        return 0.0
    return _weighed(split_sentences(body), asked)


def _weighed(parts: list[str], asked: str) -> float:
    """How likely a reply only promises, by its sentences."""
    asked_words = frozenset(find_content_words(asked))
    said: list[_Says] = []
    for part in parts:
        says = _says(part, asked_words)
        if says is _Says.WORK:
            return 0.0
        said.append(says)
    if _decides(parts, asked):
        return 0.3
    may_answer = _MAY_ANSWER.search(asked) is not None and not _promises_the_asked(parts, asked)
    if may_answer and (_Says.VAGUE in said or _ASKS_FOR_PROMISE.search(asked)):
        return 0.3
    words_asked = _ASKS_FOR_WORDS.search(asked) is not None
    if _Says.PROMISE in said or _Says.VAGUE in said or (said and said[-1] is _Says.ANNOUNCEMENT):
        return (
            0.4
            if may_answer
            and len(parts) == 1
            and not _puts_off(parts[0], asked_words, words_asked=words_asked)
            else 0.9
        )
    accepts = any(_ACCEPTS.match(part) for part in parts)
    return 0.6 if accepts and asked and not _IS_QUESTION.search(asked) else 0.0


def _says(sentence: str, asked: frozenset[str]) -> _Says:
    if not any(map(str.isalnum, sentence)) or _COURTESY.match(sentence):
        return _Says.COURTESY
    opening = _OPENING.match(sentence)
    rest = sentence[opening.end() :] if opening else sentence
    if not rest or _COURTESY.match(rest):
        return _Says.COURTESY
    if _ANNOUNCES.match(rest) or (rest.endswith(":") and len(rest.split()) <= _HEADING):
        return _Says.ANNOUNCEMENT
    ends_open = rest.endswith(":")
    if ":" in rest[:-1] or _TO_FIND_OUT.search(rest) or _gives_numbers(rest, asked):
        return _Says.WORK
    says = _of_the_future(rest, asked)
    if says is not _Says.WORK and ends_open:
        return _Says.ANNOUNCEMENT
    return says


def _of_the_future(rest: str, asked: frozenset[str]) -> _Says:
    words = find_content_words(rest)
    future = _FUTURE.match(rest)
    if future is not None and not _STALLING.match(rest):
        return _future(future[1] or future[2], rest, asked)
    able = _ABLE.match(rest)
    if able is not None and _is_verb(able[1], _STRONG):
        return _Says.PROMISE
    if _STALLING.match(rest) or _OFFER.match(rest) or _FOREIGN.match(rest):
        return _Says.PROMISE if len(words) <= _LONGEST_OFFER else _Says.WORK
    progress = _IN_PROGRESS.match(rest)
    if progress is not None and _is_verb(progress[1], _STRONG):
        told = rest.startswith(("i", "we")) or re.search(
            r"\b(?:now|for you|right away|in progress|on it)\b", rest
        )
        return _Says.PROMISE if told else _Says.WORK
    known = sum(word in asked for word in words)
    if _UNDER_WAY.search(rest) and known and len(words) <= _HEADING + _NEWS:
        return _Says.PROMISE
    if _WILL_BE_DONE.search(rest) and words and known >= 0.5 * len(words):
        return _Says.PROMISE
    return _Says.WORK


def _future(verb: str, rest: str, asked: frozenset[str]) -> _Says:
    """What "I will", and then ``verb``, is."""
    if _is_verb(verb, _STRONG) or stem(verb) in asked:
        return _Says.PROMISE
    news = [word for word in find_content_words(rest) if word not in asked]
    if _is_verb(verb, _KNOWN) and len(news) <= _NEWS:
        return _Says.PROMISE
    return _Says.VAGUE if len(news) <= 3 * _NEWS else _Says.WORK


def _is_verb(word: str, verbs: frozenset[str]) -> bool:
    base = word.removesuffix("ing")
    return (
        word in verbs
        or base in verbs
        or f"{base}e" in verbs
        or (base[:-1] in verbs and base[-2:-1] == base[-1:])
    )


def _gives_numbers(sentence: str, asked: frozenset[str]) -> bool:
    """True if a sentence holds figures that are neither given nor a time or a size of what is promised."""
    return any(stem(found) not in asked for found in _HAS_DIGIT.findall(_TIME.sub(" ", sentence)))


def _promises_the_asked(parts: list[str], asked: str) -> bool:
    """True if the reply names the verb of the instruction: what is promised is the work itself."""
    heads = find_content_words(" ".join(tokenize(asked)[:1]))
    return bool(heads) and any(heads[0] in find_content_words(part) for part in parts)


def _decides(parts: list[str], asked: str) -> bool:
    """True if the reply names what it takes, where the instruction asks for a choice."""
    instruction, _, options = asked.partition("\n")
    if _ASKS_FOR_CHOICE.match(instruction) is None:
        return False
    known = frozenset(find_content_words(instruction))
    offered = frozenset(find_content_words(options)) - known
    return any(word in offered for part in parts for word in find_content_words(part))


def _puts_off(sentence: str, asked: frozenset[str], *, words_asked: bool) -> bool:
    """True if a single promise is about what was asked for, or is no more than being ready for it."""
    opening = _OPENING.match(sentence)
    rest = sentence[opening.end() :] if opening else sentence
    future = _FUTURE.match(rest)
    if future is None or any(word in asked for word in find_content_words(rest[future.end() :])):
        return True
    return not words_asked and _is_verb(future[1] or future[2], _STRONG)
