"""A shared run, read: as a store, who works on it, and as a file (``bactrian pull`` and ``push``)."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, LiteralString, TypeVar, cast

from bactrian.errors import InputError
from bactrian.records.run import Command
from bactrian.records.text import write_count
from bactrian.records.turn import Usage
from bactrian.shared.postgres import Server, create_tables, fetch, find_tables, has_tables, translate
from bactrian.store import RunStore, is_run
from bactrian.store.care import verify
from bactrian.store.database import begin_transaction, check_file, connect, explain_errors, mark_closed
from bactrian.store.locations import RunAddress
from bactrian.store.lock import follow_link, lock_run
from bactrian.store.record_tables import COMMANDS, SEALED, compute_seal
from bactrian.store.store import explain_values, read_recipe
from bactrian.store.write import GroupCommit

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


# A shared run as a file, and a file as a shared run.


_SESSIONS_AT_ONCE = 500
_COPY_PATIENCE = 30.0
"""Seconds after which a copy is given up where the connection breaks: the same command goes on with it."""
# The tables whose rows are of a session, and the columns by which a row is known; those of tools are filled later.
_OF_SESSIONS = ("turns", "proposals", "verdicts", "tools")
_KEYS = {
    "run": '"row"',
    "lists": "id",
    "sessions": "id",
    "tools": "session, number, round, place",
    "marks": "session, mark",
}
_SAID = ("confirmations", "marks", "votes")


def pull_run(
    address: RunAddress, path: Path, on_step: Callable[[int, int], object] = lambda _done, _all: None
) -> int:
    """Copy a shared run to the file at ``path``, or what the file lacks of it; return the number of sessions copied.

    The copy is of one moment, and the run goes on meanwhile. A session has turns without gaps, and one that has ended
    does not change, so only the others are read again. ``on_step`` is told the sessions that were read, and all.

    Raises:
        InputError: the database cannot be used, holds no such run, or the file is of another run, or was continued by
            itself.
        StoreError: the file cannot be written.
    """
    server = Server(address, snapshot=True)
    server.open()
    server.give_up(_COPY_PATIENCE)
    with ExitStack() as stack:
        stack.callback(server.close)
        server.transact(lambda connection: find_tables(connection, address))
        path.parent.mkdir(parents=True, exist_ok=True)
        local = stack.enter_context(_open_to_copy(path))

        def pull(connection: psycopg.Connection[Any]) -> int:
            _check_same(connection, local, path)
            with begin_transaction(local):
                for table in ("run", "lists", "commands"):
                    _insert(local, table, _read(connection, table, 'ORDER BY "row"'))
                _insert(local, "calls", _read_new_calls(connection, local))
            ended = {
                each
                for (each,) in local.execute(
                    "SELECT id FROM sessions WHERE ending NOT IN ('failed', 'stopped', 'max_messages')"
                )
            }
            wanted = [each for (each,) in fetch(connection, 'SELECT id FROM sessions ORDER BY "row"')]
            wanted = [each for each in wanted if each not in ended]
            for start in range(0, len(wanted), _SESSIONS_AT_ONCE):
                ids = wanted[start : start + _SESSIONS_AT_ONCE]
                with begin_transaction(local):
                    _insert(
                        local,
                        "sessions",
                        _read(connection, "sessions", 'WHERE id = ANY (%s) ORDER BY "row"', ids),
                    )
                    for table in _OF_SESSIONS:
                        order = 'WHERE session = ANY (%s) ORDER BY session, number, "row"'
                        _insert(local, table, _read(connection, table, order, ids))
                on_step(start + len(ids), len(wanted))
            with begin_transaction(local):
                for table in _SAID:
                    _insert(local, table, _read(connection, table, 'ORDER BY "row"'))
            return len(wanted)

        return server.transact(pull)


def push_run(path: Path, address: RunAddress, done: WorkDone) -> int:
    """Copy the run at ``path`` to a database, where any number of processes continue it; return its sessions.

    ``done`` is what it contains and has cost, which counts for the budget of those processes.

    Raises:
        InputError: the database cannot be used, or holds such a run already; the file is not a run, or is damaged.
        StoreError: the run cannot be read.
    """
    if not is_run(path):
        raise InputError("This file is not a run.", where=str(path), next="Give a run to push.")
    # In a database rows have no checksums, so that nobody could find the damage any more.
    if faults := verify(path).faults:
        raise InputError(
            f"The run is damaged: {write_count(len(faults), 'fault')}.",
            where=str(path),
            next="`bactrian verify` names them. `bactrian recover RUN.db --out NEW.db` saves what is readable.",
        )
    server = Server(address)
    server.open()
    server.give_up(_COPY_PATIENCE)
    with ExitStack() as stack:
        stack.callback(server.close)
        local = stack.enter_context(_open_to_copy(path))
        create_tables(server, address.lease)

        def push(connection: psycopg.Connection[Any]) -> int:
            if fetch(connection, "SELECT FROM run"):
                raise InputError(
                    "The database holds such a run already.",
                    where=str(address),
                    next="Add ?run=NAME to the address, or drop its schema "
                    f"({address.schema}) if the run is not needed.",
                )
            for table in ("run", "lists", "sessions", *_OF_SESSIONS, "calls", "commands", *_SAID):
                columns = ", ".join(f'"{name}"' for name in SEALED[table])
                rows = local.execute(f'SELECT {columns} FROM {table} ORDER BY "row"')  # noqa: S608
                copy = cast("LiteralString", f"COPY {table} ({columns}) FROM STDIN")
                with connection.cursor().copy(copy) as writing:
                    for row in rows:
                        writing.write_row(row)
            sql = f"INSERT INTO workers (name, gone, {SUMS}) VALUES (%s, true, %s, %s, %s, %s, %s, %s, %s)"  # noqa: S608
            connection.execute(sql, (path.name, *done.list_sums()))
            return fetch(connection, "SELECT count(*) FROM sessions")[0][0]

        return server.transact(push, pipelined=False)


def _check_same(connection: psycopg.Connection[Any], local: sqlite3.Connection, path: Path) -> None:
    here = local.execute("SELECT created FROM run").fetchone()
    there = fetch(connection, "SELECT created FROM run")
    has_sessions = local.execute("SELECT count(*) FROM sessions").fetchone()[0]
    if (here and there and here != there[0]) or (has_sessions and not here):
        raise InputError(
            "The file is another run.", where=str(path), next="Give a new file, or delete this one."
        )
    # Its conversations would be mixed with those that the database has since.
    known = set(fetch(connection, "SELECT verb, session, created FROM commands"))
    if not known.issuperset(local.execute("SELECT verb, session, created FROM commands")):
        raise InputError(
            "The file was continued by itself: its run is no copy of this one any more.",
            where=str(path),
            next="Give a new file.",
        )


def _read(
    connection: psycopg.Connection[Any], table: str, rest: str, *values: Sequence[str]
) -> list[tuple[Any, ...]]:
    columns = ", ".join(f'"{name}"' for name in SEALED[table])
    return fetch(connection, f"SELECT {columns} FROM {table} {rest}", values)  # noqa: S608


def _read_new_calls(
    connection: psycopg.Connection[Any], local: sqlite3.Connection
) -> Iterator[tuple[Any, ...]]:
    """Yield the calls that the file lacks. A call has no number of its own, but two took the same time never."""
    names = SEALED["calls"]
    key = [names.index(name) for name in ("session", "agent", "ordinal", "seconds")]
    known = set(local.execute("SELECT session, agent, ordinal, seconds FROM calls"))
    for row in _read(connection, "calls", 'ORDER BY "row"'):
        if tuple(row[place] for place in key) not in known:
            yield row


def _insert(
    local: sqlite3.Connection, table: str, rows: Sequence[tuple[Any, ...]] | Iterator[tuple[Any, ...]]
) -> None:
    """Insert rows of a table into the file, each with its seal; known ones stay, or are brought up to date."""
    names = (*SEALED[table], "seal")
    columns = ", ".join(f'"{name}"' for name in names)
    changes = "NOTHING"
    if key := _KEYS.get(table):
        sets = ", ".join(f'"{name}" = excluded."{name}"' for name in names)
        # An unchanged row is left alone, so that refreshing writes little.
        changes = f"UPDATE SET {sets} WHERE seal IS NOT excluded.seal"
    sql = (
        f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608
        f" ON CONFLICT {f'({key}) ' if key else ''}DO {changes}"
    )
    local.executemany(sql, ((*row, compute_seal(row)) for row in rows))


@contextmanager
def _open_to_copy(path: Path) -> Generator[sqlite3.Connection]:
    """Open a run, which is created if missing, for writing rows as they are.

    Raises:
        StoreError: the run is damaged, in use, or of a later version.
        InputError: it cannot be written.
    """
    file = follow_link(path).absolute()
    check_file(file, create=True)
    with lock_run(file) as lock:
        connection = connect(file)
        try:
            lock.guard_run()
            with explain_errors(path):
                yield connection
        finally:
            mark_closed(connection)  # also where it is refused: nothing is missing
            connection.close()
