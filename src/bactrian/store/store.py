"""A run: sessions on disk, written while they are played and read at any time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from warnings import warn

from pydantic_core import from_json, to_json
from sqlalchemy import ColumnElement, Connection, Engine, Row, Select, Table, exists, func, select
from sqlalchemy.exc import SQLAlchemyError

from bactrian.errors import BactrianError, BactrianWarning, InputError, StoreError
from bactrian.records.call import Call
from bactrian.records.confirmation import Confirmation
from bactrian.records.ending import Ending
from bactrian.records.proposal import Deliberation, Proposal, Verdict
from bactrian.records.session import Session
from bactrian.records.tool import ToolCall, ToolResult
from bactrian.records.turn import Turn
from bactrian.records.usage import Usage
from bactrian.store import schema
from bactrian.store.lock import locked
from bactrian.store.migrations import MIGRATIONS, migrate, version
from bactrian.store.place import network_file_system
from bactrian.store.rows import (
    ItemList,
    Progress,
    call_row,
    confirmation_row,
    ending_row,
    list_row,
    proposal_row,
    read_confirmation,
    read_list,
    read_proposal,
    read_session,
    read_use,
    read_verdict,
    result_row,
    session_row,
    task_row,
    tool_row,
    turn_row,
    verdict_row,
    with_uses,
)
from bactrian.store.sqlite import (
    back_up,
    check_file,
    explained,
    log_is_missing,
    log_of,
    mark_open,
    reading_engine,
    writing_engine,
)
from bactrian.store.statements import Statement, statements
from bactrian.store.writer import Writer

_PAGE = 100
"""Sessions read at a time."""
_WIDE_PAGE = 10_000
"""Rows of the index of progress read at a time."""
_EVERY = 1 << 62

Rows = tuple[int, int]
"""A slice of a run: the row after which it begins, and its last."""


class Store:
    """One run. :func:`open_store` opens it.

    A write returns when it is on disk, and writing the same thing twice stores it once.
    """

    def __init__(self, path: Path, reading: Engine, writer: Writer | None) -> None:
        self.path = path
        self._reading = reading
        self._writer = writer
        self._statements = statements()

    async def begin(self, session: Session) -> Session:
        """Store ``session`` if there is none of its id. Gives what the run then holds: turns, ending and all."""
        if await self._write(self._statements.session, session_row(session, time.time())):
            return session
        stored = await self.session(session.id)
        if stored is None:
            raise StoreError(f"Session {session.id} was written and is not there.", where=str(self.path))
        return stored

    async def prepared(self, session: Session) -> None:
        """Store the specified and the planned task of ``session``, and what they cost."""
        await self._write(self._statements.task, {"key": session.id, **task_row(session)})

    async def add_turn(self, session: str, turn: Turn) -> None:
        """Store a turn of the session with this id."""
        await self._write(self._statements.turn, turn_row(session, turn))

    async def add_proposal(self, session: str, proposal: Proposal) -> None:
        """Store a candidate for a turn of the session with this id."""
        await self._write(self._statements.proposal, proposal_row(session, proposal))

    async def add_verdict(self, session: str, verdict: Verdict) -> None:
        """Store what was said about the candidates for a turn of the session with this id."""
        await self._write(self._statements.verdict, verdict_row(session, verdict))

    async def add_tool_call(self, session: str, call: ToolCall) -> None:
        """Store a tool call of the session with this id."""
        await self._write(self._statements.tool, tool_row(session, call))

    async def add_tool_result(self, session: str, result: ToolResult) -> None:
        """Store what a tool call came to."""
        await self._write(self._statements.result, result_row(session, result))

    async def deliberation(self, session: str, *, after: int = 0) -> Deliberation:
        """All proposals and verdicts of the session with this id, those up to turn ``after`` left out."""
        return await asyncio.to_thread(self._read_deliberation, session, after)

    async def add_confirmation(self, confirmation: Confirmation) -> None:
        """Store what a judge said of a finding."""
        await self._write(self._statements.confirmation, confirmation_row(confirmation))

    async def confirmations(self, judge: str) -> list[Confirmation]:
        """Everything that the judge of this name has said."""
        return await asyncio.to_thread(self._read_confirmations, judge)

    async def end(self, session: str, ending: Ending, usage: Usage = Usage()) -> None:
        """Store the ending of the session with this id, and what it used in all.

        A final ending is never replaced.
        """
        await self._write(self._statements.ending, {"key": session, **ending_row(ending, usage)})

    async def add_call(self, call: Call) -> None:
        """Store a call to a model, answered or not."""
        await self._write(self._statements.call, call_row(call))

    async def freeze(self, recipe: Mapping[str, Any]) -> dict[str, Any]:
        """Store what the run is made from, unless it is there already. Gives what is stored.

        Raises:
            StoreError: it cannot be read or written.
        """
        row = {"row": 1, "recipe": to_json(recipe).decode(), "created": time.time()}
        await self._write(self._statements.run, row)
        stored = await self.recipe()
        assert stored is not None
        return stored

    async def recipe(self) -> dict[str, Any] | None:
        """What the run is made from; None if it was not made from a recipe."""
        return await asyncio.to_thread(self._read_recipe)

    async def keep_list(self, items: ItemList) -> None:
        """Store a list of items, or what it has grown to."""
        await self._write(self._statements.list, list_row(items))

    async def item_list(self, list_id: str) -> ItemList | None:
        """The list of items with this id, as far as it is known."""
        return await asyncio.to_thread(self._read_list, list_id)

    async def item_lists(self) -> AsyncIterator[ItemList]:
        """All lists of items in the order in which they began, a hundred at a time."""
        last = 0
        while page := await asyncio.to_thread(self._read_lists, last):
            last = page[-1][0]
            for _, items in page:
                yield items

    async def progress(self) -> AsyncIterator[Progress]:
        """What has become of every session, by its id. Reads an index and not the sessions themselves."""
        last = ""
        while page := await asyncio.to_thread(self._read_progress, last):
            last = page[-1].id
            for one in page:
                yield one

    async def mean_seconds(self) -> float | None:
        """Mean seconds of the last thousand turns that a model made; None if there are none."""
        return await asyncio.to_thread(self._read_mean_seconds)

    async def spent(self) -> dict[str, Usage]:
        """What the run has used, by agent: ``user``, ``assistant``, ``critic``, ``task_specifier`` (with the planner),
        ``lister``.

        Reads every turn's row, which takes seconds for a million.
        """
        return await asyncio.to_thread(self._read_spent)

    async def session(self, session_id: str) -> Session | None:
        """The session with this id, with the turns that are on disk.

        Raises:
            StoreError: it cannot be read, or a turn of it is damaged.
        """
        return await asyncio.to_thread(self._read_one, session_id)

    async def sessions(self, rows: Rows | None = None) -> AsyncIterator[Session]:
        """All sessions, or those of one slice, in the order in which they began; a hundred at a time are in memory."""
        last, until = rows or (0, _EVERY)
        while page := await asyncio.to_thread(self._read_page, last, until):
            last = page[-1][0]
            for _, session in page:
                yield session

    async def slices(self, size: int) -> list[Rows]:
        """The sessions that there are now, in slices of at most ``size`` that can be read at the same time."""
        return await asyncio.to_thread(self._read_slices, size)

    async def _write(self, statement: Statement, values: dict[str, Any]) -> bool:
        if self._writer is None:
            raise StoreError("The run was opened for reading only.", where=str(self.path))
        return await self._writer.write(statement, values)

    def _read_deliberation(self, session: str, after: int) -> Deliberation:
        made, said = schema.proposals, schema.verdicts
        with explaining(self.path), self._reading.connect() as connection:
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
                tuple(read_verdict(row) for row in connection.execute(verdicts)),
            )

    def _read_confirmations(self, judge: str) -> list[Confirmation]:
        table = schema.confirmations
        query = select(table).where(table.c.judge == judge).order_by(table.c.row)
        with explaining(self.path), self._reading.connect() as connection:
            return [read_confirmation(row) for row in connection.execute(query)]

    def _read_recipe(self) -> dict[str, Any] | None:
        with explaining(self.path), self._reading.connect() as connection:
            row = connection.execute(select(schema.run.c.recipe)).first()
            return None if row is None else from_json(row.recipe)

    def _read_list(self, list_id: str) -> ItemList | None:
        with explaining(self.path), self._reading.connect() as connection:
            row = connection.execute(select(schema.lists).where(schema.lists.c.id == list_id)).first()
            return None if row is None else read_list(row)

    def _read_lists(self, after: int) -> list[tuple[int, ItemList]]:
        table = schema.lists
        query = select(table).where(table.c.row > after).order_by(table.c.row).limit(_PAGE)
        with explaining(self.path), self._reading.connect() as connection:
            return [(row.row, read_list(row)) for row in connection.execute(query)]

    def _read_mean_seconds(self) -> float | None:
        turns = schema.turns.c
        last = (
            select(turns.seconds).where(turns.seconds > 0).order_by(turns.row.desc()).limit(1000).subquery()
        )
        with explaining(self.path), self._reading.connect() as connection:
            return connection.execute(select(func.avg(last.c.seconds))).scalar()

    def _read_spent(self) -> dict[str, Usage]:
        spent: dict[str, Usage] = {}
        with explaining(self.path), self._reading.connect() as connection:
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

    def _read_progress(self, after: str) -> list[Progress]:
        columns = schema.progress.columns
        query = select(*columns).where(columns.id > after).order_by(columns.id).limit(_WIDE_PAGE)
        with explaining(self.path), self._reading.connect() as connection:
            return [Progress(*row) for row in connection.execute(query)]

    def _read_one(self, session_id: str) -> Session | None:
        with explaining(self.path), self._reading.connect() as connection:
            row = connection.execute(
                select(schema.sessions).where(schema.sessions.c.id == session_id)
            ).first()
            return None if row is None else _session(connection, row)

    def _read_slices(self, size: int) -> list[Rows]:
        with explaining(self.path), self._reading.connect() as connection:
            last = connection.execute(select(func.max(schema.sessions.c.row))).scalar() or 0
        return [(after, after + size) for after in range(0, last, size)]

    def _read_page(self, after: int, until: int) -> list[tuple[int, Session]]:
        row = schema.sessions.c.row
        query = select(schema.sessions).where(row > after, row <= until).order_by(row).limit(_PAGE)
        with explaining(self.path), self._reading.connect() as connection:
            return [(row.row, _session(connection, row)) for row in connection.execute(query).all()]


@asynccontextmanager
async def open_store(path: Path, *, read_only: bool = False) -> AsyncGenerator[Store]:
    """Open the run at ``path``; unless ``read_only``, make it if it is not there.

    A run of an older version of this program is migrated, and a copy of it kept.

    Raises:
        InputError: the path holds something else, or cannot be written.
        StoreError: the run is damaged, in use, or of a newer version of this program.
    """
    check_file(path, create=not read_only)
    if read_only:
        if await asyncio.to_thread(_is_older, path):
            async with open_store(path):
                pass
        reading = reading_engine(path)
        await asyncio.to_thread(check_version, reading, path)
        try:
            yield Store(path, reading, None)
        finally:
            reading.dispose()
        return
    with locked(path):
        writer = Writer(await asyncio.to_thread(_connect, path), path)
        reading = reading_engine(path)
        try:
            yield Store(path, reading, writer)
        finally:
            # The last connection to close takes the write-ahead log with it, if it may write.
            reading.dispose()
            await writer.close()


def _connect(path: Path) -> Connection:
    """The writing connection, with today's schema."""
    _warn_of_what_may_be_lost(path)
    with explaining(path):
        engine = writing_engine(path)
        connection = engine.connect()
        try:
            have = _known(version(connection), path)
            connection.rollback()
            if 0 < have < len(MIGRATIONS):
                back_up(path, have)
            with connection.begin():
                migrate(connection, time.time())
            mark_open(connection)
        except BaseException:
            connection.close()
            raise
        return connection


def _warn_of_what_may_be_lost(path: Path) -> None:
    if kind := network_file_system(path):
        warn(
            f"{path} is on a network file system ({kind}), where a run is damaged if two computers open it: "
            "keep it on a disk of this one.",
            BactrianWarning,
            stacklevel=2,
        )
    if path.exists() and log_is_missing(path):
        warn(
            f"{path} was not closed, and its log {log_of(path).name} is not beside it: what was written last is "
            "missing. `bactrian verify` tells more.",
            BactrianWarning,
            stacklevel=2,
        )


def _is_older(path: Path) -> bool:
    """True if the run lacks a migration."""
    reading = reading_engine(path)
    try:
        with explaining(path), reading.connect() as connection:
            return 0 < version(connection) < len(MIGRATIONS)
    finally:
        reading.dispose()


def check_version(reading: Engine, path: Path) -> None:
    """Refuse a run whose schema is not today's. Raises InputError or StoreError."""
    with explaining(path), reading.connect() as connection:
        have = _known(version(connection), path)
    if have < len(MIGRATIONS):
        raise InputError(
            f"The run has schema {have}; this program reads {len(MIGRATIONS)}.",
            where=str(path),
            next="Make it writable and run the same command: it is migrated then, and a copy is kept.",
        )


def _known(have: int, path: Path) -> int:
    if have > len(MIGRATIONS):
        raise StoreError(
            f"The run has schema {have}; this version of bactrian knows schemas up to {len(MIGRATIONS)}.",
            where=str(path),
            next="Install a newer bactrian.",
        )
    return have


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
    return with_uses(session, [read_use(one) for one in connection.execute(query)])


@contextmanager
def explaining(path: Path) -> Generator[None]:
    """Turn faults of the database into errors that say what to do."""
    try:
        yield
    except BactrianError:
        raise
    except (SQLAlchemyError, OSError) as error:
        raise explained(error, path) from error
