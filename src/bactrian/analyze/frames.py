"""Data frames of a run, for a notebook."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from bactrian.errors import MissingExtra
from bactrian.records.session import Session
from bactrian.store import open_store
from bactrian.tables.tables import Row, Table, build_schema

if TYPE_CHECKING:
    import polars


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
            found = [row for session in some for row in rows(session)]
            pieces.append(pl.DataFrame(found, schema=columns, orient="row"))
    return pl.concat(pieces)


async def _batches(sessions: AsyncIterator[Session]) -> AsyncIterator[list[Session]]:
    some: list[Session] = []
    async for session in sessions:
        some.append(session)
        if len(some) == 1000:
            yield some
            some = []
    yield some
