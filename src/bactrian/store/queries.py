"""The connections of the threads that read a run, and how they read a session."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

from bactrian.errors import StoreError
from bactrian.records.session import Session
from bactrian.records.turn import Turn, Use
from bactrian.store.database import open_for_reading
from bactrian.store.record_tables import (
    ENDINGS,
    SESSIONS,
    TOOL_CALLS,
    TOOL_RESULTS,
    TURNS,
    compute_checksum,
    quote_names,
)

Connection = sqlite3.Connection

SELECT_SESSIONS = f"SELECT {quote_names(('row', *SESSIONS.names, *ENDINGS.names))} FROM sessions"  # noqa: S608
_USE = quote_names((*TOOL_CALLS.names, *TOOL_RESULTS.names))
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
    width = len(SESSIONS.names)
    session = SESSIONS.read(row)
    ending = None if row[width] is None else ENDINGS.read(row[width:])
    query = TURNS.select("WHERE session = ? ORDER BY number")
    turns = tuple(_read_turn(session.id, row) for row in fetch(connection, query, (session.id,)))
    session = replace(session, turns=turns, ending=ending)
    if not session.provenance.tools:
        return session
    uses: defaultdict[int, list[Use]] = defaultdict(list)
    query = f"SELECT {_USE} FROM tools WHERE session = ? ORDER BY number, round, place"  # noqa: S608
    for values in connection.execute(query, (session.id,)):
        call, result = TOOL_CALLS.read(values), values[len(TOOL_CALLS.names) :]
        has_result = result[TOOL_RESULTS.names.index("result")] is not None
        uses[call.number].append(Use(call, TOOL_RESULTS.read(result) if has_result else None))
    turns = tuple(replace(turn, uses=tuple(uses[turn.number])) for turn in turns)
    return replace(session, turns=turns, pending=tuple(uses[len(turns) + 1]))


_TEXT, _CHECKSUM = TURNS.names.index("text"), TURNS.names.index("checksum")


def _read_turn(session: str, row: Sequence[Any]) -> Turn:
    turn = TURNS.read(row)
    if not 0 < turn.number < _MOST_TURNS:
        raise ValueError(f"the number {turn.number} of a turn of session {session}")
    if compute_checksum(row[_TEXT]) != row[_CHECKSUM]:
        raise StoreError(
            f"Turn {turn.number} of session {session} is damaged: its text does not match its checksum.",
            next="Recover the readable data: bactrian recover RUN --out NEW.db",
        )
    return turn
