"""Fits facts into the width of a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.cells import cell_len, set_cell_size

_BETWEEN = " · "


def fit_facts(facts: Iterable[str], width: int) -> list[str]:
    """Return ``facts`` in lines of at most ``width`` cells; a fact that is longer than a line is cut."""
    lines: list[str] = []
    for fact in facts:
        line = _BETWEEN.join((lines[-1], fact)) if lines else fact
        if lines and cell_len(line) <= width:
            lines[-1] = line
        else:
            lines.append(fact if cell_len(fact) <= width else f"{set_cell_size(fact, width - 1).rstrip()}…")
    return lines
