"""Cleaning and encoding of text that is stored, sent or displayed."""

from __future__ import annotations

import re
import sys
from math import floor, log10
from typing import Self

from pydantic_core import to_json

_NUL = "\0"
# A reply may contain sequences that change a terminal's title or write to its clipboard.
_SEQUENCES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[PX^_][^\x1b]*(?:\x1b\\)?|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-_]?"
)
_BREAKS = re.compile("[\u2028\u2029]")
STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Matches characters that steer a terminal or are not seen: controls except newline and tab, direction marks,
zero-width characters except the joiners of scripts and emoji, surrogates, and tags."""


def clean_text(text: str) -> str:
    """Return ``text`` in a form that every store and wire format accepts.

    A lone surrogate becomes U+FFFD, and a NUL becomes the six characters ``\\u0000``: SQLite rejects the first,
    PostgreSQL the second, and a conversation should be the same in every store.
    """
    if text.isascii() and _NUL not in text:
        return text
    if _NUL in text:
        text = text.replace(_NUL, "\\u0000")
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class Text(str):
    """A string that caches its JSON form.

    Each message of a conversation is sent again with every later request, to both agents. Encoding it once and
    assembling request bodies from the bytes keeps the fortieth call as cheap as the first.
    """

    __slots__ = ("json",)

    json: bytes
    """The quoted JSON string."""

    def __new__(cls, text: str) -> Self:
        self = super().__new__(cls, text)
        self.json = to_json(text)
        return self


def to_printable(text: str) -> str:
    """Return ``text`` without terminal control sequences, control characters and invisible ones."""
    if text.isascii() and text.isprintable():
        return text
    return STEERING.sub("", _BREAKS.sub("\n", _SEQUENCES.sub("", text)))


def write_count(count: int, noun: str) -> str:
    """Return ``count`` with its noun, as in ``1 turn`` and ``2 turns``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def write_dollars(amount: float | None) -> str:
    """Return an amount of US dollars with two decimals; below 10 cents with two digits; ``unknown`` for None."""
    if amount is None:
        return "unknown"
    return f"${amount:,.{2 if amount >= 0.1 or amount <= 0 else 1 - floor(log10(amount))}f}"


def show(item: object) -> None:
    """Display ``item`` in a notebook, or write it to standard output elsewhere."""
    if "IPython" in sys.modules:
        from importlib import import_module

        if import_module("IPython").get_ipython() is not None:
            import_module("IPython.display").display(item)
            return
    sys.stdout.write(f"{item}\n")
