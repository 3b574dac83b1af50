"""A shared run as a store, and who works on it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from bactrian.records.run import Command
from bactrian.records.turn import Usage
from bactrian.shared.postgres import Server, fetch, find_tables, has_tables, translate
from bactrian.store import GroupCommit, RunAddress, RunStore, explain_values, read_recipe
from bactrian.store.record_tables import COMMANDS

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")
_PATIENCE = 5.0
_WORKERS = """
SELECT name, CASE WHEN dead THEN 'lost' WHEN gone THEN 'left'
        WHEN seen < clock_timestamp() - lease * interval '1 second' THEN 'silent' ELSE 'working' END,
    extract(epoch FROM clock_timestamp() - seen)::float, lease,
    (SELECT coalesce(sum(stop - start), 0)::bigint FROM claims WHERE worker = id AND state = 'playing'),
    in_flight, calls, usd
FROM workers, frontier ORDER BY id
"""


SUMS = "calls, prompt_tokens, completion_tokens, cached_tokens, usd, in_flight, endings"
"""The columns of a worker that say what it has done."""


@dataclass(frozen=True, slots=True)
class WorkDone:
    """What processes of a run have done and paid for."""

    usage: Usage = Usage()
    usd: float = 0.0
    calls: int = 0
    endings: Counter[str] = field(default_factory=Counter[str])
    in_flight: int = 0

    def list_sums(self) -> tuple[Any, ...]:
        """Return the values of :data:`SUMS`."""
        used, endings = self.usage, json.dumps({code: count for code, count in self.endings.items() if count})
        return self.calls, used.prompt, used.completion, used.cached, self.usd, self.in_flight, endings


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A process that makes a shared run, or did."""

    name: str
    """Computer and process, or the file that was pushed."""
    state: str
    """``working``; ``silent`` beyond its lease; ``lost`` if others took over its jobs; ``left`` if it ended."""
    silent: float
    """Seconds since its last sign of life."""
    lease: float
    """Seconds of silence after which others take over its jobs."""
    claimed: int
    """Jobs that nobody else plays."""
    in_flight: int
    """Conversations that it plays at the moment."""
    calls: int
    usd: float


class _Reading:
    """Looks to the methods of a store like a connection to SQLite."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def execute(self, sql: str, values: Sequence[Any] = ()) -> psycopg.Cursor[Any]:
        return self._connection.execute(translate(sql), values)


class SharedStore(RunStore):
    """A shared run, with the methods that a worker and `status` need; others read a pulled copy."""

    def __init__(self, copy: Path, reading: Server, writer: GroupCommit | None = None) -> None:
        self.path = copy
        self._server = reading
        self._writer = writer

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[RunStore]:
        """Provide the run: a reader's transaction is a snapshot, and a worker's queries read the run as it is then."""
        yield self

    async def _read(self, function: Callable[..., T], *values: Any) -> T:
        def work(connection: psycopg.Connection[Any]) -> T:
            return function(cast("Any", _Reading(connection)), *values)

        return await asyncio.to_thread(self._server.transact, work)


@asynccontextmanager
async def open_reader(
    address: RunAddress, copy: Path
) -> AsyncGenerator[tuple[RunStore, Sequence[WorkerState]]]:
    """Open the run at ``address`` to read its present state where it is, and list who works on it.

    Raises:
        InputError: the database cannot be used, holds no such run, or one of another version of the program.
    """
    server = Server(address, snapshot=True)
    await asyncio.to_thread(server.open)
    server.give_up(_PATIENCE)

    def look(connection: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
        find_tables(connection, address)
        return fetch(connection, _WORKERS)

    try:
        await asyncio.to_thread(server.hold)
        rows = await asyncio.to_thread(server.transact, look)
        yield SharedStore(copy, server), [WorkerState(*row) for row in rows]
    finally:
        server.close()


def read_shared_making(address: RunAddress) -> tuple[list[Command], dict[str, Any] | None]:
    """Return the commands that worked on a run, and what it is made from, as `read_making` does; nothing if it is new.

    Raises:
        InputError: the database cannot be used, or the run is of another version of the program.
    """

    def read(connection: psycopg.Connection[Any]) -> tuple[list[Command], dict[str, Any] | None]:
        if not has_tables(connection):
            return [], None
        find_tables(connection, address)
        commands = fetch(connection, COMMANDS.select('ORDER BY "row"'))
        frozen = fetch(connection, "SELECT recipe FROM run")
        with explain_values():
            return list(map(COMMANDS.read, commands)), read_recipe(frozen[0][0]) if frozen else None

    server = Server(address)
    server.open()
    server.give_up(_PATIENCE)
    try:
        return server.transact(read)
    finally:
        server.close()
