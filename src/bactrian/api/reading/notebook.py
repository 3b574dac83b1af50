"""The progress of a run in a notebook."""

from __future__ import annotations

import sys
from collections.abc import Callable
from html import escape
from importlib import import_module
from typing import Any

from bactrian.api.reading.progress_rows import list_rows, write_line
from bactrian.generate.progress import ProgressSnapshot
from bactrian.records.text import to_printable

_BEGIN = "The run begins."


class ShownProgress:
    """The progress of a run at one moment, as a notebook shows it."""

    def __init__(self, now: ProgressSnapshot | None) -> None:
        self._now = now

    def __repr__(self) -> str:
        return _BEGIN if self._now is None else write_line(self._now)

    def _repr_html_(self) -> str:
        now = self._now
        if now is None:
            return f"<div>{_BEGIN}</div>"
        left = ' style="text-align:left"'
        rows = "".join(
            f"<tr><th{left}>{row.label}</th><td{left}>{escape(to_printable(' · '.join(row.facts)))}</td></tr>"
            for row in list_rows(now, ended=now.done >= now.total)
        )
        bar = f'<progress value="{now.share_done:.4f}" aria-label="share of the run"></progress>'
        return f"<div>{now.done:,} of {now.total:,} {bar} {now.share_done:.0%}</div><table>{rows}</table>"


def open_display() -> Callable[[ProgressSnapshot], object] | None:
    """Return a function that shows the progress below the running cell, always in the same place.

    Returns:
        None if this is not a notebook.
    """
    if "IPython" not in sys.modules:
        return None
    shell: Any = import_module("IPython").get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    # Made in the thread of the cell: what another thread shows first may appear below another cell.
    handle: Any = import_module("IPython.display").display(ShownProgress(None), display_id=True)
    return lambda now: handle.update(ShownProgress(now))
