"""Blocking, paged reading of a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic_core import from_json
from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Integer,
    Row,
    Select,
    TableClause,
    Text,
    cast,
    exists,
    func,
    select,
)
from sqlalchemy.sql.base import ReadOnlyColumnCollection

from bactrian.errors import StoreError
from bactrian.records.candidate import Deliberation
from bactrian.records.finding import Confirmation
from bactrian.records.run import Command, Failure, ItemList, Mark, Outline, Progress, SpokenText, Vote
from bactrian.records.session import IMPORTED, Session
from bactrian.records.tool import Use
from bactrian.records.turn import Turn
from bactrian.records.usage import Usage
from bactrian.store import schema
from bactrian.store.base import Rows
from bactrian.store.mapping import RecordMapping
from bactrian.store.sqlite.database import IS_OPEN, explain_errors
from bactrian.store.sqlite.outlines import find_touched, read_outlines, read_texts

_PAGE = 100
"""Sessions read at a time."""
_WIDE_PAGE = 10_000
"""Rows of the index of progress read at a time."""


class Reader:
    """Reads the run at ``path`` through ``engine``. Each method raises StoreError if the run cannot be read."""

    def __init__(self, path: Path, engine: Engine) -> None:
        self._path = path
        self._engine = engine

    def is_open(self) -> bool:
        """Return True if a process writes the run, or was killed while it did."""
        with explain_errors(self._path), self._engine.connect() as connection:
            return connection.exec_driver_sql("PRAGMA user_version").scalar_one() == IS_OPEN

    def deliberation(self, session: str, after: int) -> Deliberation:
        """Return the proposals and decisions of the session with this id, for the turns after turn ``after``."""
        made, said = schema.proposals.c, schema.verdicts.c
        proposals = (
            _select(made, schema.PROPOSALS)
            .where(made.session == session, made.number > after)
            .order_by(made.number, made.round, made.place)
        )
        decisions = (
            _select(said, schema.DECISIONS)
            .where(said.session == session, said.number > after)
            .order_by(said.number, said.round, said.attempt)
        )
        with explain_errors(self._path), self._engine.connect() as connection:
            return Deliberation(
                tuple(map(schema.PROPOSALS.read, connection.execute(proposals))),
                tuple(map(schema.DECISIONS.read, connection.execute(decisions))),
            )

    def confirmations(self, judge: str) -> list[Confirmation]:
        """Return all answers of the judge with this name."""
        said = schema.confirmations.c
        query = _select(said, schema.CONFIRMATIONS).where(said.judge == judge).order_by(said.row)
        with explain_errors(self._path), self._engine.connect() as connection:
            return list(map(schema.CONFIRMATIONS.read, connection.execute(query)))

    def marks(self, session: str | None = None) -> list[Mark]:
        """Return the marks of all sessions, or of the session with this id, in the order of their first setting."""
        query = _select(schema.marks.c, schema.MARKS).order_by(schema.marks.c.row)
        if session is not None:
            query = query.where(schema.marks.c.session == session)
        with explain_errors(self._path), self._engine.connect() as connection:
            return list(map(schema.MARKS.read, connection.execute(query)))

    def votes(self) -> list[Vote]:
        """Return all votes in the order in which they were first given."""
        query = _select(schema.votes.c, schema.VOTES).order_by(schema.votes.c.row)
        with explain_errors(self._path), self._engine.connect() as connection:
            return list(map(schema.VOTES.read, connection.execute(query)))

    def commands(self) -> list[Command]:
        """Return the commands that worked on the run, the oldest first."""
        query = _select(schema.commands.c, schema.COMMANDS).order_by(schema.commands.c.row)
        with explain_errors(self._path), self._engine.connect() as connection:
            return list(map(schema.COMMANDS.read, connection.execute(query)))

    def list_created(self) -> dict[str, float]:
        """Return when each session began, in seconds since 1970, by its id; the oldest first."""
        sessions = schema.sessions.c
        query = select(sessions.id, sessions.created).order_by(sessions.row)
        with explain_errors(self._path), self._engine.connect() as connection:
            return {row.id: row.created for row in connection.execute(query)}

    def recipe(self) -> dict[str, Any] | None:
        """Return what the run is made from; None if it was not made from a recipe."""
        with explain_errors(self._path), self._engine.connect() as connection:
            row = connection.execute(select(schema.run.c.recipe)).first()
            return None if row is None else from_json(row.recipe)

    def item_list(self, list_id: str) -> ItemList | None:
        """Return the list of items with this id, as far as it is known; None if not found."""
        query = _select(schema.lists.c, schema.LISTS).where(schema.lists.c.id == list_id)
        with explain_errors(self._path), self._engine.connect() as connection:
            row = connection.execute(query).first()
            return None if row is None else schema.LISTS.read(row)

    def item_lists(self, after: int) -> list[tuple[int, ItemList]]:
        """Return the next lists after row ``after``, each with its row."""
        table = schema.lists.c
        query = (
            _select(table, schema.LISTS, table.row).where(table.row > after).order_by(table.row).limit(_PAGE)
        )
        with explain_errors(self._path), self._engine.connect() as connection:
            return [(number, schema.LISTS.read(row)) for number, *row in connection.execute(query)]

    def failures(self, after: int) -> list[tuple[int, Failure]]:
        """Return the next failed sessions after row ``after``, each with its row."""
        kept, calls = schema.sessions.c, schema.calls.c
        failed = (
            select(kept.row, kept.id, kept.ending_turn, kept.ending_evidence)
            .where(kept.ending == "failed", kept.row > after)
            .order_by(kept.row)
            .limit(_PAGE)
        )
        with explain_errors(self._path), self._engine.connect() as connection:
            rows = connection.execute(failed).all()
            names = [row.id for row in rows]
            last = (
                select(func.max(calls.row))
                .where(calls.session.in_(names), calls.error.is_not(None))
                .group_by(calls.session)
            )
            query = select(calls.session, calls.error, calls.raw).where(calls.row.in_(last))
            said = {row.session: (row.error, row.raw) for row in connection.execute(query)}
        return [
            (row.row, Failure(row.id, row.ending_turn, row.ending_evidence, *said.get(row.id, (None, b""))))
            for row in rows
        ]

    def mean_seconds(self) -> float | None:
        """Return the mean seconds of the last thousand turns that a model made; None if there are none."""
        turns = schema.turns.c
        last = (
            select(turns.seconds).where(turns.seconds > 0).order_by(turns.row.desc()).limit(1000).subquery()
        )
        with explain_errors(self._path), self._engine.connect() as connection:
            return connection.execute(select(func.avg(last.c.seconds))).scalar()

    def count_spent(self) -> dict[str, Usage]:
        """Return the usage of the run by agent."""
        spent: dict[str, Usage] = {}
        with explain_errors(self._path), self._engine.connect() as connection:
            for row in connection.execute(_select_usage(schema.turns)):
                spent[row[0]] = Usage(*row[1:])
            for agent, usage in _read_deliberation_usage(connection):
                spent[agent] = spent.get(agent, Usage()) + usage
            for agent, column in (
                ("task_specifier", schema.sessions.c.preparation),
                ("lister", schema.lists.c.usage),
            ):
                sums = [
                    func.total(func.json_extract(column, f"$.{name}"))
                    for name in ("prompt", "completion", "cached")
                ]
                prompt, completion, cached = map(int, connection.execute(select(*sums)).one())
                spent[agent] = Usage(prompt, completion, cached)
            for agent, usage in _failed_calls(connection):
                spent[agent] = spent.get(agent, Usage()) + usage
        return spent

    def progress(self, after: str) -> list[Progress]:
        """Return the state of the next sessions after the id ``after``."""
        sessions = schema.sessions.c
        query = (
            _select(sessions, schema.PROGRESS)
            .where(sessions.id > after)
            .order_by(sessions.id)
            .limit(_WIDE_PAGE)
        )
        with explain_errors(self._path), self._engine.connect() as connection:
            return list(map(schema.PROGRESS.read, connection.execute(query)))

    def list_imported(self) -> frozenset[str]:
        """Return the ids of the imported sessions, found by the name of their prompt pack."""
        sessions = schema.sessions.c
        prompts = func.json_extract(cast(sessions.provenance, Text), "$.prompts")
        query = select(sessions.id).where(prompts.startswith(IMPORTED))
        with explain_errors(self._path), self._engine.connect() as connection:
            return frozenset(connection.execute(query).scalars())

    def outlines(self, after: int, limit: int, ids: Sequence[str] | None) -> list[Outline]:
        """Return the outlines of the next sessions after row ``after``; only those of ``ids`` if given."""
        with explain_errors(self._path), self._engine.connect() as connection:
            return read_outlines(connection, after, limit, ids)

    def texts(self, ids: Sequence[str]) -> list[SpokenText]:
        """Return the texts of the sessions ``ids``."""
        with explain_errors(self._path), self._engine.connect() as connection:
            return list(read_texts(connection, ids))

    def find_touched(self, after: int) -> tuple[int, list[str]]:
        """Return the last row of the turns, and the ids of the sessions with turns after row ``after``."""
        with explain_errors(self._path), self._engine.connect() as connection:
            return find_touched(connection, after)

    def session(self, session_id: str) -> Session | None:
        """Return the session with this id and its stored turns; None if not found."""
        with explain_errors(self._path), self._engine.connect() as connection:
            return read_session(connection, session_id)

    def slices(self, size: int) -> list[Rows]:
        """Return the present sessions in slices of at most ``size``."""
        with explain_errors(self._path), self._engine.connect() as connection:
            last = connection.execute(select(func.max(schema.sessions.c.row))).scalar() or 0
        return [(after, after + size) for after in range(0, last, size)]

    def sessions(self, after: int, until: int) -> list[tuple[int, Session]]:
        """Return the next sessions after row ``after``, up to row ``until``, each with its row."""
        sessions = schema.sessions.c
        query = (
            _select_sessions(sessions.row)
            .where(sessions.row > after, sessions.row <= until)
            .order_by(sessions.row)
            .limit(_PAGE)
        )
        with explain_errors(self._path), self._engine.connect() as connection:
            return [
                (number, _read_session_row(connection, row))
                for number, *row in connection.execute(query).all()
            ]


def read_session(connection: Connection, session_id: str) -> Session | None:
    """Return the session with this id and its stored turns; None if not found.

    Raises:
        StoreError: the text of a turn does not match its checksum.
    """
    query = _select_sessions().where(schema.sessions.c.id == session_id)
    row = connection.execute(query).first()
    return None if row is None else _read_session_row(connection, row)


def _select_usage(table: TableClause, *where: ColumnElement[bool]) -> Select[Any]:
    """Return the tokens by speaker."""
    columns = (table.c.prompt_tokens, table.c.completion_tokens, table.c.cached_tokens)
    return select(table.c.speaker, *map(func.sum, columns)).where(*where).group_by(table.c.speaker)


def _read_deliberation_usage(connection: Connection) -> Iterator[tuple[str, Usage]]:
    """Yield by agent the usage of choices and tool calls that the turns do not include.

    The usage of a turn includes everything that led to it, and thus the critic's part.
    """
    turns, proposals, verdicts = schema.turns.c, schema.proposals, schema.verdicts

    def spoken(table: TableClause) -> ColumnElement[bool]:
        same = (turns.session == table.c.session, turns.number == table.c.number)
        return exists().where(*same).correlate(table)

    for table in (proposals, schema.tools):
        for row in connection.execute(_select_usage(table, ~spoken(table))):
            yield row[0], Usage(*row[1:])
    for row in connection.execute(_select_usage(verdicts)):
        yield "critic", Usage(*row[1:])
    for row in connection.execute(_select_usage(verdicts, spoken(verdicts))):
        yield row[0], Usage(*(-tokens for tokens in row[1:]))


def _failed_calls(connection: Connection) -> Iterator[tuple[str, Usage]]:
    """Yield, by agent, the usage of calls that no turn and no list includes."""
    calls = schema.calls.c
    sums = [
        cast(func.total(func.json_extract(calls.usage, f"$.{name}")), Integer)
        for name in ("prompt", "completion", "cached")
    ]
    columns: list[ColumnElement[Any]] = [calls.agent, *sums]
    query = select(*columns).where(calls.error.is_not(None)).group_by(calls.agent)
    for row in connection.execute(query):
        yield row[0], Usage(*row[1:])


def _select(
    table: ReadOnlyColumnCollection[str, Any], mapping: RecordMapping[Any], *before: ColumnElement[Any]
) -> Select[*tuple[Any, ...]]:
    columns: list[ColumnElement[Any]] = [*before, *(table[name] for name in mapping.names)]
    return select(*columns)


def _select_sessions(*before: ColumnElement[Any]) -> Select[*tuple[Any, ...]]:
    table = schema.sessions.c
    columns = [*before, *(table[name] for name in schema.SESSIONS.names)]
    return _select(table, schema.ENDINGS, *columns)


def _read_session_row(connection: Connection, row: Sequence[Any]) -> Session:
    width = len(schema.SESSIONS.names)
    session = schema.SESSIONS.read(row)
    ending = None if row[width] is None else schema.ENDINGS.read(row[width:])
    turns = schema.turns.c
    query = _select(turns, schema.TURNS).where(turns.session == session.id).order_by(turns.number)
    said = tuple(_read_turn(session.id, one) for one in connection.execute(query))
    session = replace(session, turns=said, ending=ending)
    if not session.provenance.tools:
        return session
    tools = schema.tools.c
    columns = [tools[name] for name in schema.TOOL_CALLS.names]
    query = (
        _select(tools, schema.TOOL_RESULTS, *columns)
        .where(tools.session == session.id)
        .order_by(tools.number, tools.round, tools.place)
    )
    return _attach_uses(session, map(_read_use, connection.execute(query)))


def _read_turn(session: str, row: Row[Any]) -> Turn:
    if schema.compute_checksum(row.text) != row.checksum:
        raise StoreError(
            f"Turn {row.number} of session {session} is damaged: its text does not match its checksum.",
            next="Recover the readable data: bactrian recover RUN --out NEW.db",
        )
    return schema.TURNS.read(row)


def _read_use(row: Sequence[Any]) -> Use:
    call = schema.TOOL_CALLS.read(row)
    result = row[len(schema.TOOL_CALLS.names) :]
    has_result = result[schema.TOOL_RESULTS.names.index("result")] is not None
    return Use(call, schema.TOOL_RESULTS.read(result) if has_result else None)


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
