"""A run in an SQLite file, which can be read while it is written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

from pydantic_core import from_json

from bactrian.errors import InputError, StoreError
from bactrian.files.recent_runs import add_recent_run
from bactrian.records import run as records
from bactrian.records.session import HUMAN, IMPORTED, Ending, Session, count_requests, infer_kind
from bactrian.records.turn import Decision, Deliberation, Proposal, ToolCall, ToolResult, Turn, Usage
from bactrian.stats.streaming import STEADY, Trend
from bactrian.store import database, write
from bactrian.store import record_tables as tables
from bactrian.store.lock import follow_link, lock_run

Rows = tuple[int, int]
"""A slice of a run: the row before its first one, and its last row."""
Item = TypeVar("Item")

_EVERY = 1 << 62
# Sessions read at a time, and rows of the index of progress, which are short.
_PAGE = 100
_WIDE_PAGE = 10_000
_ENDING = (*tables.ENDINGS.names, *tables.TOTALS.names)
_SAVE_TASK = tables.make_update("sessions", tables.PREPARATION.names, "id = ?")
_END = tables.make_update(
    "sessions", _ENDING, "id = ? AND (ending IS NULL OR ending IN ('failed', 'stopped'))"
)
_REOPEN = tables.make_update("sessions", _ENDING, "id = ? AND ending = 'max_messages'", "NULL")
_SAVE_RESULT = tables.make_update(
    "tools", tables.RESULT.names, "session = ? AND number = ? AND round = ? AND place = ?"
)
_REMOVE_MARK = tables.Statement(3, "DELETE FROM marks WHERE session = ? AND mark = ?")
_FREEZE = tables.make_insert("run", ("row", "recipe", "created"))
_EXTEND = tables.make_update("run", ("recipe",), '"row" = 1')
STATEMENTS = (
    *(
        table.insert
        for table in (
            tables.SESSIONS,
            tables.TURNS,
            tables.PROPOSALS,
            tables.DECISIONS,
            tables.TOOL_CALLS,
            tables.CALLS,
            tables.LISTS,
            tables.COMMANDS,
        )
    ),
    *(table.insert for table in (tables.CONFIRMATIONS, tables.MARKS, tables.VOTES)),
    *(_SAVE_TASK, _END, _REOPEN, _SAVE_RESULT, _REMOVE_MARK, _FREEZE, _EXTEND),
)
"""All statements that write, in an order by which two processes name them."""
# The failed sessions after a row, each with its row and its last failed call.
_FAILURES = f"""
SELECT failed."row", id, ending_turn, ending_evidence, error, coalesce(raw, x'')
FROM (
    SELECT "row", id, ending_turn, ending_evidence FROM sessions
    WHERE ending = 'failed' AND "row" > ? ORDER BY "row" LIMIT {_PAGE}
) AS failed
LEFT JOIN (
    SELECT session, error, raw FROM calls
    WHERE "row" IN (SELECT max("row") FROM calls WHERE error IS NOT NULL GROUP BY session)
) AS last ON last.session = failed.id
ORDER BY failed."row"
"""  # noqa: S608
# What has not ended, and whose last recorded call failed.
_UNANSWERED = f"""
SELECT session, ordinal, error, raw, (SELECT coalesce(max(calls), 0) FROM lists WHERE id = session) FROM calls
WHERE "row" IN (SELECT max("row") FROM calls GROUP BY session) AND error <> '{records.BROKEN_OFF}'
    AND session NOT IN (SELECT id FROM sessions WHERE ending IS NOT NULL UNION SELECT id FROM lists WHERE complete = 1)
ORDER BY "row"
"""  # noqa: S608
_TOKENS = ("prompt", "completion", "cached", "written")
_ADDED, _TAKEN_OFF = (
    ", ".join([*(f"{sign}total({name}_tokens)" for name in _TOKENS), about])
    for sign, about in (
        ("", "max(CASE WHEN prompt_tokens + completion_tokens > 0 THEN estimated ELSE 0 END)"),
        ("-", "0"),
    )
)
# The preparation of a session with both agents is stored as a sum; what of it the planner was paid is in its calls.
_PLANNED = (
    "agent = 'task_planner' AND error IS NULL AND session IN"
    " (SELECT id FROM sessions WHERE specified_task IS NOT NULL AND planned_task IS NOT NULL)"
)
_TAKEN_BACK = ", ".join([*(f"-total(json_extract(usage, '$.{name}'))" for name in _TOKENS), "0"])
_PREPARED, _USED = (
    f"{sums}, max(CASE WHEN json_extract({column}, '$.prompt') > 0"
    f" THEN coalesce(json_extract({column}, '$.estimated'), 0) ELSE 0 END)"
    for column in ("preparation", "usage")
    for sums in (", ".join(f"total(json_extract({column}, '$.{name}'))" for name in _TOKENS),)
)
_IN_TURN = "(session, number) IN (SELECT session, number FROM turns)"
_PREPARER = (
    "CASE WHEN specified_task IS NULL AND planned_task IS NOT NULL"
    " THEN 'task_planner' ELSE 'task_specifier' END"
)
_TIER_IN = "coalesce(json_extract({}, '$.tier'), '')"
_IN_PREPARATION, _IN_USAGE = _TIER_IN.format("preparation"), _TIER_IN.format("usage")
# Session, agent, tier, usage, table and condition of all that was paid for. The usage of a turn includes all that led
# to it, the critic's part too; what led to no turn, failed calls among it, was paid for as well.
_PAID = (
    ("session", "speaker", "tier", _ADDED, "turns", "1 = 1"),
    ("session", "speaker", "tier", _ADDED, "proposals", f"NOT {_IN_TURN}"),
    ("session", "speaker", "tier", _ADDED, "tools", f"NOT {_IN_TURN}"),
    ("session", "'critic'", "tier", _ADDED, "verdicts", "1 = 1"),
    ("session", "speaker", "tier", _TAKEN_OFF, "verdicts", _IN_TURN),
    ("id", _PREPARER, _IN_PREPARATION, _PREPARED, "sessions", "1 = 1"),
    ("''", "'lister'", _IN_USAGE, _USED, "lists", "1 = 1"),
    ("session", "agent", _IN_USAGE, _USED, "calls", "error IS NOT NULL"),
    ("session", "agent", _IN_USAGE, _USED, "calls", _PLANNED),
    ("session", "'task_specifier'", _IN_USAGE, _TAKEN_BACK, "calls", _PLANNED),
)


def _select_paid(*, each: bool, some: bool = False) -> str:
    """Return the query for what was paid for by agent, and with ``each`` by session; of ``some`` sessions only."""
    listed = "(SELECT value FROM json_each(?1))"
    return " UNION ALL ".join(
        f"SELECT {session if each else repr('')} AS paid_for, {agent} AS payer, {tier} AS served, {sums} FROM {table}"  # noqa: S608
        f" WHERE {condition}{f' AND {session} IN {listed}' if some else ''} GROUP BY paid_for, payer, served"
        for session, agent, tier, sums, table, condition in _PAID
    )


def _read_sums(sums: Sequence[Any], tier: str = "") -> Usage:
    prompt, completion, cached, written, estimated = sums
    with explain_values():
        return Usage(int(prompt), int(completion), int(cached), bool(estimated), int(written), tier)


def read_recipe(text: str) -> dict[str, Any]:
    """Return what a run is made from. Raises what :func:`explain_values` explains if it is of another form."""
    content: dict[str, Any] = from_json(text)
    names = [axis["name"] for axis in content["recipe"].get("axes", [])]
    if not all(isinstance(name, str) for name in (*names, *content.get("models", {}).values())):
        raise TypeError("the name of an axis or a model is none")
    return content


@contextmanager
def explain_values() -> Generator[None]:
    """Convert the errors that values of other types than ours raise: a column of SQLite takes any."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise StoreError(
            f"The run contains a value that no version of bactrian writes: {error}.",
            next="`bactrian verify` names the rows that were changed.",
        ) from error


class RunStore:
    """One run; :func:`open_store` opens it.

    A method that writes returns when the data is on disk, and writing the same thing twice stores it once. Every method
    raises StoreError if the run cannot be read or written, or if it was opened for reading only and is to be written.
    """

    def __init__(self, path: Path, connections: write.Connections, writer: write.RowWriter | None) -> None:
        self.path = path
        """The file of the run."""
        self._connections = connections
        self._writer = writer

    @property
    def source(self) -> Path:
        """The file that is read: the run, or a temporary copy of it that exists while the store is open."""
        return self._connections.path

    # Sessions

    async def begin(self, session: Session) -> Session:
        """Store ``session`` unless its id is known; return the stored session with turns and ending."""
        if await self._write(tables.SESSIONS.insert, (time.time(), *tables.SESSIONS.write(session))):
            return session
        stored = await self.session(session.id)
        if stored is None:
            raise StoreError(f"Session {session.id} was written and is missing.", where=str(self.path))
        return stored

    async def save_task(self, session: Session) -> None:
        """Store the specified and the planned task of ``session``, and their usage."""
        await self._write(_SAVE_TASK, (*tables.PREPARATION.write(session), session.id))

    async def add_turn(self, session: str, turn: Turn) -> None:
        """Store a turn of the session with this id."""
        await self._write(tables.TURNS.insert, (session, *tables.TURNS.write(turn)))

    async def end(self, session: str, ending: Ending, usage: Usage = Usage()) -> None:
        """Store the ending of the session with this id, and its total usage. A final ending is never replaced."""
        await self._write(_END, (*tables.ENDINGS.write(ending), *tables.TOTALS.write(usage), session))

    async def reopen(self, session: str) -> None:
        """Remove the ending of the session with this id if it stopped at its limit of messages."""
        await self._write(_REOPEN, (session,))

    async def session(self, session_id: str) -> Session | None:
        """Return the session with this id and its stored turns; None if not found.

        Raises:
            StoreError: the session cannot be read, or one of its turns is damaged.
        """
        return await self._read(write.read_session, session_id)

    async def sessions(self, rows: Rows | None = None) -> AsyncIterator[Session]:
        """Yield all sessions, or those of one slice, in the order of their beginning; a hundred at a time in memory."""
        after, until = rows or (0, _EVERY)
        query = f'{write.SELECT_SESSIONS} WHERE "row" > ? AND "row" <= {until} ORDER BY "row" LIMIT {_PAGE}'
        async for session in self._pages(query, after, write.read_session_row):
            yield session

    async def slices(self, size: int) -> list[Rows]:
        """Return the present sessions in slices of at most ``size``, which can be read concurrently."""
        rows = await self._query('SELECT coalesce(max("row"), 0) FROM sessions')
        return [(after, after + size) for after in range(0, rows[0][0], size)]

    async def outlines(
        self, after: int = 0, limit: int = 1000, ids: Sequence[str] | None = None
    ) -> list[records.Outline]:
        """Return the next sessions after row ``after`` without their turns; if given, all those of ``ids``."""
        only = "" if ids is None else "AND id IN (SELECT value FROM json_each(?))"
        query = f"""
            SELECT "row", id, assistant_role, user_role, original_task, specified_task, provenance, ending,
                (SELECT count(*) FROM turns WHERE session = id), created, mark, axis_values
            FROM sessions WHERE "row" > ? {only} ORDER BY "row" LIMIT ?
        """  # noqa: S608
        values = (after, limit) if ids is None else (after, tables.write_json(ids), -1)
        return await self._read(_list_outlines, query, values)

    async def texts(self, ids: Sequence[str]) -> list[records.SpokenText]:
        """Return what was said in the sessions ``ids``: session by session, in order. Checksums are not checked."""
        query = """
            SELECT session, number, speaker, text, prompt_tokens, completion_tokens, cached_tokens
            FROM turns WHERE session IN (SELECT value FROM json_each(?)) ORDER BY session, number
        """
        return list(map(records.SpokenText._make, await self._query(query, tables.write_json(ids))))

    async def find_touched(self, after: int) -> tuple[int, list[str]]:
        """Return the last row of the turns, and the ids of the sessions with turns after row ``after``."""
        ((last,),) = await self._query('SELECT coalesce(max("row"), 0) FROM turns')
        touched = await self._query('SELECT DISTINCT session FROM turns WHERE "row" > ?', after)
        return last, [session for (session,) in touched]

    async def progress(self) -> AsyncIterator[records.Progress]:
        """Yield the state of every session, by id. Reads an index and not the sessions themselves."""
        query = tables.PROGRESS.select(f"WHERE id > ? ORDER BY id LIMIT {_WIDE_PAGE}", "id")
        async for progress in self._pages(query, "", lambda _, row: tables.PROGRESS.read(row)):
            yield progress

    async def list_created(self) -> dict[str, float]:
        """Return when each session began, in seconds since 1970, by its id; the oldest first."""
        return dict(await self._query('SELECT id, created FROM sessions ORDER BY "row"'))

    async def measure_ids(self) -> int:
        """Return the characters of the longest id of a session; 0 without sessions."""
        return (await self._query("SELECT coalesce(max(length(id)), 0) FROM sessions"))[0][0]

    async def list_imported(self) -> frozenset[str]:
        """Return the ids of the sessions that were imported and not made in this run."""
        query = "SELECT id FROM sessions WHERE json_extract(provenance, '$.prompts') LIKE ?"
        return frozenset(session for (session,) in await self._query(query, f"{IMPORTED}%"))

    async def has_choices(self) -> bool:
        """Return True if a critic chose something in the run."""
        return bool(await self._query("SELECT 1 FROM verdicts LIMIT 1"))

    async def failures(self) -> AsyncIterator[records.Failure]:
        """Yield the sessions that failed and were not resumed; then what has not ended and was not answered last."""
        async for failure in self._pages(_FAILURES, 0, lambda _, row: records.Failure(*row)):
            yield failure
        for name, ordinal, error, raw, answered in await self._query(_UNANSWERED):
            session = await self.session(name)
            turns = session.turns if session else ()
            # Without a specifier or a planner, the first request is that for the first turn.
            is_prepared = session and {"task_specifier", "task_planner"} & session.provenance.models.keys()
            spoken = sum(turn.requests for turn in turns)
            if ordinal >= answered + (count_requests(session) if session and is_prepared else spoken):
                yield records.Failure(name, len(turns), error.partition("\n")[0], error, raw, open=True)

    # What led to the turns

    async def add_proposal(self, session: str, proposal: Proposal) -> None:
        """Store a candidate for a turn of the session with this id."""
        await self._write(tables.PROPOSALS.insert, (session, *tables.PROPOSALS.write(proposal)))

    async def add_decision(self, session: str, decision: Decision) -> None:
        """Store a decision on the candidates for a turn of the session with this id."""
        await self._write(tables.DECISIONS.insert, (session, *tables.DECISIONS.write(decision)))

    async def deliberation(self, session: str, *, after: int = 0) -> Deliberation:
        """Return the proposals and decisions of the session with this id, for the turns after turn ``after``."""
        where = "WHERE session = ? AND number > ? ORDER BY number, round"
        # The decisions first: what they choose among is stored before them, and so is read, too.
        decisions = await self._list(tables.DECISIONS, f"{where}, attempt", session, after)
        proposals = await self._list(tables.PROPOSALS, f"{where}, place", session, after)
        return Deliberation(tuple(proposals), tuple(decisions))

    async def add_tool_call(self, session: str, call: ToolCall) -> None:
        """Store a tool call of the session with this id."""
        await self._write(tables.TOOL_CALLS.insert, (session, *tables.TOOL_CALLS.write(call)))

    async def add_tool_result(self, session: str, result: ToolResult) -> None:
        """Store the result of a tool call that is stored already."""
        key = (session, result.number, result.round, result.place)
        await self._write(_SAVE_RESULT, (*tables.RESULT.write(result), *key))

    async def add_call(self, call: records.Call) -> None:
        """Store a call to a model, answered or not."""
        await self._write(tables.CALLS.insert, tables.CALLS.write(call))

    async def measure_tiers(self) -> dict[str, records.TierUse]:
        """Return how the last ten thousand turns that a model made were served, by tier; empty for the usual one."""
        query = """
            SELECT tier, count(*), total(number), total(number * number), coalesce(sum(seconds), 0.0),
                coalesce(sum(number * seconds), 0.0), total(cached_tokens), total(written_tokens), total(prompt_tokens)
            FROM (SELECT * FROM turns WHERE seconds > 0 ORDER BY "row" DESC LIMIT 10000) AS last GROUP BY tier
        """
        uses: dict[str, records.TierUse] = {}
        for tier, count, positions, squares, seconds, moment, cached, written, prompt in await self._query(
            query
        ):
            growth = Trend(count, positions, squares, seconds, moment).estimate_growth(0.0, STEADY)
            shares = cached / max(1, prompt), written / max(1, prompt)
            uses[tier] = records.TierUse(seconds / count, *shares, max(0.0, growth), positions / count)
        return uses

    async def list_spent(
        self, sessions: Sequence[str] | None = None, *, each: bool = True
    ) -> list[records.Spent]:
        """Return what was paid for by session, agent and tier: turns, what led to them, lists, failed calls.

        Agents are those of the sessions, and ``critic``, ``task_specifier``, ``task_planner`` and ``lister``. Reads the
        row of every turn, which takes seconds for a million.

        Args:
            sessions: Ids of the sessions to count; None for the whole run, with its lists.
            each: False to add up the sessions.
        """
        values = () if sessions is None else (tables.write_json(sessions),)
        spent: dict[tuple[str, str, str], Usage] = {}
        rows = await self._query(_select_paid(each=each, some=sessions is not None), *values)
        for session, agent, tier, *sums in rows:
            before = spent.get((session, agent, tier), Usage(tier=tier))
            spent[session, agent, tier] = before + _read_sums(sums, tier)
        return [
            records.Spent(session, agent, usage)
            for (session, agent, _), usage in spent.items()
            if usage.total
        ]

    async def count_late(self, first: int) -> Usage:
        """Return the usage of all turns with a number of at least ``first``."""
        query = f"SELECT {_ADDED} FROM turns WHERE number >= ?"  # noqa: S608
        return _read_sums((await self._query(query, first))[0])

    async def list_judged(self) -> dict[str, Usage]:
        """Return the usage of the judges of findings, by judge."""
        query = f"SELECT judge, {_ADDED} FROM confirmations GROUP BY judge"  # noqa: S608
        return {judge: _read_sums(sums) for judge, *sums in await self._query(query)}

    async def list_models(self) -> dict[str, Mapping[str, str]]:
        """Return the models of each session by agent, by the session's id."""
        parse = cache(from_json)
        rows = await self._query("SELECT id, json_extract(provenance, '$.models') FROM sessions")
        with explain_values():
            return {session: dict(parse(models)) for session, models in rows}

    async def list_prompts(self) -> list[tuple[str, str, str | None]]:
        """Return the prompts of all sessions: their names, their hashes, and those of the program's own texts."""
        keys = "json_extract(provenance, '$.prompts'), json_extract(provenance, '$.prompts_hash')"
        query = f"SELECT DISTINCT {keys}, json_extract(provenance, '$.engine_hash') FROM sessions"  # noqa: S608
        return list(await self._query(query))

    async def list_attended(self, ids: Sequence[str]) -> frozenset[str]:
        """Return those of the sessions ``ids`` in which a person wrote a turn or chose one."""
        query = """
            WITH asked AS (SELECT value FROM json_each(?2))
            SELECT session FROM turns WHERE model = ?1 AND session IN asked
            UNION SELECT session FROM verdicts WHERE model = ?1 AND session IN asked
        """
        return frozenset(session for (session,) in await self._query(query, HUMAN, tables.write_json(ids)))

    async def has_person(self) -> bool:
        """Return whether a person wrote a turn or chose one. Reads no turns of a run from a recipe: models made it."""
        query = "SELECT 1 FROM turns WHERE model=?1 UNION ALL SELECT 1 FROM verdicts WHERE model=?1 LIMIT 1"
        return await self.recipe() is None and bool(await self._query(query, HUMAN))

    async def count_rows(self) -> tuple[int, int]:
        """Return the number of sessions and that of turns."""
        return (await self._query("SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM turns)"))[0]

    async def count_distinct(self) -> tuple[int, int, int]:
        """Return the number of sessions, of different pairs of roles, and of different original tasks."""
        query = (
            "SELECT count(*), count(DISTINCT json_array(assistant_role, user_role)), count(DISTINCT original_task)"
            " FROM sessions"
        )
        return (await self._query(query))[0]

    # The run

    async def freeze(self, recipe: Mapping[str, Any]) -> dict[str, Any]:
        """Store what the run is made from, unless it is stored already; return what is stored."""
        await self._write(_FREEZE, (1, tables.write_json(recipe), time.time()))
        stored = await self.recipe()
        assert stored is not None
        return stored

    async def extend(self, recipe: Mapping[str, Any]) -> dict[str, Any]:
        """Replace what the run is made from by the same with a larger limit or other paths; return what is stored."""
        await self._write(_EXTEND, (tables.write_json(recipe),))
        return dict(recipe)

    async def recipe(self) -> dict[str, Any] | None:
        """Return what the run is made from; None if it was not made from a recipe."""
        rows = await self._query("SELECT recipe FROM run")
        with explain_values():
            return read_recipe(rows[0][0]) if rows else None

    async def save_list(self, items: records.ItemList) -> None:
        """Store a list of items, or replace its shorter version."""
        await self._write(tables.LISTS.insert, tables.LISTS.write(items))

    async def item_list(self, list_id: str) -> records.ItemList | None:
        """Return the list of items with this id, as far as it is known; None if not found."""
        lists = await self._list(tables.LISTS, "WHERE id = ?", list_id)
        return lists[0] if lists else None

    async def item_lists(self) -> AsyncIterator[records.ItemList]:
        """Yield all lists of items in the order in which they began, a hundred at a time."""
        query = tables.LISTS.select(f'WHERE "row" > ? ORDER BY "row" LIMIT {_PAGE}', "row")
        async for items in self._pages(query, 0, lambda _, row: tables.LISTS.read(row)):
            yield items

    async def add_command(self, command: records.Command) -> None:
        """Store a command that works on the run; one with other prices, with what was paid for before it."""
        keys = {*records.list_keys(command.session)} if command.session else set[str]()
        before = [each for each in await self.commands() if each.verb == command.verb]
        before = [each for each in before if not keys or keys & {*records.list_keys(each.session)}]
        if before and before[-1].options.get("prices") != command.options.get("prices"):
            ended = {
                each.id
                async for each in self.progress()
                if not each.goes_on and each.ending != "max_messages"
            }
            paid = [
                (session, agent, used.tier, used.prompt, used.completion, used.cached, used.written)
                for session, agent, used in await self.list_spent()
                if session not in ended and (not keys or keys & {*records.list_keys(session)})
            ]
            command = replace(command, options={**command.options, records.PAID: paid})
        await self._write(tables.COMMANDS.insert, tables.COMMANDS.write(command))

    async def commands(self) -> list[records.Command]:
        """Return the commands that worked on the run, the oldest first."""
        return await self._list(tables.COMMANDS, 'ORDER BY "row"')

    async def is_open(self) -> bool:
        """Return True if a process writes the run, or was killed while it did."""
        return (await self._query("PRAGMA user_version"))[0][0] == database.IS_OPEN

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[RunStore]:
        """Provide the run as it is now, however long the reading takes and whatever is written meanwhile.

        The log of later writes cannot be cleaned up while it is open, so close it soon.
        """
        snapshot = write.Snapshot(self.source)
        try:
            store = RunStore(self.path, snapshot, None)
            await store.recipe()  # the first read fixes the state
            yield store
        finally:
            await asyncio.to_thread(snapshot.close)

    # What people and judges say of sessions

    async def add_confirmation(self, confirmation: records.Confirmation) -> None:
        """Store a reader's answer about a finding, or replace the one that the same reader gave before."""
        await self._write(tables.CONFIRMATIONS.insert, tables.CONFIRMATIONS.write(confirmation))

    async def confirmations(
        self, judge: str | None = None, session: str | None = None
    ) -> list[records.Confirmation]:
        """Return the answers of all readers, or of one judge or about one session, in the order of time."""
        wanted = {"session": session, "judge": judge}
        given = {column: value for column, value in wanted.items() if value is not None}
        rest = " AND ".join(f"{column} = ?" for column in given)
        where = f"WHERE {rest}" if given else ""
        return await self._list(tables.CONFIRMATIONS, f'{where} ORDER BY "row"', *given.values())

    async def sign_answers(self) -> tuple[int, int]:
        """Return something that differs after each change of what readers say; it takes less than to read that."""
        return (await self._query("SELECT count(*), coalesce(sum(seal), 0) FROM confirmations"))[0]

    async def answers(self) -> dict[records.FindingKey, bool]:
        """Return what readers say of findings: see :func:`merge_answers`."""
        return records.merge_answers(await self.confirmations())

    async def add_mark(self, mark: records.Mark) -> None:
        """Store a mark of a session that is stored, or replace the note of the same mark."""
        await self._write(tables.MARKS.insert, tables.MARKS.write(mark))

    async def remove_mark(self, session: str, mark: str) -> None:
        """Remove a mark of the session with this id; do nothing if the session does not have it."""
        await self._write(_REMOVE_MARK, (session, mark))

    async def marks(self, session: str | None = None) -> list[records.Mark]:
        """Return the marks of all sessions, or of the session with this id, in the order of their first setting."""
        return await self._list(tables.MARKS, 'WHERE session = coalesce(?, session) ORDER BY "row"', session)

    async def add_vote(self, vote: records.Vote) -> None:
        """Store a vote on solutions of a session that is stored, or replace the one of the same voter on the pair."""
        await self._write(tables.VOTES.insert, tables.VOTES.write(vote))

    async def votes(self) -> list[records.Vote]:
        """Return all votes in the order in which they were first given."""
        return await self._list(tables.VOTES, 'ORDER BY "row"')

    @property
    def writer(self) -> write.RowWriter:
        """What writes to the run."""
        if self._writer is None:
            raise StoreError("The run was opened for reading only.", where=str(self.path))
        return self._writer

    def _write(self, statement: tables.Statement, row: tuple[Any, ...]) -> Awaitable[bool]:
        return self.writer.write(statement, statement.seal(row))

    async def _list(self, table: tables.Table[tables.Record], rest: str, *values: Any) -> list[tables.Record]:
        def read(connection: write.Connection) -> list[tables.Record]:
            return list(map(table.read, write.fetch(connection, table.select(rest), values)))

        return await self._read(read)

    async def _query(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return await self._read(write.fetch, sql, values)

    async def _pages(
        self, query: str, last: Any, read: Callable[[write.Connection, Sequence[Any]], Item]
    ) -> AsyncIterator[Item]:
        """Yield what ``read`` makes of the rows of ``query``, a page at a time in memory.

        Their first column is a key, which ``read`` does not get; the query asks for those after ``last``.
        """

        def read_page(connection: write.Connection) -> list[tuple[Any, Item]]:
            return [(key, read(connection, row)) for key, *row in write.fetch(connection, query, (last,))]

        while page := await self._read(read_page):
            last = page[-1][0]
            for _, item in page:
                yield item

    async def _read(self, function: Callable[..., Item], *values: Any) -> Item:
        """Call ``function`` with a connection and ``values`` in a thread."""

        def work() -> Item:
            with (
                database.explain_errors(self.path),
                self._connections.borrow() as connection,
                explain_values(),
            ):
                return function(connection, *values)

        return await asyncio.to_thread(work)


_OUTLINE = (int, *(str,) * 4, (str, NoneType), str, (str, NoneType), int, (int, float), (str, NoneType), str)


def _list_outlines(connection: write.Connection, query: str, values: Sequence[Any]) -> list[records.Outline]:
    outlines: list[records.Outline] = []
    for row in map(list[Any], write.fetch(connection, query, values)):
        if not all(isinstance(value, kinds) for value, kinds in zip(row, _OUTLINE, strict=True)):
            raise TypeError(f"row {row[0]} of its sessions")
        # The JSON as it is, since building the records would take most of the time.
        origin: Mapping[str, Any] = from_json(row[6])
        models: Mapping[str, str] = dict(origin.get("models") or {})
        row[6:7] = origin.get("language"), models, infer_kind(models, has_cast=bool(origin.get("cast")))
        row[-1] = dict[str, str](from_json(row[-1]))
        row.extend((bool(origin.get("needs_code")), str(origin.get("prompts")).startswith(IMPORTED)))
        row.append(tuple(str(role["name"]) for role in dict(origin.get("cast") or {}).values()))
        outlines.append(records.Outline(*row))
    return outlines


@asynccontextmanager
async def open_store(path: Path, *, read_only: bool = False) -> AsyncGenerator[RunStore]:
    """Open the run at ``path``; unless ``read_only``, create it if missing.

    A new run that is closed by a refusal (InputError) before anything was written to it is removed again.

    Raises:
        InputError: the file is not a run, or cannot be written.
        StoreError: the run is damaged, in use, or has another schema.
    """
    path = follow_link(path)
    database.check_file(path, create=not read_only)
    if read_only:
        with ExitStack() as stack:
            database.warn_of_missing_log(path)
            connections = write.Connections(
                await asyncio.to_thread(stack.enter_context, database.find_readable(path))
            )
            stack.callback(connections.close)
            yield RunStore(path, connections, None)
        return
    file = path.absolute()  # A tool may change the working folder.
    with lock_run(file) as lock:
        refused, is_new = False, not file.exists()
        connection = await asyncio.to_thread(database.connect, file)
        try:
            lock.guard_run()
        except BaseException:
            connection.close()
            raise
        add_recent_run(file)
        writer = write.Writer(connection, path, lock.check)
        connections = write.Connections(file)
        try:
            yield RunStore(path, connections, writer)
        except InputError:
            refused = True
            raise
        finally:
            # The last connection to close deletes the write-ahead log if it has write access.
            connections.close()
            await writer.close()
            if refused and is_new and not writer.has_written:
                file.unlink(missing_ok=True)
