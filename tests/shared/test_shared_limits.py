"""Processes that make a run in a database send together what the rate limits of the user allow."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from bactrian.errors import LeaseLost
from bactrian.records.turn import Usage
from bactrian.shared.lease import SharedClaims
from bactrian.shared.postgres import Server, create_tables
from bactrian.shared.reading import SharedStore, WorkDone
from bactrian.store.locations import read_address
from tests.helpers.command import Command
from tests.helpers.endpoint import Endpoint, Plan, Received
from tests.helpers.generation import RECIPE, said, start
from tests.helpers.postgres import PostgresServer
from tests.helpers.proxy import Proxy
from tests.helpers.shared_runs import ask, through

CALLS = 3 + 12 * 8


@asynccontextmanager
async def connect(address: str) -> AsyncGenerator[Server]:
    """A connection to a database that has the tables of a run."""
    link = Server(read_address(address))
    await asyncio.to_thread(link.open)
    await asyncio.to_thread(create_tables, link, None)
    yield link
    link.close()


@pytest.mark.system
async def test_what_a_worker_may_use_is_granted_once_and_counts_what_others_used_beyond_it(
    server: PostgresServer, database: str
) -> None:
    address = server.address(database)
    async with Proxy(server.port) as proxy, connect(through(address, proxy.port)) as link:
        ((worker,), (other,)) = ask(address, "INSERT INTO workers (name) VALUES ('a'), ('b') RETURNING id")
        claims = SharedClaims(link, int(str(worker)), 60.0, SharedStore(Path("run.db"), link))

        async def may_use(tokens: int) -> bool:
            return await claims.grant(None, 1_000, WorkDone(Usage(tokens)), alone=False)

        def read_granted() -> list[tuple[object, ...]]:
            return ask(address, f"SELECT granted_tokens FROM workers WHERE id = {worker}")

        proxy.cut_at_answer(b"COMMIT\0", 1)
        assert await may_use(100)
        assert read_granted() == [(100,)]
        # A first reply of unknown length has taken more than was granted.
        ask(
            address,
            f"UPDATE workers SET completion_tokens = 800, granted_tokens = 50 WHERE id = {other} RETURNING 1",
        )
        assert not await may_use(201)
        assert await may_use(200)
        proxy.cut_at_answer(b"COMMIT\0", 1)
        await claims.leave()
        assert (read_granted(), proxy.cuts_left) == ([(0,)], 0)


@pytest.mark.system
async def test_a_worker_that_lost_its_lease_on_a_bad_line_is_not_told_of_another_server(
    server: PostgresServer, database: str
) -> None:
    address = server.address(database)
    async with Proxy(server.port) as proxy, connect(through(address, proxy.port)) as link:
        ((worker,),) = ask(address, "INSERT INTO workers (name, dead) VALUES ('a', true) RETURNING id")
        link.timeline = await asyncio.to_thread(link.read_timeline)
        assert link.timeline is not None
        proxy.cut_at_answer(link.timeline.encode(), 1)
        with pytest.raises(LeaseLost, match="others play its jobs"):
            await asyncio.to_thread(link.transact, lambda _: None, worker=int(str(worker)))
        assert proxy.cuts_left == 0


@pytest.mark.soak
async def test_workers_share_the_rate_limit_and_one_that_leaves_gives_its_part_back(
    server: PostgresServer, database: str, folder: Path
) -> None:
    (folder / "small.toml").write_text(RECIPE.replace("max_messages = 4", "max_messages = 8"))
    address = server.address(database, lease=3)
    times: list[float] = []

    def reply(request: Received) -> Plan:
        times.append(time.monotonic())
        return said(request)

    def work(endpoint: Endpoint) -> Command:
        options = ("--run", address, "--concurrency", "1", "--requests-per-minute", "300")
        return start(folder, endpoint, *options)

    async def until(enough: Callable[[], bool], worker: Command) -> None:
        while not enough():
            assert worker.returncode is None, worker.peek()
            await asyncio.sleep(0.02)

    async with Endpoint([reply]) as endpoint:
        first, second = work(endpoint), work(endpoint)
        await until(lambda: len({request.peer for request in endpoint.requests}) > 1, first)
        alone = len(times)
        await until(lambda: len(times) >= alone + CALLS // 3, first)
        together = times[alone:]
        second.send_signal(signal.SIGTERM)
        _, err = await second.communicate()
        assert second.wait() == 143, err
        left = time.monotonic()
        _, err = await first.communicate()
        assert first.wait() == 0, err
    assert len(times) == CALLS
    # But for what a busy computer delays; two that do not share would send ten a second.
    assert len(together) - 1 <= 1.3 * 5 * (together[-1] - together[0])
    later = [at for at in times if at > left + 1.5]
    assert median(after - before for before, after in pairwise(later)) < 0.3
