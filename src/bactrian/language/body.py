"""What a turn says, without the words of the inception protocol."""

from __future__ import annotations

import re
from unicodedata import category

from bactrian.records.turn import Instruction, Solution, Turn

_MARKERS = re.compile(
    r"^[ \t>#*_-]*(?:Instruction|Input|Solution)[*_]*[:：][*_]*[ \t]*(?:None\.?[ \t]*$)?",
    re.MULTILINE | re.IGNORECASE,
)
_NEXT_REQUEST = re.compile(
    r"(?:^[ \t*_]*|(?<=[^\w\s,;])[ \t*_]+)Next request\.?[*_]*\s*\Z", re.MULTILINE | re.IGNORECASE
)
_TAIL = 60
"""Characters in which the request for the next instruction stands: from the start, every space would be tried."""
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n]*$", re.MULTILINE)
_NONE = re.compile(r"\W*(?:none|n/a)\W*(?:none|n/a)?\W*", re.IGNORECASE)
_LONGEST = 400
"""Characters; a longer body is blank only if it holds no letter at all."""


def read_body(turn: Turn) -> str:
    """Return what ``turn`` says, code included, without the words of the protocol."""
    said = turn.said
    if isinstance(said, Solution):
        return f"{said.preface}\n{said.solution}".strip() if said.preface else said.solution
    if isinstance(said, Instruction):
        return "\n".join(part for part in (said.preface, said.instruction, said.input) if part)
    text = turn.text.rstrip()
    asks = _NEXT_REQUEST.search(text, max(0, len(text) - _TAIL))
    return _MARKERS.sub("", text[: asks.start()] if asks else text).strip()


def is_blank(body: str, *, by_user: bool) -> bool:
    """True if a body says nothing.

    White space, punctuation and an empty block of code are nothing, and so is an instruction that is only ``None``.
    A single letter, digit or emoji is something, and ``None`` may be a solution.
    """
    if len(body) > _LONGEST:
        return not any(map(str.isalnum, body))
    if "```" in body or "~~~" in body:
        body = _FENCE.sub("", body)
    if not any(character.isalnum() or category(character) == "So" for character in body):
        return True
    return by_user and _NONE.fullmatch(body) is not None
