"""Group commit: one thread writes all statements that arrived during the previous commit; and reading connections."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, Protocol

from bactrian.errors import StoreError
from bactrian.records.session import Session
from bactrian.records.turn import Turn, Use
from bactrian.store import record_tables as tables
from bactrian.store.database import count_rows, explain_error, mark_closed, open_for_reading

# The connections of the threads that read a run, and how they read a session.


Connection = sqlite3.Connection

SELECT_SESSIONS = (
    f"SELECT {tables.quote_names(('row', *tables.SESSIONS.names, *tables.ENDINGS.names))} FROM sessions"  # noqa: S608
)
_USE = tables.quote_names((*tables.TOOL_CALLS.names, *tables.TOOL_RESULTS.names))
# Connections that are kept for the next read.
_MOST_IDLE = 5
_MOST_TURNS = 1 << 31


class Connections:
    """Read-only connections to the run at ``path``: each thread that reads has one for itself."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._idle: list[Connection] = []
        self._closed = False

    @contextmanager
    def borrow(self) -> Generator[Connection]:
        """Provide a connection that no other thread uses."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = open_for_reading(self.path)
        try:
            yield connection
        finally:
            self._idle.append(connection)
            self._close_idle(0 if self._closed else _MOST_IDLE)

    def close(self) -> None:
        """Close the connections: idle ones now, and those of cancelled reads when their threads end."""
        self._closed = True
        self._close_idle(0)

    def _close_idle(self, most: int) -> None:
        # Taking a connection from the list is atomic, so that two threads never close or use the same one.
        while len(self._idle) > most:
            try:
                self._idle.pop().close()
            except IndexError:
                return


class Snapshot(Connections):
    """The one connection of a snapshot, which threads use in turn: one transaction, and thus one state of the run."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._turn = Lock()

    @contextmanager
    def borrow(self) -> Generator[Connection]:
        """Provide the connection as soon as no other thread uses it."""
        with self._turn:
            if not self._idle and not self._closed:
                self._idle.append(open_for_reading(self.path))
                self._idle[0].execute("BEGIN")
            with super().borrow() as connection:
                yield connection

    def close(self) -> None:
        """End the snapshot as soon as no other thread reads it."""
        with self._turn:
            super().close()


def fetch(connection: Connection, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return the rows of a query, all at once: a record that cannot be read leaves no query open, which would keep
    the log from being cleaned up."""
    return connection.execute(sql, values).fetchall()


def read_session(connection: Connection, session_id: str) -> Session | None:
    """Return the session with this id and its stored turns; None if not found.

    Raises:
        StoreError: the text of a turn does not match its checksum.
    """
    row = connection.execute(f"{SELECT_SESSIONS} WHERE id = ?", (session_id,)).fetchone()
    return None if row is None else read_session_row(connection, row[1:])


def read_session_row(connection: Connection, row: Sequence[Any]) -> Session:
    """Return the session of a row of :data:`SELECT_SESSIONS`, without the number of the row, and its turns."""
    width = len(tables.SESSIONS.names)
    session = tables.SESSIONS.read(row)
    ending = None if row[width] is None else tables.ENDINGS.read(row[width:])
    query = tables.TURNS.select("WHERE session = ? ORDER BY number")
    turns = tuple(_read_turn(session.id, row) for row in fetch(connection, query, (session.id,)))
    session = replace(session, turns=turns, ending=ending)
    if not session.provenance.tools:
        return session
    uses: defaultdict[int, list[Use]] = defaultdict(list)
    query = f"SELECT {_USE} FROM tools WHERE session = ? ORDER BY number, round, place"  # noqa: S608
    for values in connection.execute(query, (session.id,)):
        call, result = tables.TOOL_CALLS.read(values), values[len(tables.TOOL_CALLS.names) :]
        has_result = result[tables.TOOL_RESULTS.names.index("result")] is not None
        uses[call.number].append(Use(call, tables.TOOL_RESULTS.read(result) if has_result else None))
    turns = tuple(replace(turn, uses=tuple(uses[turn.number])) for turn in turns)
    return replace(session, turns=turns, pending=tuple(uses[len(turns) + 1]))


_TEXT, _CHECKSUM = tables.TURNS.names.index("text"), tables.TURNS.names.index("checksum")


def _read_turn(session: str, row: Sequence[Any]) -> Turn:
    turn = tables.TURNS.read(row)
    if not 0 < turn.number < _MOST_TURNS:
        raise ValueError(f"the number {turn.number} of a turn of session {session}")
    if tables.compute_checksum(row[_TEXT]) != row[_CHECKSUM]:
        raise StoreError(
            f"Turn {turn.number} of session {session} is damaged: its text does not match its checksum.",
            next="Save what is readable: bactrian recover RUN --out NEW.db",
        )
    return turn


# Group commit: one thread writes all statements that arrived during the previous commit.


WRITER_THREAD = "bactrian-store"
"""The name of the thread that writes a run to the disk; ``cli/terminal/process.py`` waits for it."""
# Between two updates of the totals: with each commit, they would cost 5 % of a call's CPU.
_COUNT_SECONDS = 1.0


class RowWriter(Protocol):
    """Writes rows of a run."""

    def write(self, statement: tables.Statement, row: tuple[Any, ...]) -> asyncio.Future[bool]:
        """Execute ``statement`` with the values of ``row``; see :meth:`GroupCommit.write`."""
        ...


@dataclass(frozen=True, slots=True)
class Write:
    """A row that waits to be written."""

    statement: tables.Statement
    values: tuple[Any, ...]
    done: asyncio.Future[bool]


class GroupCommit(ABC):
    """Executes statements, all waiting ones in one transaction (group commit).

    While one group is written to disk, the next one accumulates. The thread takes it without involving the event loop,
    which may be busy; they synchronize twice per group, not per row.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()
        self._waiting: SimpleQueue[Write | None] = SimpleQueue()
        self._thread: Thread | None = None

    @abstractmethod
    def commit(
        self, rows: Mapping[tables.Statement, Sequence[tuple[Any, ...]]]
    ) -> Mapping[tables.Statement, bool]:
        """Write the rows of each statement, in this order; return for each whether all its rows were new.

        Raises:
            StoreError: nothing was written.
        """

    @abstractmethod
    def finish(self) -> None:
        """Close the connection, after the last commit."""

    def write(self, statement: tables.Statement, row: tuple[Any, ...]) -> asyncio.Future[bool]:
        """Execute ``statement`` with the values of ``row`` in the next transaction.

        The future is done when the row is on disk. Its result is False if a row of the same statement and group existed
        before, and True if all were new. Cancelling the caller does not cancel the statement.

        Raises:
            StoreError: the whole group was not written.
        """
        if os.getpid() != self._process:
            raise StoreError(
                "The run was opened by another process, before a fork.",
                where=self._where,
                next="Open it in the process that uses it.",
            )
        done: asyncio.Future[bool] = self._loop.create_future()
        self._waiting.put(Write(statement, row, done))
        if self._thread is None:
            self._thread = Thread(target=self._work, name=WRITER_THREAD, daemon=True)
            self._thread.start()
        return done

    @property
    def has_written(self) -> bool:
        """True if anything was to be written."""
        return self._thread is not None

    async def close(self) -> None:
        """Write what is waiting, end the thread and close the connection."""
        if self._thread is None:
            self.finish()
        else:  # The thread closes the connection, although this call may be cancelled.
            self._waiting.put(None)
            await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        """Commit group after group until the end of the queue. Runs in the thread."""
        going = True
        while going and (first := self._waiting.get()) is not None:
            group = [first]
            with suppress(Empty):
                while (write := self._waiting.get_nowait()) is not None:
                    group.append(write)
                going = False
            rows: defaultdict[tables.Statement, list[tuple[Any, ...]]] = defaultdict(list)
            for write in group:
                rows[write.statement].append(write.values)
            ordered = {statement: rows[statement] for statement in sorted(rows, key=lambda each: each.rank)}
            try:
                outcome = self.commit(ordered)
            except Exception as fault:  # noqa: BLE001  the waiting callers receive it
                outcome = fault
            with suppress(RuntimeError):  # The event loop has ended, and nobody waits.
                self._loop.call_soon_threadsafe(_tell, group, outcome)
        self.finish()


class Writer(GroupCommit):
    """Writes to an SQLite file. Before each group, ``check`` raises StoreError if it must no longer be written."""

    def __init__(self, connection: sqlite3.Connection, path: Path, check: Callable[[], None]) -> None:
        super().__init__(str(path))
        self._connection = connection
        self._path = path
        self._check = check
        self._counted = time.monotonic()

    def finish(self) -> None:
        """Mark the run as closed, and close the connection."""
        with suppress(StoreError):  # else another process writes it, and closes it
            self._check()
            mark_closed(self._connection)
        self._connection.close()

    def commit(
        self, rows: Mapping[tables.Statement, Sequence[tuple[Any, ...]]]
    ) -> Mapping[tables.Statement, bool]:
        """Write a group; return for each statement whether all its rows were new."""
        self._check()
        connection = self._connection
        new: dict[tables.Statement, bool] = {}
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                for statement, values in rows.items():
                    batches = statement.batches(values)
                    new[statement] = sum(connection.execute(*batch).rowcount for batch in batches) == len(
                        values
                    )
                if time.monotonic() - self._counted > _COUNT_SECONDS:
                    count_rows(connection)
                    self._counted = time.monotonic()
                connection.execute("COMMIT")
            except BaseException:
                connection.rollback()
                raise
        except (sqlite3.Error, OSError) as error:
            needed = sum(
                len(str(value).encode(errors="replace"))
                for each in rows.values()
                for row in each
                for value in row
            )
            raise explain_error(error, self._path, needed=needed) from error
        return new


def _tell(group: Sequence[Write], outcome: Mapping[tables.Statement, bool] | Exception) -> None:
    for write in group:
        if write.done.cancelled():
            continue
        if isinstance(outcome, Exception):
            write.done.set_exception(outcome)
        else:
            write.done.set_result(outcome[write.statement])
