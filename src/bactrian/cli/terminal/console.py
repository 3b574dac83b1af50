"""The two consoles: data and progress."""

from __future__ import annotations

from rich.console import Console

from bactrian.records.text import to_printable

__all__ = ["open_output", "open_progress", "to_printable"]


def open_output() -> Console:
    """Return the console on standard output, for data. Colour only on a terminal."""
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True)


def open_progress() -> Console:
    """Return the console on standard error, for progress and prose."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
