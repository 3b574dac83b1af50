"""The two consoles: data and progress."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from bactrian.records.text import to_printable

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["open_output", "open_progress", "say", "split_command", "to_printable", "wrap_words"]

_WORDS = re.compile(r"(?:`[^`]*`|\S)+")
"""A word; a command between backticks is one word, so that no line divides it."""
_UNLIMITED = 100_000
"""Columns that no table has."""
_COMMAND = re.compile(r"(?P<prose>.*[:.;] +|\s*)(?P<command>(?:bactrian|pip install|ollama|export) \S.*)")


class PrintableConsole(Console):
    """Writes texts without what steers a terminal, also in tables: names and replies are of others."""

    def render_str(self, text: str, **style: Any) -> Text:
        """Return ``text`` as rich's own text; rich calls this for every string that it writes."""
        return super().render_str(to_printable(text), **style)

    def say(self, text: str, style: str | None = None) -> None:
        """Write sentences. On a terminal, lines break between words.

        A command at the end of a line stands on a line of its own there, without a break, so that it can be copied.
        """
        for line in to_printable(text).split("\n"):
            if not self.file.isatty():
                self.print(line, style=style)
                continue
            prose, command = split_command(line)
            for part in wrap_words(prose, self.width) if prose or not command else ():
                self.print(part, style=style)
            if command:
                self.print(f"  {command}")

    def print_table(self, table: Table) -> None:
        """Write a table; in a file or a pipe, each row is one line, so that it can be searched and copied."""
        if not self.file.isatty():
            needed = self.measure(table, options=self.options.update(width=_UNLIMITED)).maximum
            self.width = max(self.width, needed)
        self.print(table, soft_wrap=False)


def split_command(line: str) -> tuple[str, str]:
    """Return a line without the command at its end, and that command; empty if there is none."""
    found = _COMMAND.fullmatch(line.rstrip())
    return (found["prose"].rstrip(), found["command"]) if found else (line, "")


def wrap_words(text: str, width: int) -> Iterator[str]:
    """Yield the lines of ``text``, each at most ``width`` cells wide unless one word is wider."""
    indent = text[: len(text) - len(text.lstrip())]
    line = indent
    words = _WORDS.findall(text)
    for word in words:
        joined = f"{line} {word}" if line.strip() else f"{indent}{word}"
        if line.strip() and cell_len(joined) > width:
            yield line
            joined = f"{indent}{word}"
        line = joined
    if line.strip() or not text:
        yield line


def open_output() -> PrintableConsole:
    """Return the console on standard output, for data. Colour only on a terminal."""
    return PrintableConsole(highlight=False, markup=False, emoji=False, soft_wrap=True)


def open_progress() -> PrintableConsole:
    """Return the console on standard error, for progress and prose."""
    return PrintableConsole(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)


def say(text: str) -> None:
    """Write sentences to standard error, as :meth:`PrintableConsole.say` does."""
    sys.stderr.flush()
    open_progress().say(text)
