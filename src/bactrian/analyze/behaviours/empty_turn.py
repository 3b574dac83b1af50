"""Empty turn: nothing is said.

White space, punctuation, an empty block of code and the words of the protocol are nothing, and so is an instruction
that is only ``None``. A single letter, digit or emoji is something, and ``None`` may be a solution.
"""

from __future__ import annotations

from collections.abc import Iterator

from bactrian.analyze.behaviours.reading import HeardTurn, SessionReading
from bactrian.language.body import is_blank
from bactrian.records.finding import Finding


def detect_empty_turns(reading: SessionReading) -> Iterator[Finding]:
    """Yield turns that say nothing."""
    for heard in reading.heard:
        if is_empty(heard):
            yield reading.make_finding(heard, "empty_turn", 1.0, heard.turn.text)


def is_empty(heard: HeardTurn) -> bool:
    """Return True if a turn says nothing."""
    return not heard.is_done and is_blank(heard.body, by_user=heard.by_user)
