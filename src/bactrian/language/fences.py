"""Fenced blocks of code in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

PYTHON = ("", "python", "python3", "py")
"""Languages of blocks that are read as Python; the first is a block of no stated language."""
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[ \t]*([\w+-]*)[^\n]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FencedBlock:
    """A block between two fences."""

    language: str
    """In small letters; empty if not stated."""
    code: str
    begin: int
    """Where its opening fence begins in the text."""
    end: int
    """Where its closing fence ends."""


def find_blocks(text: str) -> Iterator[FencedBlock]:
    """Yield the fenced blocks of ``text``. A block that is not closed ends with the text."""
    begun: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if begun is None:
            begun = fence
            continue
        code = text[begun.end() + 1 : fence.start()]
        yield FencedBlock(begun[1].lower(), code, begun.start(), fence.end())
        begun = None
    if begun is not None:
        yield FencedBlock(begun[1].lower(), text[begun.end() + 1 :], begun.start(), len(text))
