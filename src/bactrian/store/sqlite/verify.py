"""Whether a run still holds what was written."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, func, select

from bactrian.errors import StoreError
from bactrian.records.session import Session
from bactrian.store import schema
from bactrian.store.sqlite.database import check_file, explain_errors, log_is_missing, open_for_reading
from bactrian.store.sqlite.filesystem import follow_link
from bactrian.store.sqlite.opening import check_version
from bactrian.store.sqlite.reader import read_session

_MOST = 100
"""Faults that SQLite is asked to name."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found in a run."""

    sessions: int
    turns: int
    faults: tuple[str, ...]
    """One sentence each; none if the run is as it was written."""


def verify(path: Path) -> Verification:
    """Read all of the run at ``path`` and compare it with what it says of itself. Changes nothing.

    SQLite's own structure, each turn's checksum, each session's turns without a gap and as many as its ending
    counted, and the log of a run that was not closed.

    Raises:
        InputError: there is no run.
        StoreError: nothing of it can be read.
    """
    path = follow_link(path)
    check_file(path, create=False)
    faults = [_MISSING_LOG] if log_is_missing(path) else []
    reading = open_for_reading(path)
    try:
        check_version(reading, path)
        with explain_errors(path), reading.connect() as connection:
            faults += _structure(connection)
            ids = (
                connection.execute(select(schema.sessions.c.id).order_by(schema.sessions.c.row))
                .scalars()
                .all()
            )
            found = [_session_faults(connection, session_id) for session_id in ids]
    finally:
        reading.dispose()
    faults += [fault for _, own in found for fault in own]
    return Verification(len(found), sum(turns for turns, _ in found), tuple(faults))


_MISSING_LOG = (
    "The run was not closed, and its log (-wal) is not beside it: what was written last is missing."
)


def _structure(connection: Connection) -> list[str]:
    rows = connection.exec_driver_sql(f"PRAGMA integrity_check({_MOST})").scalars().all()
    return [f"SQLite: {row}" for row in rows if row != "ok"]


def _session_faults(connection: Connection, session_id: str) -> tuple[int, list[str]]:
    """Turns of the session, and what is wrong with it."""
    count = select(func.count()).select_from(schema.turns).where(schema.turns.c.session == session_id)
    turns = connection.execute(count).scalar_one()
    try:
        session = read_session(connection, session_id)
        assert session is not None
    except StoreError as error:
        return turns, [error.what]
    except (ValueError, TypeError, KeyError, sqlite3.Error):
        return turns, [f"Session {session_id} is damaged: its row cannot be read."]
    return turns, _gaps(session)


def _gaps(session: Session) -> list[str]:
    have = [turn.number for turn in session.turns]
    counted = session.ending.turn if session.ending else len(have)
    if session.provenance.is_imported:
        # Others' files have gaps of their own: what counts is that the last turn is there.
        if counted > max(have, default=0):
            return [f"Session {session.id} lacks turns: it ends at {max(have, default=0)} of {counted}."]
        return []
    if have != list(range(1, len(have) + 1)) or counted > len(have):
        return [f"Session {session.id} lacks turns: it has {len(have)} of {max([counted, *have])}."]
    return []
