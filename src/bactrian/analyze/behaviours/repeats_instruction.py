"""Assistant repeats instruction: it says what it was told and adds nothing (paper, section 4.1).

All but a few of its words are the instruction's or its input's, and most of the instruction's words come back. Numbers,
signs of code and formulas that were not given are something new, and so is a change in the order of a list. Restating
the instruction *before* solving it is no repetition, nor is choosing between what the instruction offers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bactrian.analyze.behaviours.reading import HeardTurn, SessionReading
from bactrian.language.words import STOP_WORDS, find_content_words, stem, tokenize
from bactrian.records.finding import Finding
from bactrian.records.turn import Instruction

_CONTAINED = 0.85
"""Share of the answer's words that must have been said before."""
_COVERED = 0.6
"""Share of the instruction's words that must come back, if its verb does."""
_NEARLY_COVERED = 0.8
"""The same, if its verb does not come back."""
_LONGER = 1.6
"""An answer that is so many times longer says more."""
_FILLER = STOP_WORDS | frozenset(
    (
        "solution task instruction instructions request requests step goal aim objective need needs needed "
        "want wants wanted like ask asks asked asking require requires required supposed order told have "
        "having understood understand important following based given let lets now first next sure certainly "
        "okay ok yes thank thanks please input begin well know wish wishes says said got so right see ll ve re"
    ).split()
)
_MAKE = frozenset(
    stem(word)
    for word in (
        "create make made write wrote written develop build built design implement draft compose generate "
        "produce prepare"
    ).split()
)
_SIGNS = frozenset("=;{}[]<>|\\^+/")
"""Signs of code, formulas and tables."""
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_DECIDE = re.compile(
    r"\b(?:whether|which|choose|pick|select|decide|confirm|check|true or false|yes or no|say|greet|is|are|was"
    r"|were|does"
    r"|did)\b"
)
_SAY_AGAIN = re.compile(
    r"\b(?:repeat|copy|quote|recite|echo|read|proofread|correct|fix|convert|format|quot\w+|capitali[sz]e"
    r"|punctuate)\b"
)
"""Where the input may rightly come back as it is."""
_ASKS_BACK = re.compile(
    r"\W*(?:what|which|who|whom|whose|where|when|why|how|could|can|would|do|does|did|is|are|should"
    r"|shall)\b.*\?\W*\Z",
    re.DOTALL,
)
_SAME = 0.9
"""Share of their different words that an echo and its turn have in common."""
_FEWEST_ECHOED = 3
_RESTATES = re.compile(
    r"\W*(?:(?:understood|okay|ok|sure|certainly|yes|right|so|got it|thank you|thanks|i understand"
    r"|i see)\b[\s,.!:;that]*)*"
    r"(?:you(?:'d| would|'ve| have)? (?:ask|asked|want|wanted|need|needed|like|wish|request|requested|told"
    r"|instructed|gave)\b"
    r"|(?:the|your|my|this) (?:\w+ )?(?:task|instruction|request|goal|aim|objective|job|assignment|question)\b"
    r"|i(?:'m| am| was|'ve been| have been)"
    r" (?:asked|told|instructed|supposed|requested|expected|given)\b|i (?:need|have|want|should|must)\b)"
)
"""Beginnings of a reply that says what was asked for."""
_ONLY_COMMENTS = re.compile(r"\s*```\w*\n((?:\s*(?:#|//|--|/\*)[^\n]*\n)+)\s*```\s*")
_WORD = re.compile(r"\w+")
_SHORTEST = 2
"""Words of content that a repetition has at least."""


def detect_repeated_instructions(reading: SessionReading) -> Iterator[Finding]:
    """Assistant turns that only say the instruction again."""
    for heard in reading.heard:
        confidence = is_repeat(heard)
        if confidence:
            yield reading.make_finding(heard, "repeats_instruction", confidence, heard.body)


def is_repeat(heard: HeardTurn) -> float:
    """How sure a turn only says the instruction again, from 0 to 1."""
    before = heard.before
    if heard.by_user or before is None or not before.by_user:
        return 0.0
    answer, asked = heard.body, before.body
    if _is_echo(heard, before):
        return 0.9
    if not answer or not asked or len(answer) > _LONGER * len(asked) + 60:
        return 0.0
    said = before.turn.said
    instruction = said.instruction if isinstance(said, Instruction) else asked
    if _plain(answer) in (_plain(asked), _plain(instruction)):
        return 1.0
    answer = _comments(answer)
    if _new_signs(answer, asked) or _ASKS_BACK.match(answer.lower()):
        return 0.0
    if isinstance(said, Instruction) and said.input and _bare(answer) == _bare(said.input):
        return 0.4 if _SAY_AGAIN.search(instruction.lower()) else 0.7
    return _shared(answer, asked, instruction)


def _is_echo(heard: HeardTurn, before: HeardTurn) -> bool:
    """True if the answer is the turn before it but for a word here and there."""
    shared = len(heard.words & before.words)
    if shared < _SAME * len(heard.words | before.words) or len(heard.words) < _FEWEST_ECHOED:
        return False
    return not any(any(map(str.isdigit, word)) for word in heard.words ^ before.words)


def _shared(answer: str, asked: str, instruction: str) -> float:
    """How sure ``answer`` is ``instruction`` in other words, by the words that they share."""
    words = _merged(answer)
    known = set(_merged(asked))
    wanted = _merged(instruction)
    if len(set(words)) < _SHORTEST or not wanted:
        return 0.0
    contained = sum(word in known for word in words) / len(words)
    if contained < _CONTAINED:
        return 0.0
    head = _merged(" ".join(tokenize(instruction)[:1]))
    rest = [word for word in wanted if word not in head] or wanted
    back = set(words)
    covered = sum(word in back for word in wanted) / len(wanted)
    if back & set(head) or _RESTATES.match(answer.lower()):
        return round(0.5 + 0.4 * contained * covered, 2) if covered >= _COVERED else 0.0
    # Without the verb, a single new word may be the answer: "The longest river of France is the Loire."
    covered = sum(word in back for word in rest) / len(rest)
    nothing_new = contained == 1 and not _DECIDE.search(instruction.lower())
    return round(0.4 + 0.4 * covered, 2) if nothing_new and covered >= _NEARLY_COVERED else 0.0


def _comments(answer: str) -> str:
    """The comments of a block of code that holds nothing else; any other answer as it is."""
    block = _ONLY_COMMENTS.fullmatch(answer)
    return answer if block is None else re.sub(r"^\s*(?:#|//|--|/\*)|\*/", " ", block[1], flags=re.MULTILINE)


def _plain(text: str) -> str:
    """``text`` without case and punctuation."""
    return " ".join(tokenize(text))


def _bare(text: str) -> str:
    """``text`` without its punctuation; capitals may be what was asked for."""
    return " ".join(_WORD.findall(text))


def _new_signs(answer: str, asked: str) -> bool:
    """True if the answer has numbers or signs that were not given."""
    if any(sign in answer and sign not in asked for sign in _SIGNS):
        return True
    return not set(_NUMBER.findall(answer)) <= set(_NUMBER.findall(asked))


def _merged(text: str) -> list[str]:
    """Words of content, with one word for all the verbs of making something."""
    return ["make" if word in _MAKE else word for word in find_content_words(text, _FILLER)]
