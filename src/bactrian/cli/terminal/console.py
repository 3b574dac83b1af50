"""The two consoles, data and progress, and what is written on them: sentences, facts, a spinner."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.segment import Segment
from rich.status import Status
from rich.text import Text

from bactrian.amounts import join_facts
from bactrian.records.text import to_printable

if TYPE_CHECKING:
    from rich.console import ConsoleOptions
    from rich.table import Table

LEAST_TABLE = 72  # Columns below which a line per thing has no room; each then takes several lines
# The spinner of this task; the threads that it starts see it, too. It makes room for a bar.
_TURNING: ContextVar[Status | None] = ContextVar("spinner", default=None)
# A word; a command between backticks is one word, so that no line divides it.
_WORDS = re.compile(r"(?:`[^`]*`|\S)+")
_UNLIMITED = 100_000  # Columns that no table has
_COMMAND = re.compile(r"(?P<prose>.*[:.;] +|\s*)(?P<command>(?:bactrian|pip install|ollama|export) \S.*)")


class PrintableConsole(Console):
    """Writes texts without what steers a terminal: names and replies are of others."""

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield the pieces of what is written; rich calls this for all that it writes."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(to_printable(segment.text), segment.style)

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
    parts = _COMMAND.fullmatch(line.rstrip())
    return (parts["prose"].rstrip(), parts["command"]) if parts else (line, "")


def wrap_words(text: str, width: int) -> Iterator[str]:
    """Yield the lines of ``text``, each at most ``width`` cells wide unless one word is wider."""
    indent = text[: len(text) - len(text.lstrip())]
    line = indent
    for word in _WORDS.findall(text):
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


def open_pager(out: Console) -> AbstractContextManager[object]:
    """Return the pager of the terminal that ``out`` writes to."""
    os.environ.setdefault("LESS", "-FRX")  # colours, and no page for what fits the screen
    return out.pager(styles=not out.no_color)


def open_progress() -> PrintableConsole:
    """Return the console on standard error, for progress and prose."""
    return PrintableConsole(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)


@contextmanager
def show_spinner(console: Console, text: str) -> Generator[None]:
    """Show a spinner within the context."""
    with console.status(Text(text)) as status:
        token = _TURNING.set(status)
        try:
            yield
        finally:
            _TURNING.reset(token)


def hide_spinner() -> None:
    """Take the spinner away, if one is shown, until :func:`return_spinner` is called."""
    if (status := _TURNING.get()) is not None:
        status.stop()


def return_spinner() -> None:
    """Show the spinner again, if there was one."""
    if (status := _TURNING.get()) is not None:
        status.start()


def write_labelled(console: PrintableConsole, facts: Iterable[tuple[str, str]], label_width: int) -> None:
    """Write each fact after its label; on a terminal, longer facts continue below, with the same indent.

    A command at the end of a fact is written on a separate line, uncut, so that it can be copied.
    """
    for label, text in facts:
        begin = label.ljust(label_width)
        if not console.file.isatty():
            console.print(f"{begin}{to_printable(text)}")
            continue
        prose, command = split_command(to_printable(text))
        room = max(console.width - label_width, 10)
        lines = [prose] if cell_len(prose) <= room else list(wrap_words(prose, room))
        for line in lines if prose else [""]:
            console.print(f"{begin}{line}".rstrip())
            begin = " " * label_width
        if command:
            console.print(f"  {command}")


def fit_facts(facts: Iterable[str], width: int) -> list[str]:
    """Return ``facts`` in lines of at most ``width`` cells; a fact that is longer than a line is cut."""
    cut = (
        fact if cell_len(fact) <= width else f"{set_cell_size(fact, width - 1).rstrip()}…" for fact in facts
    )
    return join_facts(cut, width)


def say(text: str) -> None:
    """Write sentences to standard error, as :meth:`PrintableConsole.say` does."""
    sys.stderr.flush()
    open_progress().say(text)
