"""Tables of text that stay readable where the terminal is too narrow for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from bactrian.language.escape import to_line

if TYPE_CHECKING:
    from rich.console import Console

_BETWEEN = " · "
_PADDING = 3
"""Cells between two columns."""


def write_table(console: Console, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a table.

    On a terminal without room for it, write each row as its name and, below it, its other cells with their heads.
    """
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    cells = [tuple(map(to_line, row)) for row in rows]
    columns = [[head, *(row[number] for row in cells)] for number, head in enumerate(heads)]
    widths = [max(map(cell_len, column)) for column in columns]
    if console.is_terminal and sum(widths) + _PADDING * len(widths) > console.width:
        # Narrower by the heads, whose words can stand below each other; the cells stay whole.
        widths = [max(map(cell_len, (*head.split(), *rest))) for head, *rest in columns]
    for number, (head, wide) in enumerate(zip(heads, widths, strict=True)):
        side = "left" if number == 0 else "right"
        table.add_column(head, justify=side, no_wrap=number == 0, min_width=wide, max_width=wide)
    for row in cells:
        table.add_row(*row)
    needed = sum(widths) + _PADDING * len(widths)
    if not console.is_terminal:
        # A file or a pipe has no width of its own, and rich would cut the table at 80 cells.
        console.width = max(console.width, needed)
    if needed <= console.width:
        console.print(table, soft_wrap=False)
        return
    console.print(f"\n{heads[0]}", style="dim")
    for row in cells:
        console.print(row[0], style="bold")
        named = (f"{head} {cell}".strip() for head, cell in zip(heads[1:], row[1:], strict=True) if cell)
        for line in join_facts(named, console.width - 2):
            console.print(f"  {line}", soft_wrap=False)


def write_sentence(console: Console, text: str) -> None:
    """Write a line of text; on a terminal it breaks between words."""
    console.print(text, soft_wrap=not console.is_terminal)


def join_facts(facts: Iterable[str], width: int) -> list[str]:
    """Return ``facts`` in lines of at most ``width`` cells; only a fact that is longer than a line exceeds it."""
    from rich.cells import cell_len

    lines: list[str] = []
    for fact in facts:
        line = _BETWEEN.join((lines[-1], fact)) if lines else fact
        if lines and cell_len(line) <= width:
            lines[-1] = line
        else:
            lines.append(fact)
    return lines
