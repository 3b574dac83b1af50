"""What happens to a shared run when its workers, its network or its database fail.

After each fault the run is whole, no conversation was mixed from two, and it equals the run of one process.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from bactrian.store.locations import read_address
from tests.helpers.command import Command, bactrian, clean_environment
from tests.helpers.disks import mounted
from tests.helpers.endpoint import Endpoint
from tests.helpers.generation import generate, said, start
from tests.helpers.postgres import PostgresServer
from tests.helpers.proxy import Proxy
from tests.helpers.shared_runs import (
    CALLS,
    NumberedReplies,
    ask,
    check_whole,
    finish,
    through,
    wait_for,
    wait_for_calls,
)

pytestmark = pytest.mark.soak
LEASE = 6
AT_ONCE = 3
"""Conversations of each worker, and so the most that is paid for twice when it is lost."""
TAKEN_OVER = """
SELECT FROM workers WHERE dead AND NOT EXISTS (SELECT FROM claims WHERE worker = workers.id AND state = 'playing')
"""

BOTH_WORK = "SELECT FROM workers HAVING count(*) = 2"


def check_sums(address: str, folder: Path) -> None:
    """Check that workers say together all that the run has: a killed one could not say what it did last."""
    status = json.loads(bactrian("status", address, "--json", cwd=folder).stdout)
    rows = ask(address, "SELECT prompt_tokens, completion_tokens, usd, endings FROM workers")
    # More, if a reply was counted that was not stored before the kill, and was asked for again.
    for place, name in enumerate(("prompt_tokens", "completion_tokens", "usd")):
        assert sum(float(str(row[place])) for row in rows) >= (status[name] or 0.0)
    endings = Counter[str]()
    for row in rows:
        endings.update(json.loads(str(row[3])))
    assert endings == {code: share["count"] for code, share in status["endings"].items()}


def work(folder: Path, endpoint: Endpoint, address: str) -> Command:
    return start(folder, endpoint, "--run", address, "--concurrency", str(AT_ONCE))


async def test_a_worker_that_slept_longer_than_its_lease_writes_nothing_more(
    server: PostgresServer, database: str, folder: Path
) -> None:
    address, replies = server.address(database, lease=LEASE), NumberedReplies(0.2)
    async with Endpoint([replies]) as endpoint:
        first, second = (work(folder, endpoint, address) for _ in range(2))
        await wait_for_calls(replies, 12)
        await wait_for(address, BOTH_WORK)
        first.send_signal(signal.SIGSTOP)
        await wait_for(address, TAKEN_OVER)
        first.send_signal(signal.SIGCONT)
        codes, said = await finish(first, second)
    assert codes == [5, 0], said
    assert "others play its jobs" in said[0]
    assert len(replies.requests) <= CALLS + AT_ONCE
    await check_whole(folder, address, replies)


@pytest.mark.parametrize("held", ["frontier", "workers"])
async def test_what_a_worker_holds_that_is_stopped_within_a_transaction_is_let_go(
    server: PostgresServer, database: str, folder: Path, held: str
) -> None:
    address, replies = server.address(database, lease=LEASE), NumberedReplies(0.1)
    async with Endpoint([replies]) as endpoint:
        first = work(folder, endpoint, address)
        await wait_for_calls(replies, 8)
        where = read_address(address)
        stopped = psycopg.connect(where.connection, options=f"-c search_path={where.schema}")
        done: tuple[list[int], list[str]] = ([], [])
        with pytest.raises(psycopg.OperationalError), stopped.pipeline():
            # The next part of the pipeline never comes, and the server takes the transaction for an active one.
            stopped.execute(f"SELECT FROM {held} FOR SHARE".encode()).fetchall()
            first.kill()
            done = await finish(work(folder, endpoint, address))
            stopped.execute("SELECT 1").fetchall()
        killed, _ = await finish(first)
    codes, said = done
    assert (killed, codes) == ([-signal.SIGKILL], [0]), said
    await check_whole(folder, address, replies)


@pytest.mark.parametrize("fault", ["swallow", "cut"])
async def test_a_worker_without_a_way_to_the_database_stops_before_it_pays_for_more(
    server: PostgresServer, database: str, folder: Path, fault: str
) -> None:
    address, replies = server.address(database, lease=LEASE), NumberedReplies(0.2)
    async with Endpoint([replies]) as endpoint, Proxy(server.port) as proxy:
        far = work(folder, endpoint, through(address, proxy.port))
        await wait_for_calls(replies, 8)
        getattr(proxy, fault)()
        await asyncio.sleep(1)
        before = len(replies.requests)
        await asyncio.sleep(1)
        assert len(replies.requests) == before
        near = work(folder, endpoint, address)
        await wait_for(address, TAKEN_OVER)
        proxy.mend()
        codes, said = await finish(far, near)
    assert codes == [5, 0], said
    assert len(replies.requests) <= CALLS + AT_ONCE
    await check_whole(folder, address, replies)


async def test_a_commit_whose_answer_is_lost_is_repeated_and_nothing_is_paid_for_twice(
    server: PostgresServer, database: str, folder: Path
) -> None:
    address, replies = server.address(database, lease=LEASE), NumberedReplies(0.1)
    async with Endpoint([replies]) as endpoint, Proxy(server.port) as proxy:
        far = work(folder, endpoint, through(address, proxy.port))
        await wait_for_calls(replies, 4)
        for _ in range(5):
            proxy.cut_at_answer(b"COMMIT\0", times=2)
            while proxy.cuts_left and far.returncode is None:
                await asyncio.sleep(0.02)
        codes, said = await finish(far)
    assert codes == [0], said
    assert proxy.cuts_left == 0
    assert len(replies.requests) == CALLS
    await check_whole(folder, address, replies)
    assert ask(address, "SELECT count(*) FROM workers WHERE dead") == [(0,)]


async def test_all_workers_are_killed_and_another_one_finishes(
    server: PostgresServer, database: str, folder: Path
) -> None:
    address, replies = server.address(database, lease=LEASE), NumberedReplies(0.2)
    async with Endpoint([replies]) as endpoint:
        workers = [work(folder, endpoint, address) for _ in range(2)]
        await wait_for_calls(replies, 14)
        for worker in workers:
            worker.kill()
        await finish(*workers)
        codes, said = await finish(work(folder, endpoint, address))
        assert codes == [0], said
        check_sums(address, folder)
    assert len(replies.requests) <= CALLS + 2 * AT_ONCE
    await check_whole(folder, address, replies)


async def test_a_crash_of_the_database_costs_no_worker_its_lease_and_no_call(
    server: PostgresServer, database: str, folder: Path
) -> None:
    address, replies = server.address(database, lease=LEASE), NumberedReplies(0.2)
    async with Endpoint([replies]) as endpoint:
        workers = [work(folder, endpoint, address) for _ in range(2)]
        await wait_for_calls(replies, 14)
        await wait_for(address, BOTH_WORK)
        await asyncio.to_thread(server.stop, "immediate")
        await asyncio.sleep(LEASE + 2)
        await asyncio.to_thread(server.start)
        codes, said = await finish(*workers)
    assert codes == [0, 0], said
    assert all(each.count("The database takes data again.") == 1 for each in said), said
    assert len(replies.requests) == CALLS
    await check_whole(folder, address, replies)


@pytest.mark.parametrize("lags", [False, True])
async def test_after_a_failover_to_a_replica_the_same_command_goes_on(
    server: PostgresServer, database: str, folder: Path, lags: bool
) -> None:
    replies = NumberedReplies(0.2)
    with server.run_replica() as replica:
        hosts = f"127.0.0.1:{server.port},127.0.0.1:{replica.port}"
        address = f"postgresql://postgres@{hosts}/{database}?lease={LEASE}"
        async with Endpoint([replies]) as endpoint:
            workers = [work(folder, endpoint, address) for _ in range(2)]
            await wait_for_calls(replies, 14)
            await wait_for(address, BOTH_WORK)
            asked = len(replies.requests)
            if lags:
                replica.ask("ALTER SYSTEM SET primary_conninfo = ''")
                replica.ask("SELECT pg_reload_conf()")
                await wait_for_calls(replies, asked + 10)
            lost = len(replies.requests) - asked
            await asyncio.to_thread(server.stop, "immediate")
            try:
                await asyncio.to_thread(replica.promote)
                codes, told = await finish(*workers)
                assert codes == [5, 5], told
                assert all("another server, which may lack the last turns" in each for each in told)
                in_flight = 2 * AT_ONCE * (2 if lags else 1)
                codes, told = await finish(work(folder, endpoint, address))
                assert codes == [0], told
                assert len(replies.requests) <= CALLS + in_flight + lost
                await check_whole(folder, address, replies)
            finally:
                server.start()


async def test_a_full_disk_of_the_database_is_told_and_waited_for(
    server: PostgresServer, folder: Path
) -> None:
    replies = NumberedReplies(0.1, length=6000)
    with mounted(server.folder / "small", "size=16m") as small, server.has_tablespace(small) as database:
        address = server.address(database, lease=LEASE)
        async with Endpoint([replies]) as endpoint:
            workers = [work(folder, endpoint, address) for _ in range(2)]
            await wait_for_calls(replies, 14)
            with suppress(OSError), (small / "ballast").open("wb", buffering=0) as ballast:
                while ballast.write(bytes(4096)):
                    pass
            while not any("No space left" in worker.peek() for worker in workers):
                await asyncio.sleep(0.1)
            assert len(replies.requests) < CALLS
            (small / "ballast").unlink()
            codes, said = await finish(*workers)
        assert codes == [0, 0], said
        assert len(replies.requests) == CALLS
        await check_whole(folder, address, replies)


async def test_clocks_of_workers_that_are_days_apart_change_nothing(
    server: PostgresServer, database: str, folder: Path
) -> None:
    address, replies = server.address(database, lease=LEASE), NumberedReplies(0.2)
    wrong = (
        "import sys, time\n"
        "clock, days = time.time, float(sys.argv.pop(1))\n"
        "time.time = lambda: clock() + days * 86_400\n"
        "from bactrian.cli.main import main\n"
        "main()\n"
    )
    async with Endpoint([replies]) as endpoint:
        options = ("generate", "small.toml", "--run", address, "--concurrency", str(AT_ONCE))
        where = ("--model", "openai:any", "--base-url", endpoint.url)
        workers = [
            Command(["-c", wrong, days, *options, *where], folder, clean_environment())
            for days in ("-2", "2")
        ]
        codes, said = await finish(*workers)
    assert codes == [0, 0], said
    assert len(replies.requests) == CALLS
    await check_whole(folder, address, replies)


@pytest.mark.parametrize("step", [-1, 1])
async def test_a_worker_of_another_version_is_refused_and_changes_nothing(
    server: PostgresServer, database: str, folder: Path, step: int
) -> None:
    address = server.address(database)
    async with Endpoint([said]) as endpoint:
        assert (await generate(folder, endpoint, "--run", address, "--limit", "2"))[0] == 0
        ask(address, f"UPDATE frontier SET version = version + {step} RETURNING version")
        before = len(endpoint.requests)
        code, _, told = await generate(folder, endpoint, "--run", address)
    assert (code, len(endpoint.requests)) == (2, before)
    assert "Another version of bactrian made this run" in told
    assert "Use the same version on all computers." in told
    assert "`bactrian pull` the run with the version that made it" in told
    for verb in ("status", "pull"):
        done = bactrian(verb, address, *(["run.db"] if verb == "pull" else []), cwd=folder)
        assert (done.returncode, "Another version of bactrian" in done.stderr) == (2, True), done.stderr
    assert not (folder / "run.db").exists()


async def test_workers_behind_pgbouncer_in_transaction_mode_share_a_run(
    server: PostgresServer, database: str, folder: Path
) -> None:
    replies = NumberedReplies(0.2)
    with server.run_bouncer() as port:
        address = server.address(database, port=port, lease=LEASE)
        async with Endpoint([replies]) as endpoint:
            workers = [work(folder, endpoint, address) for _ in range(3)]
            await wait_for_calls(replies, 14)
            workers[0].kill()
            codes, told = await finish(*workers)
        assert codes[1:] == [0, 0], told
        check_sums(server.address(database, lease=LEASE), folder)
        assert len(replies.requests) <= CALLS + AT_ONCE
        await check_whole(folder, address, replies)
