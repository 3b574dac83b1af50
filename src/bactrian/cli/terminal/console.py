"""The two consoles: data and progress."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from bactrian.language.escape import to_printable

__all__ = ["open_output", "open_progress", "to_printable"]


class PrintableConsole(Console):
    """Writes texts without what steers a terminal, also in tables: names and replies are of others."""

    def render_str(self, text: str, **style: Any) -> Text:
        """Return ``text`` as rich's own text; rich calls this for every string that it writes."""
        return super().render_str(to_printable(text), **style)


def open_output() -> Console:
    """Return the console on standard output, for data. Colour only on a terminal."""
    return PrintableConsole(highlight=False, markup=False, emoji=False, soft_wrap=True)


def open_progress() -> Console:
    """Return the console on standard error, for progress and prose."""
    return PrintableConsole(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
