"""A run as data frames, for a notebook."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bactrian.analyze.behaviours.catalogue import find_behaviours
from bactrian.errors import MissingExtra
from bactrian.records.session import Session
from bactrian.store import open_store
from bactrian.tables.tables import (
    FINDINGS,
    MESSAGES,
    SESSIONS,
    Row,
    Table,
    build_schema,
    make_finding_row,
    make_message_rows,
    make_session_row,
)

if TYPE_CHECKING:
    import polars

_Result = TypeVar("_Result")


class Run:
    """A run to read. Each call reads what is in it at that moment."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def sessions(self) -> polars.DataFrame:
        """A row for each session: who takes part, what they work on, how it ended, what it used.

        Raises:
            StoreError: the run cannot be read.
        """
        name = self.path.stem
        return self._frame(SESSIONS, lambda session: (make_session_row(session, name),))

    def messages(self) -> polars.DataFrame:
        """A row for each turn. Raises what :meth:`sessions` raises."""
        name = self.path.stem
        return self._frame(MESSAGES, lambda session: make_message_rows(session, name))

    def findings(self) -> polars.DataFrame:
        """A row for each behaviour that a turn shows. Raises what :meth:`sessions` raises."""
        name = self.path.stem
        return self._frame(
            FINDINGS,
            lambda session: (make_finding_row(session, found, name) for found in find_behaviours(session)),
        )

    def _frame(self, table: Table, rows: Callable[[Session], Iterable[Row]]) -> polars.DataFrame:
        import polars as pl

        columns = build_schema(table)

        async def frame() -> polars.DataFrame:
            pieces = [pl.DataFrame(schema=columns)]
            async with open_store(self.path, read_only=True) as store, store.snapshot() as run:
                async for some in _batches(run.sessions()):
                    found = [row for session in some for row in rows(session)]
                    pieces.append(pl.DataFrame(found, schema=columns, orient="row"))
            return pl.concat(pieces)

        return _wait(frame())


def open_run(path: str | Path) -> Run:
    """Open the run at ``path``, to read it; it may be written by another process at the same time.

    Raises:
        InputError: there is no run.
        MissingExtra: the optional part ``analysis`` is not installed.
        StoreError: it is damaged, or of a newer version of this program.
    """
    if find_spec("polars") is None:
        raise MissingExtra("analysis", "A run as data frames")
    run = Run(Path(path))
    _wait(_opened(run.path))
    return run


async def _opened(path: Path) -> None:
    async with open_store(path, read_only=True):
        pass


async def _batches(sessions: AsyncIterator[Session]) -> AsyncIterator[list[Session]]:
    some: list[Session] = []
    async for session in sessions:
        some.append(session)
        if len(some) == 1000:
            yield some
            some = []
    yield some


def _wait(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run ``work`` in a thread of its own: a notebook has an event loop in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
