"""A run in PostgreSQL is made by several processes, and pulled it equals that of one."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from bactrian.shared.copies import pull_run, push_run
from bactrian.store.address import read_address
from tests.helpers.endpoint import Endpoint, Plan, Received
from tests.helpers.generation import asks, generate, said, stored
from tests.helpers.postgres import PostgresServer

pytestmark = pytest.mark.system


async def say(request: Received) -> Plan:
    await asyncio.sleep(0.05)
    return said(request)


async def read(folder: Path, name: str = "run.db") -> dict[str, object]:
    """What was said in each session, and how it ended."""
    return {
        session.id: ([(turn.number, turn.text) for turn in session.turns], session.ending, session.task)
        for session in await stored(folder, name)
    }


async def test_two_workers_make_a_run_that_pulled_equals_the_run_of_one_process(
    server: PostgresServer, database: str, folder: Path
) -> None:
    address = server.address(database)
    async with Endpoint([say]) as endpoint:
        done = await asyncio.gather(
            *(generate(folder, endpoint, "--run", address, "--concurrency", "3") for _ in range(2))
        )
        assert [code for code, _, _ in done] == [0, 0], done
        asked = list(endpoint.requests)
    assert Counter(map(asks, asked))["lister"] == 3  # each list once
    assert len(asked) == 3 + 12 * 4  # each turn once
    assert pull_run(read_address(address), folder / "pulled.db") == 12
    async with Endpoint([say]) as endpoint:
        assert (await generate(folder, endpoint))[0] == 0
    assert await read(folder, "pulled.db") == await read(folder)
    assert pull_run(read_address(address), folder / "pulled.db") == 4 * 3
    assert await read(folder, "pulled.db") == await read(folder)


async def test_a_run_of_one_process_is_pushed_and_continued_by_others(
    server: PostgresServer, database: str, folder: Path
) -> None:
    address = server.address(database, run="second")
    async with Endpoint([say]) as endpoint:
        assert (await generate(folder, endpoint, "--limit", "5"))[0] == 0
        assert push_run(folder / "run.db", read_address(address)) == 5
        assert (await generate(folder, endpoint, "--run", address))[0] == 0
        assert Counter(map(asks, endpoint.requests))["lister"] <= 4
        pull_run(read_address(address), folder / "pulled.db")
        assert (await generate(folder, endpoint))[0] == 0
    assert await read(folder, "pulled.db") == await read(folder)
