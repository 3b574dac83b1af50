"""A run in a notebook: its progress, its data frames, and the explorer."""

from __future__ import annotations

import subprocess
import sys
import weakref
from collections.abc import AsyncIterator, Callable, Iterable
from html import escape
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bactrian.amounts import write_percent
from bactrian.api.progress_rows import list_rows, write_line
from bactrian.errors import BactrianError, MissingExtra
from bactrian.records.session import Session
from bactrian.records.text import to_printable
from bactrian.runs.progress import ProgressSnapshot
from bactrian.store import open_store
from bactrian.tables.tables import Row, Table, build_schema

if TYPE_CHECKING:
    import polars


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
        return f"<div>{now.done:,} of {now.total:,} {bar} {write_percent(now.share_done, 0)}</div><table>{rows}</table>"


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


# Data frames of a run, for a notebook.


async def read_frame(path: Path, table: Table, rows: Callable[[Session], Iterable[Row]]) -> polars.DataFrame:
    """Return the rows of all sessions in the current state of the run as one data frame.

    Raises:
        MissingExtra: the optional part ``analysis`` is not installed.
        StoreError: the run cannot be read.
    """
    if find_spec("polars") is None:
        raise MissingExtra("analysis", "A run as data frames")
    import polars as pl

    columns = build_schema(table)
    pieces = [pl.DataFrame(schema=columns)]
    async with open_store(path, read_only=True) as store, store.snapshot() as run:
        async for some in _batches(run.sessions()):
            read = [row for session in some for row in rows(session)]
            pieces.append(pl.DataFrame(read, schema=columns, orient="row"))
    return pl.concat(pieces)


async def _batches(sessions: AsyncIterator[Session]) -> AsyncIterator[list[Session]]:
    some: list[Session] = []
    async for session in sessions:
        some.append(session)
        if len(some) == 1000:
            yield some
            some = []
    yield some


# The explorer in a frame.


class ShownExplorer:
    """An explorer of a run, which a notebook shows in a frame. It ends with the kernel, or when it is closed.

    Example:
        >>> with run.explore() as explorer:
        ...     explorer.address.startswith("http://127.0.0.1:")
        True
    """

    def __init__(self, process: subprocess.Popen[str], address: str, height: int) -> None:
        # Its input closes, by which it ends: also if nobody refers to this object any more.
        self._end = weakref.finalize(self, process.communicate)
        self._height = height
        self.address = address
        """Where it is, with a token: for a browser on this computer."""

    def close(self) -> None:
        """End the explorer.

        Example:
            >>> explorer = run.explore()
            >>> explorer.close()
        """
        self._end()

    def __enter__(self) -> ShownExplorer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return self.address

    def _repr_html_(self) -> str:
        address = escape(self.address)
        # A cookie goes to a frame only if its page has the same host, which may be written in two ways.
        script = (
            "const frame = document.currentScript.previousElementSibling;"
            "if (['localhost', '127.0.0.1'].includes(location.hostname))"
            " frame.src = frame.src.replace('127.0.0.1', location.hostname);"
        )
        return (
            f'<iframe src="{address}" title="The explorer" width="100%" height="{self._height}"></iframe>'
            f"<script>{script}</script>"
            f'<div><a href="{address}" target="_blank">Open the explorer in a tab</a></div>'
        )


def open_explorer(run: Path, *, edit: bool, height: int) -> ShownExplorer:
    """Start an explorer of a run in a process of its own, and return it when it answers.

    Raises:
        MissingExtra: the optional part ``explore`` is not installed.
        BactrianError: it cannot start.
    """
    if find_spec("starlette") is None:
        raise MissingExtra("explore", "The explorer")
    module = "bactrian.explore.notebook_server"
    process = subprocess.Popen(  # noqa: S603  this program itself
        [sys.executable, "-P", "-m", module, str(run.absolute()), *(["--edit"] if edit else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Interrupting a cell does not end it.
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    if not address:
        _, problem = process.communicate()
        raise BactrianError(
            f"The explorer did not start: {to_printable(problem.strip()[-500:])}", where=str(run)
        )
    return ShownExplorer(process, address, height)
