"""A run in an SQLite file, which can be read while it is written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from bactrian.errors import StoreError
from bactrian.records.candidate import Decision, Deliberation, Proposal
from bactrian.records.ending import Ending
from bactrian.records.finding import Confirmation
from bactrian.records.run import Call, Command, Failure, ItemList, Mark, Outline, Progress, SpokenText, Vote
from bactrian.records.session import Session
from bactrian.records.tool import ToolCall, ToolResult
from bactrian.records.turn import Turn
from bactrian.records.usage import Usage
from bactrian.store import schema
from bactrian.store.base import Rows
from bactrian.store.mapping import write_json
from bactrian.store.sqlite import statements
from bactrian.store.sqlite.database import check_file, close_engine, open_for_reading, open_snapshot
from bactrian.store.sqlite.filesystem import follow_link
from bactrian.store.sqlite.lock import lock_run
from bactrian.store.sqlite.opening import connect, find_readable
from bactrian.store.sqlite.reader import Reader
from bactrian.store.sqlite.statements import Statement
from bactrian.store.sqlite.writer import Writer

_EVERY = 1 << 62


class SqliteStore:
    """One run. Its methods are those of :class:`bactrian.store.base.Store`; :func:`open_store` opens it."""

    def __init__(self, path: Path, reader: Reader, writer: Writer | None, source: Path | None = None) -> None:
        self.path = path
        self.source = source or path
        """The file that is read: the run, or a temporary copy of it."""
        self._reader = reader
        self._writer = writer

    async def begin(self, session: Session) -> Session:
        """Store ``session`` unless its id is known; return the stored session with turns and ending."""
        if await self._write(statements.ADD_SESSION, (time.time(), *schema.SESSIONS.write(session))):
            return session
        stored = await self.session(session.id)
        if stored is None:
            raise StoreError(f"Session {session.id} was written and is missing.", where=str(self.path))
        return stored

    async def save_task(self, session: Session) -> None:
        """Store the specified and the planned task of ``session``, and their usage."""
        await self._write(statements.SAVE_TASK, (*schema.PREPARATION.write(session), session.id))

    async def add_turn(self, session: str, turn: Turn) -> None:
        """Store a turn of the session with this id."""
        await self._write(statements.ADD_TURN, (session, *schema.TURNS.write(turn)))

    async def add_proposal(self, session: str, proposal: Proposal) -> None:
        """Store a candidate for a turn of the session with this id."""
        await self._write(statements.ADD_PROPOSAL, (session, *schema.PROPOSALS.write(proposal)))

    async def add_decision(self, session: str, decision: Decision) -> None:
        """Store a decision on the candidates for a turn of the session with this id."""
        await self._write(statements.ADD_DECISION, (session, *schema.DECISIONS.write(decision)))

    async def add_tool_call(self, session: str, call: ToolCall) -> None:
        """Store a tool call of the session with this id."""
        await self._write(statements.ADD_TOOL_CALL, (session, *schema.TOOL_CALLS.write(call)))

    async def add_tool_result(self, session: str, result: ToolResult) -> None:
        """Store the result of a tool call."""
        key = (session, result.number, result.round, result.place)
        await self._write(statements.ADD_TOOL_RESULT, (*schema.RESULT.write(result), *key))

    async def deliberation(self, session: str, *, after: int = 0) -> Deliberation:
        """Return the proposals and decisions of the session with this id, for the turns after turn ``after``."""
        return await asyncio.to_thread(self._reader.deliberation, session, after)

    async def add_confirmation(self, confirmation: Confirmation) -> None:
        """Store a judge's answer about a finding."""
        await self._write(statements.ADD_CONFIRMATION, schema.CONFIRMATIONS.write(confirmation))

    async def confirmations(self, judge: str) -> list[Confirmation]:
        """Return all answers of the judge with this name."""
        return await asyncio.to_thread(self._reader.confirmations, judge)

    async def add_mark(self, mark: Mark) -> None:
        """Store a mark of a session that is stored, or replace the note of the same mark."""
        await self._write(statements.ADD_MARK, schema.MARKS.write(mark))

    async def remove_mark(self, session: str, mark: str) -> None:
        """Remove a mark of the session with this id; do nothing if the session does not have it."""
        await self._write(statements.REMOVE_MARK, (session, mark))

    async def marks(self, session: str | None = None) -> list[Mark]:
        """Return the marks of all sessions, or of the session with this id, in the order of their first setting."""
        return await asyncio.to_thread(self._reader.marks, session)

    async def add_vote(self, vote: Vote) -> None:
        """Store a vote, or replace the one of the same voter on the same pair."""
        await self._write(statements.ADD_VOTE, schema.VOTES.write(vote))

    async def votes(self) -> list[Vote]:
        """Return all votes in the order in which they were first given."""
        return await asyncio.to_thread(self._reader.votes)

    async def add_command(self, command: Command) -> None:
        """Store a command that works on the run."""
        await self._write(statements.ADD_COMMAND, schema.COMMANDS.write(command))

    async def commands(self) -> list[Command]:
        """Return the commands that worked on the run, the oldest first."""
        return await asyncio.to_thread(self._reader.commands)

    async def list_created(self) -> dict[str, float]:
        """Return when each session began, in seconds since 1970, by its id; the oldest first."""
        return await asyncio.to_thread(self._reader.list_created)

    async def end(self, session: str, ending: Ending, usage: Usage = Usage()) -> None:
        """Store the ending of the session with this id, and its total usage.

        A final ending is never replaced.
        """
        row = (*schema.ENDINGS.write(ending), *schema.TOTALS.write(usage), session)
        await self._write(statements.END_SESSION, row)

    async def reopen(self, session: str) -> None:
        """Remove the ending of the session with this id if it stopped at its limit of messages."""
        await self._write(statements.REOPEN_SESSION, (session,))

    async def add_call(self, call: Call) -> None:
        """Store a call to a model, answered or not."""
        await self._write(statements.ADD_CALL, schema.CALLS.write(call))

    async def freeze(self, recipe: Mapping[str, Any]) -> dict[str, Any]:
        """Store the recipe of the run unless one is stored already; return the stored recipe.

        Raises:
            StoreError: it cannot be read or written.
        """
        await self._write(statements.ADD_RECIPE, (1, write_json(recipe), time.time()))
        stored = await self.recipe()
        assert stored is not None
        return stored

    async def extend(self, recipe: Mapping[str, Any]) -> dict[str, Any]:
        """Replace what the run is made from by the same with a larger limit, and return what is stored."""
        await self._write(statements.REPLACE_RECIPE, (write_json(recipe),))
        return dict(recipe)

    async def recipe(self) -> dict[str, Any] | None:
        """Return what the run is made from; None if it was not made from a recipe."""
        return await asyncio.to_thread(self._reader.recipe)

    async def save_list(self, items: ItemList) -> None:
        """Store a list of items, or replace its shorter version."""
        await self._write(statements.SAVE_LIST, schema.LISTS.write(items))

    async def item_list(self, list_id: str) -> ItemList | None:
        """Return the list of items with this id, as far as it is known; None if not found."""
        return await asyncio.to_thread(self._reader.item_list, list_id)

    async def item_lists(self) -> AsyncIterator[ItemList]:
        """Yield all lists of items in the order in which they began, a hundred at a time."""
        last = 0
        while page := await asyncio.to_thread(self._reader.item_lists, last):
            last = page[-1][0]
            for _, items in page:
                yield items

    async def progress(self) -> AsyncIterator[Progress]:
        """Yield the state of every session, by id. Reads an index and not the sessions themselves."""
        last = ""
        while page := await asyncio.to_thread(self._reader.progress, last):
            last = page[-1].id
            for one in page:
                yield one

    async def list_imported(self) -> frozenset[str]:
        """Return the ids of the sessions that were imported and not made in this run."""
        return await asyncio.to_thread(self._reader.list_imported)

    async def failures(self) -> AsyncIterator[Failure]:
        """Yield the sessions that failed and were not resumed, in the order in which they began."""
        last = 0
        while page := await asyncio.to_thread(self._reader.failures, last):
            last = page[-1][0]
            for _, failure in page:
                yield failure

    async def mean_seconds(self) -> float | None:
        """Return the mean seconds of the last thousand turns that a model made; None if there are none."""
        return await asyncio.to_thread(self._reader.mean_seconds)

    async def count_spent(self) -> dict[str, Usage]:
        """Return the usage of the run by agent.

        Agents are ``user``, ``assistant``, ``critic``, ``task_specifier`` (with the planner) and ``lister``. Reads the
        row of every turn, which takes seconds for a million.
        """
        return await asyncio.to_thread(self._reader.count_spent)

    async def session(self, session_id: str) -> Session | None:
        """Return the session with this id and its stored turns; None if not found.

        Raises:
            StoreError: the session cannot be read, or one of its turns is damaged.
        """
        return await asyncio.to_thread(self._reader.session, session_id)

    async def outlines(
        self, after: int = 0, limit: int = 1000, ids: Sequence[str] | None = None
    ) -> list[Outline]:
        """Return the next sessions after row ``after`` without their turns; only those of ``ids`` if given."""
        return await asyncio.to_thread(self._reader.outlines, after, limit, ids)

    async def texts(self, ids: Sequence[str]) -> list[SpokenText]:
        """Return what was said in the sessions ``ids``. Checksums are not checked."""
        return await asyncio.to_thread(self._reader.texts, ids)

    async def find_touched(self, after: int) -> tuple[int, list[str]]:
        """Return the last row of the turns, and the ids of the sessions with turns after row ``after``."""
        return await asyncio.to_thread(self._reader.find_touched, after)

    async def sessions(self, rows: Rows | None = None) -> AsyncIterator[Session]:
        """Yield all sessions, or those of one slice, in the order of their beginning; a hundred at a time in memory."""
        last, until = rows or (0, _EVERY)
        while page := await asyncio.to_thread(self._reader.sessions, last, until):
            last = page[-1][0]
            for _, session in page:
                yield session

    async def slices(self, size: int) -> list[Rows]:
        """Return the present sessions in slices of at most ``size``, which can be read concurrently."""
        return await asyncio.to_thread(self._reader.slices, size)

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[SqliteStore]:
        """Provide a snapshot of the run, unaffected by later writes."""
        reading = open_snapshot(self.source)
        try:
            reader = Reader(self.path, reading)
            await asyncio.to_thread(reader.is_open)
            yield SqliteStore(self.path, reader, None, self.source)
        finally:
            close_engine(reading)

    async def is_open(self) -> bool:
        """Return True if a process writes the run, or was killed while it did."""
        return await asyncio.to_thread(self._reader.is_open)

    def _write(self, statement: Statement, row: tuple[Any, ...]) -> Awaitable[bool]:
        if self._writer is None:
            raise StoreError("The run was opened for reading only.", where=str(self.path))
        return self._writer.write(statement, row)


@asynccontextmanager
async def open_sqlite_store(path: Path, *, read_only: bool = False) -> AsyncGenerator[SqliteStore]:
    """Open the run at ``path``; unless ``read_only``, create it if missing.

    A run of an older version is migrated after a backup; if ``read_only``, a temporary copy of it is migrated instead.

    Raises:
        InputError: the file is not a run, or cannot be written.
        StoreError: the run is damaged, in use, or from a newer version.
    """
    path = follow_link(path)
    check_file(path, create=not read_only)
    if read_only:
        with ExitStack() as stack:
            source = await asyncio.to_thread(stack.enter_context, find_readable(path))
            reading = open_for_reading(source)
            stack.callback(close_engine, reading)
            yield SqliteStore(path, Reader(path, reading), None, source)
        return
    with lock_run(path) as lock:
        connection = await asyncio.to_thread(connect, path)
        lock.guard_run()
        writer = Writer(connection, path, lock.check)
        reading = open_for_reading(path)
        try:
            yield SqliteStore(path, Reader(path, reading), writer)
        finally:
            # The last connection to close deletes the write-ahead log if it has write access.
            close_engine(reading)
            await writer.close()
