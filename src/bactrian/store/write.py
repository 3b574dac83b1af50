"""Group commit: one thread writes all statements that arrived during the previous commit."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Protocol

from bactrian.errors import StoreError
from bactrian.store.database import count_rows, explain_error, mark_closed
from bactrian.store.record_tables import Statement

WRITER_THREAD = "bactrian-store"
"""The name of the thread that writes a run to the disk; ``cli/terminal/process.py`` waits for it."""
# Between two updates of the totals: with each commit, they would cost 5 % of a call's CPU.
_COUNT_SECONDS = 1.0


class RowWriter(Protocol):
    """Writes rows of a run."""

    def write(self, statement: Statement, row: tuple[Any, ...]) -> asyncio.Future[bool]:
        """Execute ``statement`` with the values of ``row``; see :meth:`GroupCommit.write`."""
        ...


@dataclass(frozen=True, slots=True)
class Write:
    """A row that waits to be written."""

    statement: Statement
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
    def commit(self, rows: Mapping[Statement, Sequence[tuple[Any, ...]]]) -> Mapping[Statement, bool]:
        """Write the rows of each statement, in this order; return for each whether all its rows were new.

        Raises:
            StoreError: nothing was written.
        """

    @abstractmethod
    def finish(self) -> None:
        """Close the connection, after the last commit."""

    def write(self, statement: Statement, row: tuple[Any, ...]) -> asyncio.Future[bool]:
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
        if self._thread is not None:
            self._waiting.put(None)
            await asyncio.to_thread(self._thread.join)
        self.finish()

    def _work(self) -> None:
        """Commit group after group until the end of the queue. Runs in the thread."""
        going = True
        while going and (first := self._waiting.get()) is not None:
            group = [first]
            with suppress(Empty):
                while (write := self._waiting.get_nowait()) is not None:
                    group.append(write)
                going = False
            rows: defaultdict[Statement, list[tuple[Any, ...]]] = defaultdict(list)
            for write in group:
                rows[write.statement].append(write.values)
            ordered = {statement: rows[statement] for statement in sorted(rows, key=lambda each: each.rank)}
            try:
                outcome = self.commit(ordered)
            except Exception as fault:  # noqa: BLE001  the waiting callers receive it
                outcome = fault
            self._loop.call_soon_threadsafe(_tell, group, outcome)


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

    def commit(self, rows: Mapping[Statement, Sequence[tuple[Any, ...]]]) -> Mapping[Statement, bool]:
        """Write a group; return for each statement whether all its rows were new."""
        self._check()
        connection = self._connection
        new: dict[Statement, bool] = {}
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


def _tell(group: Sequence[Write], outcome: Mapping[Statement, bool] | Exception) -> None:
    for write in group:
        if write.done.cancelled():
            continue
        if isinstance(outcome, Exception):
            write.done.set_exception(outcome)
        else:
            write.done.set_result(outcome[write.statement])
