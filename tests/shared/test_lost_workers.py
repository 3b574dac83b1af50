"""What happens to a shared run when a worker is lost."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from bactrian.shared.reading import pull_run
from bactrian.store.locations import read_address
from tests.helpers.endpoint import Endpoint, Plan, Received
from tests.helpers.generation import generate, said, start, stored
from tests.helpers.postgres import PostgresServer


async def say(request: Received) -> Plan:
    await asyncio.sleep(0.2)
    return said(request)


@pytest.mark.soak
@pytest.mark.parametrize(("end", "lost"), [(signal.SIGKILL, 3), (signal.SIGTERM, 0)])
async def test_another_worker_plays_what_a_lost_one_left_and_no_turn_is_missing(
    server: PostgresServer, database: str, folder: Path, end: signal.Signals, lost: int
) -> None:
    address = server.address(database, lease=3)
    async with Endpoint([say]) as endpoint:
        first, second = (start(folder, endpoint, "--run", address, "--concurrency", "3") for _ in range(2))
        while len(endpoint.requests) < 12:
            await asyncio.sleep(0.02)
        first.send_signal(end)
        await asyncio.gather(first.communicate(), second.communicate())
        assert second.wait() == 0
        assert len(endpoint.requests) <= 3 + 12 * 4 + lost
    pull_run(read_address(address), folder / "pulled.db")
    async with Endpoint([said]) as endpoint:
        assert (await generate(folder, endpoint))[0] == 0
    one, other = [
        {each.id: [turn.text for turn in each.turns] for each in await stored(folder, name)}
        for name in ("run.db", "pulled.db")
    ]
    assert one == other
