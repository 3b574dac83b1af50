"""Blocking queries of a run, and the connections of the threads that make them."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any, cast

from pydantic_core import from_json

from bactrian.errors import StoreError
from bactrian.records.run import Failure, Outline, SpokenText
from bactrian.records.session import Session, infer_kind
from bactrian.records.turn import Deliberation, Turn, Usage, Use
from bactrian.store.database import open_for_reading
from bactrian.store.record_tables import (
    DECISIONS,
    ENDINGS,
    PROPOSALS,
    SESSIONS,
    TOOL_CALLS,
    TOOL_RESULTS,
    TURNS,
    compute_checksum,
    quote_names,
    write_json,
)

Connection = sqlite3.Connection

PAGE = 100
"""Sessions read at a time."""
_MOST_IDLE = 5
"""Connections that are kept for the next read."""


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
    row = connection.execute(_select_sessions("WHERE id = ?"), (session_id,)).fetchone()
    return None if row is None else _read_session_row(connection, row[1:])


def read_sessions(connection: Connection, after: int, until: int) -> list[tuple[int, Session]]:
    """Return the next sessions after row ``after``, up to row ``until``, each with its row."""
    query = _select_sessions(f'WHERE "row" > ? AND "row" <= ? ORDER BY "row" LIMIT {PAGE}')
    rows = connection.execute(query, (after, until)).fetchall()
    return [(number, _read_session_row(connection, row)) for number, *row in rows]


def _select_sessions(rest: str) -> str:
    return f"SELECT {quote_names(('row', *SESSIONS.names, *ENDINGS.names))} FROM sessions {rest}"  # noqa: S608


def _read_session_row(connection: Connection, row: Sequence[Any]) -> Session:
    width = len(SESSIONS.names)
    session = SESSIONS.read(row)
    ending = None if row[width] is None else ENDINGS.read(row[width:])
    query = TURNS.select("WHERE session = ? ORDER BY number")
    turns = tuple(_read_turn(session.id, row) for row in fetch(connection, query, (session.id,)))
    session = replace(session, turns=turns, ending=ending)
    if not session.provenance.tools:
        return session
    columns = quote_names((*TOOL_CALLS.names, *TOOL_RESULTS.names))
    query = f"SELECT {columns} FROM tools WHERE session = ? ORDER BY number, round, place"  # noqa: S608
    return _attach_uses(session, map(_read_use, connection.execute(query, (session.id,))))


_TEXT, _CHECKSUM = TURNS.names.index("text"), TURNS.names.index("checksum")


def _read_turn(session: str, row: Sequence[Any]) -> Turn:
    turn = TURNS.read(row)
    if compute_checksum(row[_TEXT]) != row[_CHECKSUM]:
        raise StoreError(
            f"Turn {turn.number} of session {session} is damaged: its text does not match its checksum.",
            next="Recover the readable data: bactrian recover RUN --out NEW.db",
        )
    return turn


def _read_use(row: Sequence[Any]) -> Use:
    call, result = TOOL_CALLS.read(row), row[len(TOOL_CALLS.names) :]
    has_result = result[TOOL_RESULTS.names.index("result")] is not None
    return Use(call, TOOL_RESULTS.read(result) if has_result else None)


def _attach_uses(session: Session, uses: Iterable[Use]) -> Session:
    """Return ``session`` with the tools that were called for its turns."""
    by_turn: defaultdict[int, list[Use]] = defaultdict(list)
    for use in uses:
        by_turn[use.call.number].append(use)
    turns = tuple(
        replace(turn, uses=tuple(by_turn.pop(turn.number))) if turn.number in by_turn else turn
        for turn in session.turns
    )
    return replace(session, turns=turns, pending=tuple(by_turn.get(len(turns) + 1, ())))


def read_deliberation(connection: Connection, session: str, after: int) -> Deliberation:
    """Return the proposals and decisions of the session with this id, for the turns after turn ``after``."""
    where = "WHERE session = ? AND number > ? ORDER BY number, round"
    proposals = connection.execute(PROPOSALS.select(f"{where}, place"), (session, after))
    decisions = connection.execute(DECISIONS.select(f"{where}, attempt"), (session, after))
    return Deliberation(tuple(map(PROPOSALS.read, proposals)), tuple(map(DECISIONS.read, decisions)))


def read_failures(connection: Connection, after: int) -> list[tuple[int, Failure]]:
    """Return the next failed sessions after row ``after``, each with its row and its last failed call."""
    query = f"""
        SELECT failed."row", id, ending_turn, ending_evidence, error, coalesce(raw, x'')
        FROM (
            SELECT "row", id, ending_turn, ending_evidence FROM sessions
            WHERE ending = 'failed' AND "row" > ? ORDER BY "row" LIMIT {PAGE}
        ) AS failed
        LEFT JOIN (
            SELECT session, error, raw FROM calls
            WHERE "row" IN (SELECT max("row") FROM calls WHERE error IS NOT NULL GROUP BY session)
        ) AS last ON last.session = failed.id
        ORDER BY failed."row"
    """  # noqa: S608
    return [(row, Failure(*values)) for row, *values in connection.execute(query, (after,))]


def count_spent(connection: Connection) -> dict[str, Usage]:
    """Return the usage of the run by agent. The usage of a turn includes all that led to it, the critic's part too."""
    names = ("prompt", "completion", "cached")
    tokens = ", ".join(f"total({name}_tokens)" for name in names)
    less = ", ".join(f"-total({name}_tokens)" for name in names)
    preparation, usage = (
        ", ".join(f"total(json_extract({column}, '$.{name}'))" for name in names)
        for column in ("preparation", "usage")
    )
    in_turn = "(session, number) IN (SELECT session, number FROM turns)"
    query = f"""
        SELECT speaker, {tokens} FROM turns GROUP BY speaker
        UNION ALL SELECT speaker, {tokens} FROM proposals WHERE NOT {in_turn} GROUP BY speaker
        UNION ALL SELECT speaker, {tokens} FROM tools WHERE NOT {in_turn} GROUP BY speaker
        UNION ALL SELECT 'critic', {tokens} FROM verdicts GROUP BY speaker
        UNION ALL SELECT speaker, {less} FROM verdicts WHERE {in_turn} GROUP BY speaker
        UNION ALL SELECT 'task_specifier', {preparation} FROM sessions
        UNION ALL SELECT 'lister', {usage} FROM lists
        UNION ALL SELECT agent, {usage} FROM calls WHERE error IS NOT NULL GROUP BY agent
    """  # noqa: S608
    spent: dict[str, Usage] = {}
    for agent, *sums in connection.execute(query):
        prompt, completion, cached = map(int, sums)
        spent[agent] = spent.get(agent, Usage()) + Usage(prompt, completion, cached)
    return spent


def read_outlines(connection: Connection, after: int, limit: int, ids: Sequence[str] | None) -> list[Outline]:
    """Return the next ``limit`` sessions after row ``after`` without their turns; if given, all those of ``ids``."""
    only = "" if ids is None else "AND id IN (SELECT value FROM json_each(?))"
    query = f"""
        SELECT "row", id, assistant_role, user_role, original_task, specified_task, provenance, ending,
            (SELECT count(*) FROM turns WHERE session = id), created, mark
        FROM sessions WHERE "row" > ? {only} ORDER BY "row" LIMIT ?
    """  # noqa: S608
    values = (after, limit) if ids is None else (after, write_json(ids), -1)
    return [_read_outline(*row) for row in fetch(connection, query, values)]


def _read_outline(
    row: int,
    session: str,
    assistant: str,
    user: str,
    original: str,
    specified: str | None,
    provenance: str,
    *rest: Any,
) -> Outline:
    # The JSON as it is, since building the records would take most of the time.
    origin: Mapping[str, Any] = from_json(provenance)
    models = cast("Mapping[str, str]", origin.get("models") or {})
    kind = infer_kind(models, has_cast=bool(origin.get("cast")))
    language = origin.get("language")
    return Outline(row, session, assistant, user, original, specified, language, models, kind, *rest)


def read_texts(connection: Connection, ids: Sequence[str]) -> list[SpokenText]:
    """Return the texts of the sessions ``ids``: session by session, in the order of their turns."""
    query = """
        SELECT session, number, speaker, text, prompt_tokens, completion_tokens, cached_tokens
        FROM turns WHERE session IN (SELECT value FROM json_each(?)) ORDER BY session, number
    """
    return list(map(SpokenText._make, connection.execute(query, (write_json(ids),))))
