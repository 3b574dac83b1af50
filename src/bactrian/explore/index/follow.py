"""Builds the side file of one run, and brings it up to date whenever the run is written.

``upkeep.py`` decides in which process.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from bactrian.analyze.processes import map_parts
from bactrian.errors import BactrianError
from bactrian.explore.index.build import IndexBuilder
from bactrian.explore.index.evidence import describe_detectors, search_sessions
from bactrian.explore.index.side import IMPORT_DONE, open_for_building, read_meta, read_signature, write_meta
from bactrian.ingest.importer import ImportReport, find_chats, import_chats
from bactrian.ingest.parsed import Origin
from bactrian.models.pricing import make_pricing
from bactrian.models.wrappers.budget import Price
from bactrian.store import RunReader, open_store

_EVERY = 1.0
"""Seconds between two looks at the run."""
_SOON = 0.1
"""Seconds between two looks at what the search for behaviours may begin with."""
_PART = 50
"""Conversations that a process searches at a time."""
_PASS = 80 * _PART
"""Conversations that are searched before other runs may have the cores."""
_AT_LEAST = 30.0
"""Seconds after which the run is read again, even if its files look unchanged."""


async def follow_run(run: Path, side: Path, goes_on: Callable[[], bool], source: Path | None = None) -> bool:
    """Build the side file ``side`` of ``run`` and keep it up to date, as long as ``goes_on`` returns True.

    Args:
        run: The run.
        side: Its side file.
        goes_on: Is asked at least every second.
        source: Conversations that are imported into the run before.

    Returns:
        False if the run cannot be read; the pages say why.
    """
    while goes_on():
        try:
            with FileLock(f"{side}.lock", blocking=False):
                await _work(run, side, goes_on, source)
        except Timeout:
            await asyncio.sleep(_EVERY)  # Another explorer builds it, and may end before this one.
        except BactrianError:
            return False
    return True


async def _work(run: Path, side: Path, goes_on: Callable[[], bool], source: Path | None) -> None:
    async with open_store(run, read_only=True) as store:
        with closing(open_for_building(side, await _identify(store))) as connection:
            state: dict[str, str] = {}
            async with asyncio.TaskGroup() as tasks:
                # The import writes the run; the index follows it like any other run that is written.
                if source is not None and not read_meta(connection).get("import", "").startswith(IMPORT_DONE):
                    tasks.create_task(_import(source, run, state))
                builder = IndexBuilder(store, connection, make_pricing(None, None), _read_prices(connection))
                following = tasks.create_task(_follow(builder, goes_on, state))
                searching = tasks.create_task(_search(builder))
                await following
                searching.cancel()


async def _import(source: Path, run: Path, state: dict[str, str]) -> None:
    """Import ``source`` into ``run``; ``state`` says how far it is."""

    def tell(report: ImportReport) -> None:
        state["import"] = f"{report.stored + report.already:,} conversations so far"

    async with open_store(run) as store:
        report = await import_chats(store, find_chats(source, None, Origin()), tell)
    state["import"] = f"{IMPORT_DONE}; {report.broken:,} files or lines could not be read"


async def _follow(builder: IndexBuilder, goes_on: Callable[[], bool], state: dict[str, str]) -> None:
    """Add facts and texts as long as ``goes_on`` returns True."""
    store, connection = builder.store, builder.side
    seen, at = "", -_AT_LEAST
    while goes_on():
        signature, age = read_signature(store.path), time.monotonic() - at
        if (signature != seen and age > _EVERY) or age > _AT_LEAST:
            seen, at = signature, time.monotonic()
            await builder.refresh()
            write_meta(connection, {"identity": await _identify(store), "signature": signature, **state})
        more = await builder.step()
        write_meta(
            connection, {"prices": json.dumps({name: _to_list(one) for name, one in builder.prices.items()})}
        )
        if not more:
            await asyncio.sleep(_EVERY)


async def _search(builder: IndexBuilder) -> None:
    """Search for behaviours, where the texts are in the index."""
    signature = describe_detectors()
    if read_meta(builder.side).get("detectors", signature) != signature:
        builder.forget_behaviours()
    write_meta(builder.side, {"detectors": signature})
    while True:
        if builder.has_unread() or not builder.list_unsearched(1):
            await asyncio.sleep(_SOON)
            continue
        with _take_all_cores() as has_all:
            await _search_pass(builder, None if has_all else 1)


async def _search_pass(builder: IndexBuilder, processes: int | None) -> None:
    unsearched = builder.list_unsearched(_PASS if processes is None else _PART)
    ids = list(unsearched)
    parts = [ids[start : start + _PART] for start in range(0, len(ids), _PART)]
    async for searched in map_parts(partial(search_sessions, builder.store.source), parts, processes):
        builder.add_behaviours(searched, unsearched)


@contextmanager
def _take_all_cores() -> Generator[bool]:
    """Provide True if no other process of this kind has all cores: an explorer of ten runs starts ten."""
    folder = user_cache_path("bactrian") / "explore"
    lock = FileLock(folder / "all-cores.lock", blocking=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except (Timeout, OSError):
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _read_prices(connection: sqlite3.Connection) -> dict[str, Price | None]:
    stored: dict[str, list[float] | None] = json.loads(read_meta(connection).get("prices", "{}"))
    return {name: Price(*values) for name, values in stored.items() if values is not None}


def _to_list(price: Price | None) -> list[float | None] | None:
    return None if price is None else [price.prompt, price.completion, price.cached]


async def _identify(store: RunReader) -> str:
    """Return something that differs between runs: the file, and its first session."""
    first = await store.outlines(limit=1)
    return f"{store.path.name} {first[0].id} {first[0].created}" if first else ""
