"""Facts, with labels and without, for any width of terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.cells import cell_len, set_cell_size

from bactrian.cli.terminal.console import PrintableConsole, split_command, wrap_words
from bactrian.records.text import join_facts, to_printable

LEAST_TABLE = 72
"""Columns below which a line per thing has no room; each then takes several lines."""


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
    return join_facts((_cut(fact, width) for fact in facts), width)


def _cut(fact: str, width: int) -> str:
    return fact if cell_len(fact) <= width else f"{set_cell_size(fact, width - 1).rstrip()}…"
