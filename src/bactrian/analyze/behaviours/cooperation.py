"""The paper's four failures of cooperation (section 4.1), found by the learned detector of :mod:`bactrian.detect`.

Where the protocol itself speaks, a rule decides: an assistant's line that begins with ``Instruction:``, a user's that
begins with ``Solution:``, and a user that asks for the next instruction are role flips.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from bactrian.analyze.behaviours.reading import HeardTurn, SessionReading
from bactrian.detect.conversation import DetectedConversation
from bactrian.detect.loops import LOOP, SHORTEST_LOOP, count_void_turns
from bactrian.detect.model import LIKELY
from bactrian.language.protocol import find_instruction
from bactrian.records.finding import Behaviour, Finding

PAPER: tuple[Behaviour, ...] = ("role_flip", "repeats_instruction", "flake_reply", LOOP)
"""The four behaviours."""
_NEXT = r"(?: (?:next|new|first|further|another|following))+ (?:instructions?|tasks?|requests?|orders?|commands?)\b"
_THAT = rf"(?:{_NEXT}| instructions?(?=[.!?]|\Z))"
_ASKS_FOR_ONE = re.compile(
    rf"(?:\A|[.!?:\n][ ]*|\b(?:please|kindly|you) )(?:give|provide|send|share|state)"
    rf"(?: me| us)?(?: with)?(?: the| an?| your| any)?{_THAT}"
    rf"|\b(?:waiting for|awaiting|await|ready for|ready to receive|look(?:ing)? forward to)"
    rf"(?: the| an?| your| any)?{_THAT}"
    rf"|\bwhat(?:['’]s| is| are) (?:your|the){_NEXT}"
)
"""Words by which an agent asks for an instruction, in English. They hold one of"""
_ASKED_FOR = ("instruction", "task", "request", "order", "command")
_PREPARES = re.compile(
    r"\b(?:i|we)\b(?:(?!\byou\b)[^.!?\n])*\b(?:prepare|provide|give|send|write)\b[^.!?\n]*\Z"
)
"""How a user announces an instruction of its own."""
_DOUBTFUL = 0.1
"""Confidence below which a turn is not even a doubtful finding."""


def detect_failure(behaviour: Behaviour) -> Callable[[SessionReading], Iterator[Finding]]:
    """Return the detector of one of the four."""
    if behaviour == LOOP:
        return _detect_loops
    return lambda reading: detect_turns(reading, reading.detected, behaviour)


def detect_turns(
    reading: SessionReading, detected: DetectedConversation, behaviour: Behaviour
) -> Iterator[Finding]:
    """Yield the turns that show ``behaviour`` by the heads of a model."""
    for head in detected.model.heads:
        if head.behaviour != behaviour:
            continue
        for place, heard in enumerate(reading.heard):
            if not head.applies_to(detected.turns[place]):
                continue
            marker = _find_marker(reading, heard) if behaviour == "role_flip" else None
            if marker is not None:
                yield reading.make_finding(heard, behaviour, 1.0, *marker)
            elif behaviour == "repeats_instruction" and is_echo(detected, place + 1):
                yield reading.make_finding(heard, behaviour, 1.0, heard.body, "it is the instruction")
            elif detected.is_shown(head, place) or reading.least < LIKELY:
                confidence = head.calibrate(detected.score(head, place))
                if confidence >= max(_DOUBTFUL, reading.least):
                    reason, quote = detected.explain(head, place) if reading.explains else ("", "")
                    quote = _find_quote(heard, quote)
                    yield reading.make_finding(heard, behaviour, confidence, quote, reason)


def is_echo(detected: DetectedConversation, number: int) -> bool:
    """Return True if a turn is word for word the instruction before it."""
    if number < 2:
        return False
    turn, before = detected.turns[number - 1], detected.turns[number - 2]
    return before.instructs and not turn.instructs and bool(turn.stems) and turn.prose == before.prose


def is_failure(reading: SessionReading, heard: HeardTurn) -> bool:
    """Return True if a turn shows one of the four."""
    detected, place = reading.detected, heard.turn.number - 1
    return is_echo(detected, heard.turn.number) or any(
        detected.is_shown(head, place)
        for head in detected.model.heads
        if head.applies_to(detected.turns[place])
    )


def _detect_loops(reading: SessionReading) -> Iterator[Finding]:
    """Yield the turns from the fourth of a loop on."""
    detected = reading.detected
    head = detected.model.get_head(LOOP)
    for heard, run in zip(reading.heard, count_void_turns(detected), strict=True):
        if run >= SHORTEST_LOOP:
            number = heard.turn.number
            scores = [detected.score(head, place) for place in range(number - run, number)]
            confidence = sum(map(head.calibrate, scores)) / run
            reason, quote = detected.explain(head, number - 1) if reading.explains else ("", "")
            reason = f"nothing new since turn {number - run + 1}" + (f"; {reason}" if reason else "")
            yield reading.make_finding(
                heard, LOOP, max(round(confidence, 2), 0.5), _find_quote(heard, quote), reason
            )


def _find_marker(reading: SessionReading, heard: HeardTurn) -> tuple[str, str] | None:
    """Return the words by which a turn takes the other's place in the protocol, and the reason; None if not found.

    What a user gives as its input is not a flip.
    """
    if heard.by_user:
        turn = reading.detected.turns[heard.turn.number - 1]
        if turn.gives_input:
            return None
        if turn.solves:
            return heard.turn.text, "a line begins with “Solution:”"
        if turn.asks_next and not _PREPARES.search(turn.prose):
            return heard.turn.text.rstrip().rpartition("\n")[2], "it asks for the next instruction"
        asks = any(word in turn.prose for word in _ASKED_FOR) and _ASKS_FOR_ONE.search(turn.prose)
        if asks:
            return _find_quote(heard, asks[0].lstrip(".!?:\n ")), "it asks for an instruction"
        return None
    found = find_instruction(heard.turn.text, reading.session.provenance.language)
    if found is None or heard.turn.text[: found.start()].rpartition("\n")[2].strip(" \t>#*_-"):
        return None
    return heard.turn.text[found.start() :], "a line begins with “Instruction:”"


def _find_quote(heard: HeardTurn, sentence: str) -> str:
    """Return a sentence as the turn writes it, from a sentence in lower case; all of the turn if not found."""
    text = heard.turn.text
    begin = text.lower().replace("’", "'").find(sentence) if sentence else -1
    return text[begin : begin + len(sentence)] if begin >= 0 else heard.body or text
