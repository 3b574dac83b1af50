"""Integrity checks of a run."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, func, select

from bactrian.errors import StoreError
from bactrian.records.session import Session
from bactrian.records.turn import Instruction, Solution
from bactrian.store import schema
from bactrian.store.sqlite.database import (
    check_file,
    close_engine,
    explain_errors,
    log_is_missing,
    open_for_reading,
)
from bactrian.store.sqlite.filesystem import follow_link
from bactrian.store.sqlite.opening import find_readable
from bactrian.store.sqlite.reader import read_session

_MOST = 100
"""Maximum number of faults that SQLite reports."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a verification."""

    sessions: int
    turns: int
    faults: tuple[str, ...]
    """One sentence each; empty if the run is intact."""


def verify(path: Path, on_progress: Callable[[int, int | None], None] | None = None) -> Verification:
    """Verify the run at ``path`` without changing it.

    ``on_progress`` is called with the number of sessions checked, and of those in the run.

    Checks SQLite's structure, the checksum of each turn and its parts, that the turns of each session have no gap and
    match its ending, and the log of a run that was not closed.

    Raises:
        InputError: the run does not exist.
        StoreError: no data is readable.
    """
    path = follow_link(path)
    check_file(path, create=False)
    found: list[tuple[int, list[str]]] = []
    faults = [_MISSING_LOG] if log_is_missing(path) else []
    with find_readable(path) as source:
        reading = open_for_reading(source)
        try:
            with explain_errors(path), reading.connect() as connection:
                faults += _check_structure(connection)
                ids = connection.execute(select(schema.sessions.c.id).order_by(schema.sessions.c.row))
                names = ids.scalars().all()
                for done, session_id in enumerate(names):
                    if on_progress is not None:
                        on_progress(done, len(names))
                    found.append(_check_session(connection, session_id))
        finally:
            close_engine(reading)
    faults += [fault for _, own in found for fault in own]
    return Verification(len(found), sum(turns for turns, _ in found), tuple(faults))


_MISSING_LOG = (
    "The run was not closed, and its log (-wal) is not beside it: what was written last is missing."
)


def _check_structure(connection: Connection) -> list[str]:
    rows = connection.exec_driver_sql(f"PRAGMA integrity_check({_MOST})").scalars().all()
    return [f"SQLite: {row}" for row in rows if row != "ok"]


def _check_session(connection: Connection, session_id: str) -> tuple[int, list[str]]:
    """Return the number of turns of the session, and its faults."""
    count = select(func.count()).select_from(schema.turns).where(schema.turns.c.session == session_id)
    turns = connection.execute(count).scalar_one()
    try:
        session = read_session(connection, session_id)
        assert session is not None
    except StoreError as error:
        return turns, [error.what]
    except (ValueError, TypeError, KeyError, sqlite3.Error):
        return turns, [f"Session {session_id} is damaged: its row cannot be read."]
    return turns, _find_gaps(session) + _find_other_parts(session)


def _find_other_parts(session: Session) -> list[str]:
    """Return the turns whose instruction or solution, stored beside the text without a checksum, is not in the text."""
    return [
        f"Turn {turn.number} of session {session.id} is damaged: its parts do not match its text."
        for turn in session.turns
        if turn.said is not None and not all(_is_part(part, turn.text) for part in _list_parts(turn.said))
    ]


def _is_part(part: str, text: str) -> bool:
    """Return whether ``part`` is in ``text``, whatever white space either has."""
    return part in text or "".join(part.split()) in "".join(text.split())


def _list_parts(said: Instruction | Solution) -> tuple[str, ...]:
    if isinstance(said, Instruction):
        return said.preface, said.instruction, said.input or ""
    return said.preface, said.solution


def _find_gaps(session: Session) -> list[str]:
    have = [turn.number for turn in session.turns]
    counted = session.ending.turn if session.ending else len(have)
    if session.provenance.is_imported:
        # Imported sessions may have gaps: only the last turn must be present.
        if counted > max(have, default=0):
            return [f"Session {session.id} lacks turns: it ends at {max(have, default=0)} of {counted}."]
        return []
    if have != list(range(1, len(have) + 1)) or counted > len(have):
        return [f"Session {session.id} lacks turns: it has {len(have)} of {max([counted, *have])}."]
    return []
