"""Empty turn: nothing is said.

White space, punctuation, an empty block of code and the words of the protocol are nothing, and so is an instruction
that is only ``None``. A single letter, digit or emoji is something, and ``None`` may be a solution.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from unicodedata import category

from bactrian.analyze.behaviours.reading import HeardTurn, SessionReading
from bactrian.records.finding import Finding

_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n]*$", re.MULTILINE)
_NONE = re.compile(r"\W*(?:none|n/a)\W*(?:none|n/a)?\W*", re.IGNORECASE)
_LONGEST = 400
"""Characters; a longer turn is looked at only if it holds no letter at all."""


def detect_empty_turns(reading: SessionReading) -> Iterator[Finding]:
    """Turns that say nothing."""
    for heard in reading.heard:
        if is_empty(heard):
            yield reading.finding(heard, "empty_turn", 1.0, heard.turn.text)


def is_empty(heard: HeardTurn) -> bool:
    """True if a turn says nothing."""
    body = heard.body
    if len(body) > _LONGEST:
        return not any(map(str.isalnum, body))
    if heard.is_done:
        return False
    if "```" in body or "~~~" in body:
        body = _FENCE.sub("", body)
    if not any(character.isalnum() or category(character) == "So" for character in body):
        return True
    return heard.by_user and _NONE.fullmatch(body) is not None
