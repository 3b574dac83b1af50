"""A worker of a shared run: its lease, the blocks of jobs and the lists that it claims, and what it may spend."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

from bactrian.errors import InputError, StoreError
from bactrian.records.turn import Usage
from bactrian.runs.claims import Claims, JobBlock
from bactrian.runs.progress import RunProgress
from bactrian.runs.spending import read_spending
from bactrian.runs.wiring import RunOrder
from bactrian.shared.postgres import PATIENCE, Outage, Server, create_tables, end_stopped, fetch, translate
from bactrian.shared.reading import SUMS, SharedStore, WorkDone
from bactrian.store import RunStore
from bactrian.store.locations import LEASES, RunAddress
from bactrian.store.record_tables import Statement
from bactrian.store.store import explain_values
from bactrian.store.write import GroupCommit

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")
_MOST_JOBS = 64
"""Jobs of a block; fewer towards the end, so that no worker is idle while another one has many left."""
_SHARES = 4
"""Blocks that each worker would get of what is left."""
_SLICES = 20
"""Parts of what is left of a limit, of which each worker gets one at a time."""
_LONGEST_WAIT = 1.0
_PATIENT_FOR = 15.0
"""Seconds that a call waits for others to give back what they do not use of the budget."""
_LONGEST_BEAT = 5.0
"""Seconds between two signs of life, which also tell `status` how far each worker is."""
_LIVE = "(SELECT count(*) FROM workers WHERE NOT dead AND NOT gone)"
# Not by how much it changes: a transaction whose answer is lost is repeated.
_GRANT = "UPDATE workers SET granted_usd = %s, granted_tokens = %s WHERE id = %s"
# A first reply may take more than was granted.
_OTHERS = """
SELECT coalesce(sum(greatest(granted_usd, usd)), 0)::float,
    coalesce(sum(greatest(granted_tokens, prompt_tokens + completion_tokens)), 0)::bigint,
    count(*) FILTER (WHERE NOT dead AND NOT gone),
    coalesce(bool_or(NOT dead AND NOT gone
        AND (granted_usd > usd + 1e-9 OR granted_tokens > prompt_tokens + completion_tokens)), false)
FROM workers WHERE id <> %s
"""
# While the database is away, nobody can be heard. So only a worker reaps that was itself heard of for a whole lease
# without a gap; or where the other one has given up by now.
_REAP = """
UPDATE workers SET dead = true WHERE id IN (
    SELECT workers.id FROM workers, frontier, workers AS me WHERE me.id = %(me)s
        AND NOT workers.dead AND NOT workers.gone
        AND workers.seen < clock_timestamp() - lease * interval '1 second'
        AND ((me.since < clock_timestamp() - lease * interval '1 second'
                AND me.seen > clock_timestamp() - lease / 2 * interval '1 second')
            OR workers.seen < clock_timestamp() - (lease + %(patience)s) * interval '1 second')
    FOR UPDATE OF workers SKIP LOCKED
)
"""
# A claim whose answer was lost is this worker's, and is not among those that it knows.
_TAKE_OVER = """
UPDATE claims SET worker = %(me)s, state = 'playing' WHERE start = (
    SELECT start FROM claims JOIN workers ON workers.id = claims.worker
    WHERE state = 'playing' AND start < %(stop)s
        AND (dead OR gone OR (worker = %(me)s AND start <> ALL (%(mine)s::bigint[])))
    ORDER BY start LIMIT 1 FOR UPDATE OF claims SKIP LOCKED
) RETURNING start, stop, retry
"""
_ADVANCE = f"""
WITH before AS (SELECT next FROM frontier FOR UPDATE), size AS (
    SELECT next, greatest(1, least(
        {_MOST_JOBS} / %(unit)s::bigint, (%(stop)s::bigint - next) / ({_SHARES} * {_LIVE}) / %(unit)s::bigint
    )) * %(unit)s::bigint AS jobs FROM before
), moved AS (
    UPDATE frontier SET next = least(%(stop)s::bigint, size.next + size.jobs) FROM size WHERE size.next < %(stop)s
    RETURNING size.next AS start, frontier.next AS stop
)
INSERT INTO claims (start, stop, worker) SELECT start, stop, %(me)s FROM moved RETURNING start, stop
"""  # noqa: S608
_OTHERS_PLAY = """
SELECT EXISTS (SELECT FROM claims WHERE state = 'playing' AND start < %(stop)s AND worker <> %(me)s)
"""
_SET_SUMS = ", ".join(f"{column} = %s" for column in SUMS.split(", "))
# A worker was killed, and nobody plays but this one.
_IS_UNSETTLED = """
SELECT EXISTS (SELECT FROM workers WHERE dead) AND NOT EXISTS (
    SELECT FROM claims JOIN workers ON workers.id = claims.worker
    WHERE state = 'playing' AND NOT dead AND NOT gone AND worker <> %s
)
"""
_BEAT = f"""
UPDATE workers SET seen = clock_timestamp(),
    since = CASE WHEN seen > clock_timestamp() - lease / 2 * interval '1 second' THEN since ELSE clock_timestamp() END,
    {_SET_SUMS} FROM frontier WHERE id = %s
"""  # noqa: S608


@dataclass(slots=True)
class SharedProgress:
    """Adds to the progress of this process what others do."""

    progress: RunProgress
    _others: WorkDone = field(default_factory=WorkDone)

    def report(self) -> WorkDone:
        """Return what this process has done."""
        progress, others = self.progress, self._others
        usage, usd = progress.used_here
        endings = Counter(progress.endings)
        endings.subtract(others.endings)
        return WorkDone(usage, usd, progress.meter.calls, endings, sum(progress.admission.outlook.open))

    def learn(self, others: WorkDone) -> None:
        """Count what others have done since the last time."""
        before, usage = self._others, others.usage
        self.progress.count_before(usage - before.usage, others.usd - before.usd)
        if others.calls:
            meter = self.progress.meter
            meter.longest_tokens = max(meter.longest_tokens, usage.completion // others.calls)
        self.progress.done += sum(others.endings.values()) - sum(before.endings.values())
        self.progress.total = max(self.progress.total, self.progress.done)  # 0 if this one makes lists only
        self.progress.endings.update(others.endings)
        self.progress.endings.subtract(before.endings)
        self._others = others


class SharedClaims:
    """The claims of one worker; see :class:`~bactrian.runs.claims.Claims`."""

    def __init__(self, server: Server, worker: int, lease: float, store: RunStore) -> None:
        self._server = server
        self._worker = worker
        self._lease = lease
        self._store = store
        self._report: Callable[[], WorkDone] = WorkDone
        self._learn: Callable[[WorkDone], object] = lambda _: None
        self._divide: Callable[[int, float], object] = lambda _parts, _wait: None
        self._live = 0
        self._mine: set[int] = set()
        self._granted_usd = 0.0
        self._granted_tokens = 0
        self._asking, self._telling = asyncio.Lock(), asyncio.Lock()

    @property
    def seconds(self) -> float:
        """Seconds between two signs of life."""
        return min(self._lease / 3, _LONGEST_BEAT)

    async def begin(
        self, jobs: str, progress: RunProgress, divide: Callable[[int, float], object], *, retry: bool
    ) -> None:
        """Join the run."""

        def begin(connection: psycopg.Connection[Any]) -> bool:
            ((before, others),) = fetch(connection, f"SELECT jobs, {_LIVE} - 1 FROM frontier FOR UPDATE")  # noqa: S608
            if before not in ("", jobs):
                if others:
                    return False
                connection.execute("DELETE FROM claims")
                connection.execute("UPDATE frontier SET next = 0")
            connection.execute("UPDATE frontier SET jobs = %s", (jobs,))
            # Each command tries again what an earlier one left open, and takes over what nobody plays.
            connection.execute(
                "UPDATE claims SET worker = %s, state = 'playing' WHERE state = 'open'", (self._worker,)
            )
            if retry:
                connection.execute(
                    "UPDATE claims SET worker = %s, state = 'playing', retry = true WHERE state = 'done'",
                    (self._worker,),
                )
            if not others:
                # What workers were granted and did not use: what they used is known to the last sign of life.
                connection.execute(
                    "UPDATE workers SET granted_usd = usd, granted_tokens = prompt_tokens + completion_tokens"
                )
            return True

        if not await self._transact(begin):
            raise InputError(
                "Other workers play the jobs of this run in another order.",
                where=str(self._server.address),
                next="Give all workers the same order and sample.",
            )
        shared, meter = SharedProgress(progress), progress.meter
        self._report, self._learn, self._divide = shared.report, shared.learn, divide

        async def ask(held: tuple[int, float]) -> bool:
            tokens, usd = held
            done = shared.report()
            most = replace(done, usage=done.usage + Usage(tokens), usd=done.usd + usd)
            return await self.grant(meter.max_usd, meter.max_tokens, most, alone=meter.in_flight == 1)

        meter.grant = ask if meter.limited else None
        await self._settle()
        await self.beat()

    async def claim(self, stop: int, unit: int) -> JobBlock | float | None:
        """Return the next block, the seconds to wait, or None if nothing is left."""

        def claim(connection: psycopg.Connection[Any]) -> JobBlock | bool:
            mine = list(self._mine)
            values = {"me": self._worker, "stop": stop, "unit": unit, "mine": mine, "patience": PATIENCE}
            for sql in (_TAKE_OVER, _ADVANCE):
                for block in fetch(connection, sql, values):
                    return JobBlock(*block)
            connection.execute(_REAP, values)
            return fetch(connection, _OTHERS_PLAY, values)[0][0]

        answer = await self._transact(claim)
        if isinstance(answer, JobBlock):
            self._mine.add(answer.start)
            return answer
        if not answer:
            await self._settle()
            await self.beat()  # learns what the others did last
        elif not self._mine and (self._granted_usd or self._granted_tokens):
            await self._give_back()  # a call of another worker may wait for it
        return min(_LONGEST_WAIT, self._lease / 10) if answer else None

    async def finish(self, block: JobBlock, *, whole: bool) -> None:
        """Note that the jobs of ``block`` have ended; not ``whole`` if some of them were left open."""
        sql = "UPDATE claims SET state = %s, retry = false WHERE start = %s AND worker = %s"
        values = "done" if whole else "open", block.start, self._worker
        # Who finds that nobody plays any more has to find how these jobs ended, too.
        await self._tell(lambda connection, _: connection.execute(sql, values))
        self._mine.discard(block.start)

    async def find_ended(self, ids: Sequence[str], *, retry: bool) -> set[str]:
        """Return those of the sessions ``ids`` that have ended; with ``retry``, without the failed ones."""
        sql = "SELECT id FROM sessions WHERE id = ANY (%s) AND ending IS NOT NULL"
        if retry:
            sql += " AND ending <> 'failed'"
        rows = await self._transact(lambda connection: fetch(connection, sql, (list(ids),)))
        return {session for (session,) in rows}

    @asynccontextmanager
    async def ask_alone(self, list_id: str) -> AsyncGenerator[None]:
        """Wait until no other process asks for this list, and keep others from asking meanwhile."""

        def ask(connection: psycopg.Connection[Any]) -> bool:
            sql = """
                INSERT INTO list_claims (id, worker) VALUES (%s, %s) ON CONFLICT (id) DO UPDATE
                SET worker = excluded.worker WHERE list_claims.worker = excluded.worker
                    OR EXISTS (SELECT FROM workers WHERE workers.id = list_claims.worker AND (dead OR gone))
                RETURNING id
            """
            if fetch(connection, sql, (list_id, self._worker)):
                return True
            connection.execute(_REAP, {"me": self._worker, "patience": PATIENCE})
            return False

        while not await self._transact(ask):  # noqa: ASYNC110  other processes tell nobody
            await asyncio.sleep(min(_LONGEST_WAIT, self._lease / 10))
        try:
            yield
        finally:
            sql = "DELETE FROM list_claims WHERE id = %s AND worker = %s"
            await self._transact(lambda connection: connection.execute(sql, (list_id, self._worker)))

    async def grant(self, usd: float | None, tokens: int | None, most: WorkDone, *, alone: bool) -> bool:
        """Return True if this process may use as much as ``most`` in all, within the limits of the run.

        A call that is ``alone`` gives back what this process was granted and did not use, and waits a while for others
        to do the same: what one call may take at most can be all that is left, and is much more than it takes.
        """
        waited, pause = 0.0, min(_LONGEST_WAIT, self._lease / 10)
        while not await self._ask(usd, tokens, most):
            if not alone or waited > _PATIENT_FOR or not await self._give_back():
                return False
            # Not all at the same time, or each would find what the others hold.
            await asyncio.sleep(pause * (1 + self._worker % 7 / 7))
            waited += pause
        return True

    async def _ask(self, usd: float | None, tokens: int | None, most: WorkDone) -> bool:
        async with self._asking:
            missing_usd = 0.0 if usd is None else max(0.0, most.usd - self._granted_usd)
            missing_tokens = 0 if tokens is None else max(0, most.usage.total - self._granted_tokens)
            if not missing_usd and not missing_tokens:
                return True

            def grant(connection: psycopg.Connection[Any]) -> tuple[float, int] | None:
                connection.execute("SELECT FROM frontier FOR UPDATE")
                ((used_usd, used_tokens, live, _),) = fetch(connection, _OTHERS, (self._worker,))
                left_usd = 0.0 if usd is None else usd - used_usd - self._granted_usd
                left_tokens = 0 if tokens is None else tokens - used_tokens - self._granted_tokens
                if missing_usd > left_usd or missing_tokens > left_tokens:
                    return None
                parts = _SLICES * (live + 1)
                slice_usd = max(missing_usd, left_usd / parts) if missing_usd else 0.0
                slice_tokens = max(missing_tokens, left_tokens // parts) if missing_tokens else 0
                granted = self._granted_usd + slice_usd, self._granted_tokens + slice_tokens
                connection.execute(_GRANT, (*granted, self._worker))
                return granted

            answer = await self._transact(grant)
            if answer is None:
                return False
            self._granted_usd, self._granted_tokens = answer
            return True

    async def _give_back(self) -> bool:
        """Give back what was granted and not used; return True if other workers have more than they used."""
        async with self._asking:

            def give(connection: psycopg.Connection[Any], done: WorkDone) -> tuple[bool, tuple[float, int]]:
                used = done.usd, done.usage.total
                connection.execute(_GRANT, (*used, self._worker))
                return fetch(connection, _OTHERS, (self._worker,))[0][3], used

            held, used = await self._tell(give)
            gave = self._granted_usd > used[0] or self._granted_tokens > used[1]
            self._granted_usd, self._granted_tokens = used
            return held or gave

    async def beat(self) -> None:
        """Give a sign of life with what this worker has done, and learn what the others have done."""

        def beat(connection: psycopg.Connection[Any], _: WorkDone) -> list[tuple[Any, ...]]:
            end_stopped(connection)
            connection.execute(_REAP, {"me": self._worker, "patience": PATIENCE})
            sql = f"SELECT {SUMS}, NOT (dead OR gone) FROM workers WHERE id <> %s"  # noqa: S608
            return fetch(connection, sql, (self._worker,))

        began = time.monotonic()
        others = await self._tell(beat)
        self._learn(add_up(others))
        live = 1 + sum(row[-1] for row in others)
        if live != self._live:
            # The others send less from their next sign of life on.
            self._divide(live, 0.0 if self._live or live == 1 else self.seconds)
            self._live = live
        if (took := time.monotonic() - began) > self._lease / 2:
            self._server.outage.say(
                f"A sign of life took {took:.0f} s, and the lease is {self._lease:.0f} s."
            )

    async def _settle(self) -> None:
        """Add to a dead worker what it did after its last sign of life, as the run has it, once nobody plays."""

        def find(connection: psycopg.Connection[Any], _: WorkDone) -> bool:
            return fetch(connection, _IS_UNSETTLED, (self._worker,))[0][0]

        if not await self._tell(find):
            return
        spent = await read_spending(self._store)
        ended = Counter[str]([each.ending async for each in self._store.progress() if each.ending])

        def settle(connection: psycopg.Connection[Any]) -> None:
            connection.execute("SELECT FROM frontier FOR UPDATE")
            known = add_up(fetch(connection, f"SELECT {SUMS} FROM workers"))  # noqa: S608
            ((last, *row),) = fetch(
                connection,
                f"SELECT id, {SUMS} FROM workers WHERE dead ORDER BY id DESC LIMIT 1",  # noqa: S608
            )
            before, more = add_up([row]), spent.usage - known.usage
            used = before.usage + Usage(max(0, more.prompt), max(0, more.completion), max(0, more.cached))
            usd = before.usd + max(0.0, (spent.usd or 0.0) - known.usd)
            # A conversation that it ended, but had not stored, was ended by another one, too.
            endings = Counter(before.endings)
            endings.update(ended)
            endings.subtract(known.endings)
            done = WorkDone(used, usd, before.calls, endings, before.in_flight)
            connection.execute(f"UPDATE workers SET {_SET_SUMS} WHERE id = %s", (*done.list_sums(), last))  # noqa: S608

        await self._transact(settle)

    async def leave(self) -> None:
        """Leave the run, so that others play at once what is left, and give back what was granted and not used."""

        def leave(connection: psycopg.Connection[Any], done: WorkDone) -> None:
            connection.execute("UPDATE workers SET gone = true WHERE id = %s", (self._worker,))
            connection.execute(_GRANT, (done.usd, done.usage.total, self._worker))

        await self._tell(leave)

    async def _tell(self, work: Callable[[psycopg.Connection[Any], WorkDone], T]) -> T:
        """Do ``work`` in a transaction that writes what this worker has done, which ``work`` is given."""
        async with self._telling:  # Otherwise an older count could follow a newer one.
            done = self._report()

            def tell(connection: psycopg.Connection[Any]) -> T:
                connection.execute(_BEAT, (*done.list_sums(), self._worker))
                return work(connection, done)

            return await self._transact(tell)

    async def _transact(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        return await asyncio.to_thread(partial(self._server.transact, work, worker=self._worker))


def add_up(rows: Sequence[Sequence[Any]]) -> WorkDone:
    """Return the sum of what workers have done, each a row of its columns in the order of ``SUMS``.

    Raises:
        StoreError: a row was changed to what cannot be added up.
    """
    endings: Counter[str] = Counter()
    with explain_values():
        for row in rows:
            endings.update({str(code): int(count) for code, count in json.loads(row[6]).items()})
            if not isfinite(row[4]):
                raise ValueError(f"{row[4]} US dollars")
    calls, prompt, completion, cached, usd, in_flight = (
        sum(row[place] for row in rows) for place in range(6)
    )
    return WorkDone(Usage(prompt, completion, cached), usd, calls, endings, in_flight)


@asynccontextmanager
async def open_worker(address: RunAddress, order: RunOrder) -> AsyncGenerator[tuple[RunStore, Claims | None]]:
    """Join the run at ``address`` as a worker; create it if missing.

    Raises:
        InputError: the database cannot be used, or the run is of another version of the program.
        MissingExtra: psycopg is not installed.
    """
    outage = Outage(order.access.report)
    server, writing = Server(address, outage), Server(address, outage)
    await asyncio.to_thread(server.open)
    await asyncio.to_thread(create_tables, server, address.lease)
    await asyncio.to_thread(writing.open)
    name = f"{socket.gethostname()}:{os.getpid()}"
    sql = "INSERT INTO workers (name) VALUES (%s) RETURNING id, (SELECT lease FROM frontier)"
    ((worker, lease),) = await asyncio.to_thread(
        server.transact, lambda connection: fetch(connection, sql, (name,))
    )
    server.timeline = writing.timeline = await asyncio.to_thread(server.read_timeline)
    if not LEASES[0] <= lease <= LEASES[1]:  # a hand has changed it
        raise InputError(
            f"The lease of the run is {lease:g} s.", where=str(address), next="Add ?lease=60 to the address."
        )
    writer = SharedWriter(writing, worker)
    store = SharedStore(order.run, server, writer)
    claims = SharedClaims(server, worker, lease, store)
    keeping = asyncio.create_task(_keep(claims, (server, writing), lease))
    try:
        yield store, claims
    finally:
        for each in (server, writing):
            each.give_up(min(lease, 10.0))
        await writer.close()
        with suppress(StoreError):
            await claims.leave()
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
        server.close()


async def _keep(claims: SharedClaims, servers: Sequence[Server], lease: float) -> None:
    """Give signs of life until cancelled, and make a connection again that has no answer for a third of the lease."""
    beating = asyncio.create_task(_beat(claims))
    try:
        while True:
            await asyncio.sleep(lease / 15)
            for server in servers:
                server.cut(lease / 3)
    finally:
        beating.cancel()


async def _beat(claims: SharedClaims) -> None:
    with suppress(StoreError):  # The next event of a session cannot be stored then, which ends the work.
        while True:
            await asyncio.sleep(claims.seconds)
            await claims.beat()


class SharedWriter(GroupCommit):
    """Writes what one worker makes; a group is one round trip, and is sent again if the connection breaks."""

    def __init__(self, server: Server, worker: int) -> None:
        super().__init__(str(server.address))
        self._server = server
        self._worker = worker

    def commit(self, rows: Mapping[Statement, Sequence[tuple[Any, ...]]]) -> Mapping[Statement, bool]:
        """Write a group; return for each statement whether all its rows were new.

        Raises:
            LeaseLost: others have taken over the jobs of this worker; nothing was written.
        """

        def write(connection: psycopg.Connection[Any]) -> dict[Statement, psycopg.Cursor[Any]]:
            cursors: dict[Statement, psycopg.Cursor[Any]] = {}
            for statement, values in rows.items():
                cursors[statement] = cursor = connection.cursor()
                cursor.executemany(translate(f"{statement.head}{statement.row}{statement.tail}"), values)
            return cursors

        cursors = self._server.transact(write, worker=self._worker)
        return {statement: cursors[statement].rowcount == len(values) for statement, values in rows.items()}

    def finish(self) -> None:
        """Close the connection."""
        self._server.close()
