"""The content of a turn, without the markers of the inception protocol."""

from __future__ import annotations

import re
from unicodedata import category

from bactrian.language.protocol import DONE
from bactrian.records.turn import Instruction, Solution, Turn

_MARKERS = re.compile(
    r"^[ \t>#*_-]*(?:Instruction|Input|Solution)[*_]*[:：][*_]*[ \t]*(?:None\.?[ \t]*$)?",
    re.MULTILINE | re.IGNORECASE,
)
_NEXT_REQUEST = re.compile(
    r"(?:^[ \t*_]*|(?<=[^\w\s,;])[ \t*_]+)Next request\.?[*_]*\s*\Z", re.MULTILINE | re.IGNORECASE
)
_NEXT_LINE = re.compile(
    r"(?:^[ \t>*_-]*|(?<=[.!?:)])[ \t*_]+)Next request\.?[*_]*[ \t]*$", re.MULTILINE | re.IGNORECASE
)
_INNER = re.compile(r"(?<=[.!?])([ \t]+)[*_]*Solution[*_]*:[*_]*[ \t]*")
_CODE = re.compile(r"(^[ \t]*(?:```.*?(?:^[ \t]*```|\Z)|~~~.*?(?:^[ \t]*~~~|\Z)))", re.MULTILINE | re.DOTALL)
_TAIL = 60
"""Characters at the end that are searched for the request for the next instruction; the whole text would be slow."""
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n]*$", re.MULTILINE)
_NONE = re.compile(r"\W*(?:none|n/a)\W*(?:none|n/a)?\W*", re.IGNORECASE)
_LONGEST = 400
"""Characters; a longer body is blank only if it contains no letter or digit."""


def read_body(turn: Turn) -> str:
    """Return the content of ``turn``, code included, without the markers of the protocol."""
    said = turn.said
    if isinstance(said, Solution):
        return f"{said.preface}\n{said.solution}".strip() if said.preface else said.solution
    if isinstance(said, Instruction):
        return "\n".join(part for part in (said.preface, said.instruction, said.input) if part)
    text = turn.text.rstrip()
    asks = _NEXT_REQUEST.search(text, max(0, len(text) - _TAIL))
    return _MARKERS.sub("", text[: asks.start()] if asks else text).strip()


def strip_markers(text: str) -> str:
    """Remove the markers of the protocol, the done token and the request for the next instruction from ``text``.

    Fenced code is left as it is.
    """
    parts: list[str] = []
    for number, piece in enumerate(_CODE.split(text)):
        parts.append(piece if number % 2 else _strip_prose(piece))
    return "".join(parts).strip()


def _strip_prose(text: str) -> str:
    return _NEXT_LINE.sub("", _INNER.sub(r"\1", _MARKERS.sub("", text.replace(DONE, ""))))


def is_blank(body: str, *, by_user: bool) -> bool:
    """Return True if a body has no content.

    White space, punctuation and an empty code block do not count as content, nor does an instruction that is only
    ``None``. A single letter, digit or emoji counts, and ``None`` may be a solution.
    """
    if len(body) > _LONGEST:
        return not any(map(str.isalnum, body))
    if "```" in body or "~~~" in body:
        body = _FENCE.sub("", body)
    if not any(character.isalnum() or category(character) == "So" for character in body):
        return True
    return by_user and _NONE.fullmatch(body) is not None
