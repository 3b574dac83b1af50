"""What happens to a shared run when its workers, its network or its database fail.

After each fault the run is whole, no conversation was mixed from two, and it equals the run of one process.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tests.helpers.endpoint import Endpoint
from tests.helpers.generation import start
from tests.helpers.postgres import PostgresServer
from tests.helpers.proxy import Proxy
from tests.helpers.shared_runs import (
    CALLS,
    NumberedReplies,
    ask,
    check_whole,
    through,
    wait_for,
    wait_for_calls,
)

pytestmark = pytest.mark.slow
AT_ONCE = 3
"""Conversations of each worker, and so the most that is paid for twice when it is lost."""
TAKEN_OVER = """
SELECT FROM workers WHERE dead AND NOT EXISTS (SELECT FROM claims WHERE worker = workers.id AND state = 'playing')
"""


async def test_a_worker_that_slept_longer_than_its_lease_writes_nothing_more(
    server: PostgresServer, database: str, folder: Path
) -> None:
    address, replies = server.address(database, lease=2), NumberedReplies(0.2)
    async with Endpoint([replies]) as endpoint:
        first, second = (
            start(folder, endpoint, "--run", address, "--concurrency", str(AT_ONCE)) for _ in range(2)
        )
        await wait_for_calls(replies, 12)
        first.send_signal(signal.SIGSTOP)
        await wait_for(address, TAKEN_OVER)
        first.send_signal(signal.SIGCONT)
        (_, said), (_, other) = await asyncio.gather(first.communicate(), second.communicate())
    assert (first.wait(), second.wait()) == (5, 0), (said, other)
    assert "others play its jobs" in said.decode()
    assert len(replies.requests) <= CALLS + AT_ONCE
    await check_whole(folder, address, replies)


@pytest.mark.parametrize("fault", ["swallow", "cut"])
async def test_a_worker_without_a_way_to_the_database_stops_before_it_pays_for_more(
    server: PostgresServer, database: str, folder: Path, fault: str
) -> None:
    address, replies = server.address(database, lease=2), NumberedReplies(0.2)
    async with Endpoint([replies]) as endpoint, Proxy(server.port) as proxy:
        far = start(folder, endpoint, "--run", through(address, proxy.port), "--concurrency", str(AT_ONCE))
        await wait_for_calls(replies, 8)
        getattr(proxy, fault)()
        await asyncio.sleep(1)
        before = len(replies.requests)
        await asyncio.sleep(1)
        assert len(replies.requests) == before
        near = start(folder, endpoint, "--run", address, "--concurrency", str(AT_ONCE))
        await wait_for(address, TAKEN_OVER)
        proxy.mend()
        (_, said), (_, other) = await asyncio.gather(far.communicate(), near.communicate())
    assert (far.wait(), near.wait()) == (5, 0), (said, other)
    assert len(replies.requests) <= CALLS + AT_ONCE
    await check_whole(folder, address, replies)


async def test_a_commit_whose_answer_is_lost_is_repeated_and_nothing_is_paid_for_twice(
    server: PostgresServer, database: str, folder: Path
) -> None:
    address, replies = server.address(database, lease=4), NumberedReplies(0.1)
    async with Endpoint([replies]) as endpoint, Proxy(server.port) as proxy:
        far = start(folder, endpoint, "--run", through(address, proxy.port), "--concurrency", str(AT_ONCE))
        await wait_for_calls(replies, 4)
        for _ in range(5):
            proxy.cut_at_answer(b"COMMIT\0", times=2)
            while proxy.cuts_left and far.returncode is None:
                await asyncio.sleep(0.02)
        _, said = await far.communicate()
    assert far.wait() == 0, said
    assert proxy.cuts_left == 0
    assert len(replies.requests) == CALLS
    await check_whole(folder, address, replies)
    assert ask(address, "SELECT count(*) FROM workers WHERE dead") == [(0,)]
