"""What may go to a terminal, and how."""

from __future__ import annotations

import re
import unicodedata

from rich.console import Console

# A reply can hold sequences that retitle a terminal or write to its clipboard.
_SEQUENCES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[PX^_][^\x1b]*(?:\x1b\\)?|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-_]?"
)
_BIDI = re.compile("[\u202a-\u202e\u2066-\u2069]")


def to_printable(text: str) -> str:
    """``text`` without anything that would steer the terminal instead of being shown on it."""
    text = _BIDI.sub("", _SEQUENCES.sub("", text))
    return "".join(
        character for character in text if character in "\n\t" or unicodedata.category(character) != "Cc"
    )


def open_output() -> Console:
    """The console on standard output, for data. Colour only where it is a terminal."""
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True)


def open_progress() -> Console:
    """The console on standard error, for progress and prose."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
