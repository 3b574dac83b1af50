"""Writing a run: one thread commits whatever has gathered while it committed."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from bactrian.errors import StoreError
from bactrian.store.sqlite import explained, mark_closed
from bactrian.store.statements import Statement

_GATHER = 0.002
"""Seconds to wait for company after the first write: a group costs the event loop about as much as ten rows."""


@dataclass(frozen=True, slots=True)
class _Write:
    statement: Statement
    values: tuple[Any, ...]
    done: asyncio.Future[bool]


class Writer:
    """Executes statements on one connection, all that are waiting in one transaction (group commit).

    While one group goes to disk the next one gathers. The event loop and the thread meet twice for each group, not
    for each row: when it is handed over and when it is done.
    """

    def __init__(self, connection: Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()
        self._waiting: list[_Write] = []
        self._idle = asyncio.Event()
        self._idle.set()
        self._thread = ThreadPoolExecutor(1, "bactrian-store")

    async def write(self, statement: Statement, values: Mapping[str, Any]) -> bool:
        """Execute ``statement`` with ``values`` in the next transaction. Returns when that is on disk.

        Gives False if a row of the same statement and group was there before, and True if all were new.
        A caller that is cancelled while it waits has its statement executed all the same.

        Raises:
            StoreError: it is not written, nor is anything else of its group.
        """
        if os.getpid() != self._process:
            raise StoreError(
                "The run was opened by another process, before a fork.",
                where=str(self._path),
                next="Open it in the process that uses it.",
            )
        done: asyncio.Future[bool] = self._loop.create_future()
        self._waiting.append(_Write(statement, statement.values(values), done))
        if self._idle.is_set():
            self._idle.clear()
            self._loop.call_later(_GATHER, self._hand_over)
        return await done

    async def close(self) -> None:
        """Write what is waiting, end the thread and close the connection."""
        await self._idle.wait()
        self._thread.shutdown()
        mark_closed(self._connection)
        self._connection.close()
        self._connection.engine.dispose()  # else its pool would keep the file open, and the log beside it

    def _hand_over(self) -> None:
        group, self._waiting = self._waiting, []
        committed = self._thread.submit(self._commit, group)
        committed.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._tell, group, committed))

    def _tell(self, group: list[_Write], committed: Future[dict[Statement, bool]]) -> None:
        if self._waiting:
            self._hand_over()
        else:
            self._idle.set()
        fault = committed.exception()
        for one in group:
            if one.done.cancelled():
                continue
            if fault is None:
                one.done.set_result(committed.result()[one.statement])
            else:
                one.done.set_exception(fault)

    def _commit(self, group: Sequence[_Write]) -> dict[Statement, bool]:
        """Write a group. Gives for each statement whether all its rows were new."""
        rows: defaultdict[Statement, list[tuple[Any, ...]]] = defaultdict(list)
        for one in group:
            rows[one.statement].append(one.values)
        connection = self._connection.connection.driver_connection
        assert isinstance(connection, sqlite3.Connection)
        new: dict[Statement, bool] = {}
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                for statement in sorted(rows, key=lambda statement: statement.place):
                    batches = statement.batches(rows[statement])
                    written = sum(connection.execute(sql, values).rowcount for sql, values in batches)
                    new[statement] = written == len(rows[statement])
                connection.execute("COMMIT")
            except BaseException:
                connection.rollback()
                raise
        except (sqlite3.Error, OSError) as error:
            needed = sum(len(str(value).encode(errors="replace")) for one in group for value in one.values)
            raise explained(error, self._path, needed=needed) from error
        return new
