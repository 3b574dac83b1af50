"""The one thread that writes a run, and commits whatever has gathered while it committed."""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from sqlalchemy import Connection, Executable
from sqlalchemy.exc import SQLAlchemyError

from bactrian.errors import StoreError
from bactrian.store.sqlite import explained


@dataclass(frozen=True, slots=True)
class _Waiting:
    statement: Executable
    values: dict[str, Any]
    done: asyncio.Future[None]


class Writer:
    """Executes statements on one connection, all that are waiting in one transaction.

    No delay is added to gather more: under load the next group forms while this one goes to disk (group commit).
    The statements of a group are executed in no particular order, so whoever needs one waits for the first.
    """

    def __init__(self, connection: Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()
        self._thread = Thread(target=self._run, name="bactrian-store", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    async def write(self, statement: Executable, values: dict[str, Any]) -> None:
        """Execute ``statement`` with ``values`` in the next transaction. Returns when that is on disk.

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
        done: asyncio.Future[None] = self._loop.create_future()
        self._queue.put(_Waiting(statement, values, done))
        await done

    async def close(self) -> None:
        """Write what is waiting, end the thread and close the connection."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        self._connection.close()

    def _run(self) -> None:
        group: list[_Waiting | None] = []
        while None not in group:
            group = [self._queue.get()]
            while not self._queue.empty():
                group.append(self._queue.get())
            waiting = [one for one in group if one is not None]
            if waiting:
                fault = self._commit(waiting)
                self._loop.call_soon_threadsafe(_tell, waiting, fault)

    def _commit(self, group: list[_Waiting]) -> Exception | None:
        batches: defaultdict[Executable, list[dict[str, Any]]] = defaultdict(list)
        for one in group:
            batches[one.statement].append(one.values)
        try:
            with self._connection.begin():
                for statement, values in batches.items():
                    self._connection.execute(statement, values)
        except (SQLAlchemyError, OSError) as error:
            fault = explained(error, self._path)
            fault.__cause__ = error
            return fault
        return None


def _tell(group: list[_Waiting], fault: Exception | None) -> None:
    for one in group:
        if one.done.cancelled():
            continue
        if fault is None:
            one.done.set_result(None)
        else:
            one.done.set_exception(fault)
