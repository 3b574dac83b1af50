"""Reading a run, a page at a time. Everything here waits for the disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic_core import from_json
from sqlalchemy import ColumnElement, Connection, Engine, Row, Select, Table, exists, func, select

from bactrian.records.candidate import Deliberation
from bactrian.records.finding import Confirmation
from bactrian.records.run import Failure, ItemList, Progress
from bactrian.records.session import Session
from bactrian.records.usage import Usage
from bactrian.store import schema
from bactrian.store.base import Rows
from bactrian.store.from_rows import (
    attach_uses,
    read_confirmation,
    read_decision,
    read_list,
    read_proposal,
    read_session,
    read_use,
)
from bactrian.store.sqlite.database import explain_errors

_PAGE = 100
"""Sessions read at a time."""
_WIDE_PAGE = 10_000
"""Rows of the index of progress read at a time."""


class Reader:
    """Reads the run at ``path`` through ``engine``. Each method raises StoreError if it cannot be read."""

    def __init__(self, path: Path, engine: Engine) -> None:
        self._path = path
        self._engine = engine

    def deliberation(self, session: str, after: int) -> Deliberation:
        """All proposals and verdicts of the session with this id, those up to turn ``after`` left out."""
        made, said = schema.proposals, schema.verdicts
        with explain_errors(self._path), self._engine.connect() as connection:
            proposals = (
                select(made)
                .where(made.c.session == session, made.c.number > after)
                .order_by(made.c.number, made.c.round, made.c.place)
            )
            verdicts = (
                select(said)
                .where(said.c.session == session, said.c.number > after)
                .order_by(said.c.number, said.c.round, said.c.attempt)
            )
            return Deliberation(
                tuple(read_proposal(row) for row in connection.execute(proposals)),
                tuple(read_decision(row) for row in connection.execute(verdicts)),
            )

    def confirmations(self, judge: str) -> list[Confirmation]:
        """Everything that the judge of this name has said."""
        table = schema.confirmations
        query = select(table).where(table.c.judge == judge).order_by(table.c.row)
        with explain_errors(self._path), self._engine.connect() as connection:
            return [read_confirmation(row) for row in connection.execute(query)]

    def recipe(self) -> dict[str, Any] | None:
        """What the run is made from; None if it was not made from a recipe."""
        with explain_errors(self._path), self._engine.connect() as connection:
            row = connection.execute(select(schema.run.c.recipe)).first()
            return None if row is None else from_json(row.recipe)

    def item_list(self, list_id: str) -> ItemList | None:
        """The list of items with this id, as far as it is known."""
        with explain_errors(self._path), self._engine.connect() as connection:
            row = connection.execute(select(schema.lists).where(schema.lists.c.id == list_id)).first()
            return None if row is None else read_list(row)

    def item_lists(self, after: int) -> list[tuple[int, ItemList]]:
        """The next lists behind row ``after``, each with its row."""
        table = schema.lists
        query = select(table).where(table.c.row > after).order_by(table.c.row).limit(_PAGE)
        with explain_errors(self._path), self._engine.connect() as connection:
            return [(row.row, read_list(row)) for row in connection.execute(query)]

    def failures(self, after: int) -> list[tuple[int, Failure]]:
        """The next sessions behind row ``after`` that failed, each with its row."""
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
        """Mean seconds of the last thousand turns that a model made; None if there are none."""
        turns = schema.turns.c
        last = (
            select(turns.seconds).where(turns.seconds > 0).order_by(turns.row.desc()).limit(1000).subquery()
        )
        with explain_errors(self._path), self._engine.connect() as connection:
            return connection.execute(select(func.avg(last.c.seconds))).scalar()

    def spent(self) -> dict[str, Usage]:
        """What the run has used, by agent."""
        spent: dict[str, Usage] = {}
        with explain_errors(self._path), self._engine.connect() as connection:
            for row in connection.execute(_by_speaker(schema.turns)):
                spent[row[0]] = Usage(*row[1:])
            for agent, usage in _deliberated(connection):
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
        return spent

    def progress(self, after: str) -> list[Progress]:
        """What has become of the next sessions behind the id ``after``."""
        columns = schema.progress.columns
        query = select(*columns).where(columns.id > after).order_by(columns.id).limit(_WIDE_PAGE)
        with explain_errors(self._path), self._engine.connect() as connection:
            return [Progress(*row) for row in connection.execute(query)]

    def session(self, session_id: str) -> Session | None:
        """The session with this id, with the turns that are on disk."""
        with explain_errors(self._path), self._engine.connect() as connection:
            row = connection.execute(
                select(schema.sessions).where(schema.sessions.c.id == session_id)
            ).first()
            return None if row is None else _session(connection, row)

    def slices(self, size: int) -> list[Rows]:
        """The sessions that there are now, in slices of at most ``size``."""
        with explain_errors(self._path), self._engine.connect() as connection:
            last = connection.execute(select(func.max(schema.sessions.c.row))).scalar() or 0
        return [(after, after + size) for after in range(0, last, size)]

    def sessions(self, after: int, until: int) -> list[tuple[int, Session]]:
        """The next sessions behind row ``after``, up to row ``until``, each with its row."""
        row = schema.sessions.c.row
        query = select(schema.sessions).where(row > after, row <= until).order_by(row).limit(_PAGE)
        with explain_errors(self._path), self._engine.connect() as connection:
            return [(row.row, _session(connection, row)) for row in connection.execute(query).all()]


def _by_speaker(table: Table, *where: ColumnElement[bool]) -> Select[Any]:
    """Tokens by speaker."""
    columns = (table.c.prompt_tokens, table.c.completion_tokens, table.c.cached_tokens)
    return select(table.c.speaker, *map(func.sum, columns)).where(*where).group_by(table.c.speaker)


def _deliberated(connection: Connection) -> Iterator[tuple[str, Usage]]:
    """What choosing and calling tools add to the turns, by agent: a turn counts all that led to it, the critic's part
    included."""
    turns, proposals, verdicts = schema.turns.c, schema.proposals, schema.verdicts

    def spoken(table: Table) -> ColumnElement[bool]:
        same = (turns.session == table.c.session, turns.number == table.c.number)
        return exists().where(*same).correlate(table)

    for table in (proposals, schema.tools):
        for row in connection.execute(_by_speaker(table, ~spoken(table))):
            yield row[0], Usage(*row[1:])
    for row in connection.execute(_by_speaker(verdicts)):
        yield "critic", Usage(*row[1:])
    for row in connection.execute(_by_speaker(verdicts, spoken(verdicts))):
        yield row[0], Usage(*(-tokens for tokens in row[1:]))


def _session(connection: Connection, row: Row[Any]) -> Session:
    turns = schema.turns
    query = select(turns).where(turns.c.session == row.id).order_by(turns.c.number)
    session = read_session(row, connection.execute(query))
    if not session.provenance.tools:
        return session
    tools = schema.tools
    query = (
        select(tools).where(tools.c.session == row.id).order_by(tools.c.number, tools.c.round, tools.c.place)
    )
    return attach_uses(session, [read_use(one) for one in connection.execute(query)])
