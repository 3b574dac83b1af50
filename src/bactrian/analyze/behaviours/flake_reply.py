"""Flake reply: the AI assistant promises ("I will …") and does nothing (paper, section 4.1).

Every sentence of the reply announces, accepts or asks for time. One sentence of work is enough to make it a solution,
and so are code, a quotation, a formula or a list after the announcement. The future tense alone proves nothing: where
the instruction asks for a plan, a forecast, a promise or words to somebody, "I will" may be the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bactrian.analyze.behaviours.reading import Heard, Reading
from bactrian.analyze.behaviours.words import STOP_WORDS, content, sentences, tokens, without_quotations
from bactrian.records.finding import Finding

_LONGEST = 900
"""Characters; a reply that is longer does something besides promising."""
_HINTS = (
    "will",
    "'ll",
    "’ll",
    "shall",
    "going to",
    "about to",
    "plan to",
    "intend to",
    "let me",
    "let's",
    "let’s",
    "wait",
    "moment",
    "second",
    "minute",
    "time",
    "on it",
    "working on",
    "ready",
    "happy to",
    "glad to",
    "love to",
    "can ",
    "noted",
    "got it",
    "consider",
    "sure",
    "here is",
    "here are",
    "here's",
    "expect",
    "now",
    "promise",
    "voy a",
    "werde",
    "vais",
    "allons",
    "vamos",
    "vado",
    "farò",
    "faremo",
    "vou",
    "буду",
    "сделаю",
    "напишу",
    "подготовлю",
    "начну",
    "我会",
    "我将",
    "我马上",
)

_OPENING = re.compile(
    r"\A(?:(?:sure(?: thing)?|certainly|of course|absolutely|okay|ok|alright|all right|great|perfect|yes|yeah|definitely"
    r"|understood|noted|got it|gladly|right|well|good|no problem|first(?:ly)?|second(?:ly)?|then|next|after (?:that|this)"
    r"|finally|lastly|also|and|now|so|to begin(?: with)?|to start(?: with)?|in this step|as (?:your|the|an?) [\w ]{1,40}?"
    r"|to [^,.]{3,80}|once [^,.]{3,60}|thank you[^,.!]{0,40}|claro|vale|gerne|natürlich|bien sûr|d'accord|certo|конечно|хорошо)"
    r"[,:;!.\s]+){0,3}"
)
_PERSON = r"(?:i|we)"
_WILL = (
    rf"{_PERSON}(?:['’]ll| will| shall|['’]m going to| am going to| are going to|['’]re going to|['’]m about to"
    r"| am about to| are about to| plan to| intend to| aim to| promise to)"
)
_ADVERBS = r"(?: (?:now|then|also|first|certainly|gladly|immediately|definitely|just|next|surely|begin by|start by|begin with|start with))*"
_FUTURE = re.compile(rf"\A{_WILL}{_ADVERBS}(?: be)? (\w+)")
_OFFER = re.compile(
    rf"\A(?:{_PERSON} (?:can|could|would|am|are|need|have|want)|{_PERSON}['’](?:d|m|re)) (?:\w+ )?"
    r"(?:help|assist|happy to|glad to|love to|like to|ready|working on|writing|preparing|creating|need(?:s)? to"
    r"|want to|to (?:start|begin|first)|putting together|looking|going to|start|begin|create|write|prepare|do)\b"
)
_STALLING = re.compile(
    r"\A(?:let me (?:take|look|check|see|think|get back|find|start|begin|work|do|prepare|write|explain|know|show)"
    r"|let['’]?s (?:start|begin|get started|get going|do|go|see|work|solve|take|try)\b"
    r"|let us (?:start|begin|do|work|see|take)\b"
    r"|(?:please )?(?:wait|hold on|bear with)\b|(?:just )?(?:a|one) (?:moment|second|minute)\b|(?:please )?give me (?:a|some|one)\b"
    r"|you (?:can|may|will) (?:expect|receive|have|get)\b|consider it done\b|will do\b|on it\b"
    r"|(?:making|working|preparing|starting|writing|getting|creating|putting)\b[^.:]*\b(?:now|on it|for you)\b"
    r"|(?:shall|should|may) i\b|i['’]m on it\b|sounds good\b|what an? \w+ (?:idea|task|instruction|request)\b"
    r"|that(?:['’]s| is) an? \w+ (?:idea|task|request)\b)"
)
_ANNOUNCING = re.compile(r"\A(?:here (?:is|are)|here['’]s|below (?:is|are)|the following)\b[^:]*:?\Z")
_WILL_BE_DONE = re.compile(r"\b(?:will|shall) be (\w+(?:ed|en|t|ne|wn|de))\b")
_FOREIGN = re.compile(
    r"\A(?:(?:claro|gerne|natürlich|bien sûr|d'accord|certo|конечно|хорошо|好的)[,，!.\s]+)?"
    r"(?:(?:ahora |yo )?voy a |vamos a |ich werde |wir werden |je vais |nous allons |vado a |(?:lo )?farò |vou |eu vou "
    r"|я (?:буду|сделаю|напишу|подготовлю|начну)|我会|我将|我马上)"
)
_COURTESY = re.compile(
    r"\A(?:sure(?: thing)?|certainly|of course|absolutely|okay|ok|alright|great|perfect|yes|understood|noted|got it|no problem"
    r"|gladly|thank(?:s| you)\b[^.!:]{0,80}|good|right|very well|claro|gerne|bien sûr|next request|please)\W*\Z"
)
_PROMISING = (
    "sure",
    "certainly",
    "of course",
    "absolutely",
    "no problem",
    "gladly",
    "noted",
    "understood",
    "got it",
)

_WORK = frozenset(
    (
        "write create make draft prepare design develop build implement compose generate produce provide "
        "present show explain describe list analyze analyse review check look find search research "
        "investigate study read start begin work get go proceed continue help assist do try ensure make add "
        "update fix correct improve test run calculate compute solve draw sketch plan organize organise "
        "summarize summarise translate compare collect gather send deliver share submit set put load clean "
        "remove cut glue note take complete finish handle follow keep come discuss cover include identify "
        "choose select evaluate assess break outline guide walk give answer respond tell let be use"
    ).split()
)
_STRONG_PROMISE = frozenset(
    (
        "write create make draft prepare design develop build implement compose generate produce provide "
        "present show explain analyze analyse review check look find research investigate start begin work "
        "get proceed help assist do try fix summarize summarise translate draw"
    ).split()
)
_ASKS_FOR_FUTURE = re.compile(
    r"\b(?:plan(?: for|\b)|you(?:['’]ll| will| would| are going| intend)|will|forecast|predict|promise|vow|resolutions?|announce\w*"
    r"|reassur\w+|guarantee|reply|answer to|letter|e-?mail|message|speech|song|lyrics?|chorus|poem|story|novel|scene|dialogue"
    r"|play|log|diary|next steps?|schedule|going to|strategy|approach|pitch|toast|line)\b"
)
_WORK_SIGNS = re.compile(r"```|~~~|[=;{}|]|^\s*(?:[-*•]|\d+[.)])\s", re.MULTILINE)


def flake_reply(reading: Reading) -> Iterator[Finding]:
    """Assistant turns that promise and do nothing."""
    for heard in reading.heard:
        if heard.by_user:
            continue
        confidence = flakes(heard)
        if confidence:
            yield reading.finding(heard, "flake_reply", confidence, heard.body)


def flakes(heard: Heard) -> float:
    """How sure a turn only promises, from 0 to 1."""
    body = heard.body
    if not body or len(body) > _LONGEST:
        return 0.0
    lower = body.lower()
    if not any(hint in lower for hint in _HINTS):
        return 0.0
    if "```" in body:
        body = re.sub(r"```\w*\s*```", "", body).strip()
    asked = heard.asked.lower()
    if without_quotations(body) != body and without_quotations(asked) == asked:
        return 0.0
    if _WORK_SIGNS.search(body):
        return 0.0
    return _weighed(body, asked)


def _weighed(body: str, asked: str) -> float:
    """How likely a reply only promises, by its sentences."""
    asked_words = set(content(asked))
    strong = weak = 0
    parts = sentences(body.lower())
    for position, sentence in enumerate(parts):
        rest = sentence[_end(_OPENING.match(sentence)) :]
        if _COURTESY.match(sentence) or not rest:
            weak += sentence.startswith(_PROMISING)
            continue
        kind = _promise(rest, sentence, asked_words)
        if kind == "announcing" and position + 1 < len(parts):
            # Whatever follows is what was announced, or a promise of its own.
            continue
        if kind is None:
            return 0.0
        strong += kind in ("strong", "announcing")
        weak += kind == "weak"
    if strong and not (_ASKS_FOR_FUTURE.search(asked) and not _same_verb(body, asked)):
        return 0.9
    if strong or weak:
        return 0.6 if not _ASKS_FOR_FUTURE.search(asked) else 0.3
    return 0.0


def _promise(rest: str, sentence: str, asked_words: set[str]) -> str | None:
    """What a sentence promises: ``strong``, ``weak``, ``announcing``, or None if it says something else."""
    if _ANNOUNCING.match(rest) or (rest.endswith(":") and _FUTURE.match(rest)):
        return "announcing"
    if ":" in rest.rstrip(":"):
        return None
    future = _FUTURE.match(rest)
    if future is not None:
        verb = future[1]
        base = verb.removesuffix("ing")
        if verb in _STRONG_PROMISE or base in _STRONG_PROMISE or f"{base}e" in _STRONG_PROMISE:
            return "strong"
        news = [word for word in content(rest, STOP_WORDS | _WORK) if word not in asked_words]
        if content(verb) and content(verb)[0] in asked_words:
            return "strong"
        known_verb = verb in _WORK or base in _WORK or f"{base}e" in _WORK
        return "strong" if len(news) <= (4 if known_verb else 1) else None
    if _OFFER.match(rest) or _STALLING.match(rest) or _STALLING.match(sentence):
        return "strong" if len(content(rest)) <= 25 else None
    if _FOREIGN.match(rest) or _FOREIGN.match(sentence):
        return "strong"
    done = _WILL_BE_DONE.search(rest)
    if done is not None:
        words = content(rest)
        known = sum(word in asked_words for word in words)
        return "strong" if words and known >= 0.5 * len(words) else None
    if rest.startswith(("let me know", "please let me know", "feel free")):
        return "weak"
    return None


def _same_verb(body: str, asked: str) -> bool:
    """True if the promise is to do what the instruction's first word names."""
    head = content(" ".join(tokens(asked)[:1]))
    return bool(head) and head[0] in content(body)


def _end(match: re.Match[str] | None) -> int:
    return match.end() if match else 0
