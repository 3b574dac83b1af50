"""A run in PostgreSQL is made by several processes, and pulled it equals that of one."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from bactrian.api.known_runs import push
from bactrian.errors import InputError, StoreError
from bactrian.shared.reading import pull_run
from bactrian.store.care import verify
from bactrian.store.locations import read_address
from tests.helpers.command import bactrian
from tests.helpers.endpoint import Endpoint, Plan, Received
from tests.helpers.generation import RECIPE, asks, generate, said, start, stored
from tests.helpers.postgres import PostgresServer
from tests.helpers.shared_runs import ask, finish, wait_for

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


async def test_a_conversation_of_a_shared_run_is_the_one_that_a_file_has(
    server: PostgresServer, database: str, folder: Path
) -> None:
    address = server.address(database)
    async with Endpoint([said]) as endpoint:
        assert (await generate(folder, endpoint, "--run", address, "--limit", "1"))[0] == 0
        assert (await generate(folder, endpoint, "--limit", "1"))[0] == 0
    pulled = await asyncio.to_thread(bactrian, "pull", address, "pulled.db", cwd=folder)
    assert pulled.returncode == 0, pulled.stderr
    assert await read(folder, "pulled.db") == await read(folder)


@pytest.mark.slow
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


@pytest.mark.slow
async def test_a_run_of_one_process_is_pushed_and_continued_by_others(
    server: PostgresServer, database: str, folder: Path
) -> None:
    address = server.address(database, run="second")
    async with Endpoint([say]) as endpoint:
        assert (await generate(folder, endpoint, "--limit", "5"))[0] == 0
        assert await asyncio.to_thread(push, folder / "run.db", address) == 5
        assert ask(address, "SELECT calls, gone FROM workers") == [(5 * 4, True)]
        code, lines, _ = await generate(folder, endpoint, "--run", address, "--json")
        assert (code, lines[-1]["done"], lines[-1]["run_tokens"] > lines[-1]["prompt_tokens"]) == (
            0,
            12,
            True,
        )
        assert Counter(map(asks, endpoint.requests))["lister"] <= 4
        pull_run(read_address(address), folder / "pulled.db")
        assert (await generate(folder, endpoint))[0] == 0
    assert await read(folder, "pulled.db") == await read(folder)


@pytest.mark.slow
async def test_a_file_that_was_continued_by_itself_is_not_mixed_with_the_run_and_stays_as_it_is(
    server: PostgresServer, database: str, folder: Path
) -> None:
    address = server.address(database)
    async with Endpoint([say]) as endpoint:
        assert (await generate(folder, endpoint, "--limit", "2"))[0] == 0
        await asyncio.to_thread(push, folder / "run.db", address)
        assert (await generate(folder, endpoint, "--limit", "3"))[0] == 0
        assert (await generate(folder, endpoint, "--run", address, "--limit", "4"))[0] == 0
    before = await read(folder)
    with pytest.raises(InputError, match="continued by itself"):
        pull_run(read_address(address), folder / "run.db")
    assert await read(folder) == before
    assert verify(folder / "run.db").faults == ()


async def test_a_damaged_run_is_not_pushed(server: PostgresServer, database: str, folder: Path) -> None:
    address = server.address(database)
    async with Endpoint([said]) as endpoint:
        assert (await generate(folder, endpoint, "--limit", "1"))[0] == 0
    with closing(sqlite3.connect(folder / "run.db")) as run, run:
        run.execute("UPDATE turns SET role = 'Nobody' WHERE number = 2")
    refused = await asyncio.to_thread(bactrian, "push", "run.db", address, cwd=folder)
    assert (refused.returncode, "damaged: 1 fault" in refused.stderr) == (2, True)
    assert ask(address, "SELECT FROM pg_tables WHERE schemaname = 'bactrian'") == []


@pytest.mark.slow
async def test_a_user_without_rights_is_told_which_ones_are_needed(
    server: PostgresServer, database: str, folder: Path
) -> None:
    server.ask(f"CREATE ROLE ann_{database} LOGIN")
    owner = server.address(database)
    other = owner.replace("postgres@", f"ann_{database}@")
    async with Endpoint([say]) as endpoint:
        for _ in range(2):  # without the tables, and without rights to them
            code, _, told = await generate(folder, endpoint, "--run", other)
            assert (code, "The user needs the right to create a schema" in told) == (1, True), told
            assert (await generate(folder, endpoint, "--run", owner, "--limit", "1"))[0] == 0
        all_tables = "ALL TABLES IN SCHEMA bactrian"
        rights = f"SELECT, INSERT, UPDATE, DELETE ON {all_tables}"
        for right in ("USAGE ON SCHEMA bactrian", rights):
            ask(owner, f"SELECT 1; GRANT {right} TO ann_{database}")
        worker = start(folder, endpoint, "--run", other, "--concurrency", "1")
        while len(endpoint.requests) < 12 and worker.returncode is None:
            await asyncio.sleep(0.02)
        ask(owner, f"SELECT 1; REVOKE UPDATE ON {all_tables} FROM ann_{database}")
        asked = len(endpoint.requests)
        _, err = await worker.communicate()
        assert (worker.wait(), len(endpoint.requests) - asked <= 1) == (1, True), err
        assert "permission denied for table workers" in err.decode()


@pytest.mark.slow
async def test_a_database_that_is_read_only_is_read_and_not_waited_for(
    server: PostgresServer, database: str, folder: Path
) -> None:
    address = server.address(database)
    async with Endpoint([say]) as endpoint:
        assert (await generate(folder, endpoint, "--run", address, "--limit", "1"))[0] == 0
        server.ask(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
        code, _, told = await generate(folder, endpoint, "--run", address)
    assert (code, "give the address of the server that writes" in told) == (1, True), told
    assert pull_run(read_address(address), folder / "run.db") == 1
    with pytest.raises(StoreError, match="the server that writes"):
        await asyncio.to_thread(push, folder / "run.db", server.address(database, run="second"))


@pytest.mark.slow
async def test_a_million_jobs_have_no_row_each(server: PostgresServer, database: str, folder: Path) -> None:
    many = [f"{name} {number}" for name in ("Chef", "Pilot") for number in range(500)]
    given = f"count = 1000\ngiven = {json.dumps(many)}"
    recipe = RECIPE.replace('count = 3\ngiven = ["Chef", "Pilot", "Nurse"]', given)
    recipe = recipe.replace(
        'count = 4\nper = ["role"]\nask = "List {{ count }} tasks for {{ role }}."', given
    )
    (folder / "small.toml").write_text(recipe)
    address = server.address(database)
    async with Endpoint([say]) as endpoint:
        worker = start(folder, endpoint, "--run", address, "--concurrency", "8", "--json")
        while len(endpoint.requests) < 100 and worker.returncode is None:
            await asyncio.sleep(0.02)
        worker.send_signal(signal.SIGTERM)
        out, err = await worker.communicate()
    assert worker.wait() == 143, err
    assert json.loads(out.splitlines()[-1])["total"] == 1_000_000
    ((claims, jobs),) = ask(address, "SELECT count(*), max(stop) FROM claims")
    assert (claims, jobs) == (1, 64)


@pytest.mark.slow
async def test_two_workers_have_one_budget(server: PostgresServer, database: str, folder: Path) -> None:
    address, limit = server.address(database), 9_000
    async with Endpoint([say]) as endpoint:
        options = ("--run", address, "--concurrency", "3", "--max-tokens", str(limit))
        done = await asyncio.gather(*(generate(folder, endpoint, *options) for _ in range(2)))
        assert {code for code, _, _ in done} <= {0, 3}, done
        assert 3 in {code for code, _, _ in done}
        ((used, granted),) = ask(
            address,
            "SELECT sum(prompt_tokens + completion_tokens)::bigint, sum(granted_tokens)::bigint FROM workers",
        )
        assert isinstance(used, int)
        assert isinstance(granted, int)
        assert limit / 2 < used <= granted <= limit
        more = await generate(folder, endpoint, "--run", address, "--concurrency", "3")
    assert more[0] == 0, more
    pull_run(read_address(address), folder / "pulled.db")
    async with Endpoint([say]) as endpoint:
        assert (await generate(folder, endpoint))[0] == 0
    assert await read(folder, "pulled.db") == await read(folder)


@pytest.mark.slow
async def test_a_worker_that_waits_for_the_jobs_of_another_one_holds_nothing_of_the_budget(
    server: PostgresServer, database: str, folder: Path
) -> None:
    address, free = server.address(database), asyncio.Event()

    async def reply(request: Received) -> str:
        if asks(request) != "lister" and "Chef" in request.body.decode():
            await free.wait()
        return said(request)

    async with Endpoint([reply]) as endpoint:
        options = ("--run", address, "--concurrency", "4", "--max-tokens", "1000000")
        first = start(folder, endpoint, *options)
        while len(endpoint.requests) < 4 + 1:  # the jobs of a chef are those of the first worker
            await asyncio.sleep(0.02)
        second = start(folder, endpoint, *options)
        await wait_for(
            address,
            "SELECT 1 FROM workers WHERE prompt_tokens > 0 AND NOT gone"
            " AND granted_tokens = prompt_tokens + completion_tokens"
            " AND (SELECT count(*) FROM sessions WHERE ending IS NOT NULL) = 8",
        )
        free.set()
        codes, told = await finish(first, second)
    assert codes == [0, 0], told


@pytest.mark.slow
@pytest.mark.parametrize("limit", [5500, 8000])
async def test_jobs_whose_list_a_limit_refused_are_left_to_the_next_command(
    server: PostgresServer, database: str, folder: Path, limit: int
) -> None:
    address = server.address(database)
    async with Endpoint([say]) as endpoint:
        options = ("--run", address, "--concurrency", "6")
        code, _, _ = await generate(folder, endpoint, *options, "--max-tokens", str(limit))
        assert code == 3
        assert (await generate(folder, endpoint, *options, "--max-tokens", "1000000"))[0] == 0
    assert pull_run(read_address(address), folder / "pulled.db") == 12


@pytest.mark.slow
async def test_a_worker_claims_no_more_than_it_can_play_while_its_lists_are_made(
    server: PostgresServer, database: str, folder: Path
) -> None:
    address, asked, free = server.address(database), asyncio.Event(), asyncio.Event()

    async def reply(request: Received) -> str:
        if asks(request) == "lister":
            asked.set()
            await free.wait()
        return said(request)

    async with Endpoint([reply]) as endpoint:
        worker = start(folder, endpoint, "--run", address, "--concurrency", "3")
        await asyncio.wait_for(asked.wait(), 60)
        await asyncio.sleep(0.5)
        # The jobs of one list are enough for three conversations; all twelve would leave nothing to others.
        claimed = ask(address, "SELECT sum(stop - start)::integer FROM claims")
        free.set()
        _, err = await worker.communicate()
    assert worker.wait() == 0, err
    assert claimed == [(4,)]
