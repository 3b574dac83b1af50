"""Whatever faults follow each other in a shared run, it is whole in the end, and little is paid for twice."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from random import Random

import pytest

from tests.helpers.command import Command
from tests.helpers.endpoint import Endpoint
from tests.helpers.generation import start
from tests.helpers.postgres import PostgresServer
from tests.helpers.proxy import Proxy
from tests.helpers.shared_runs import CALLS, NumberedReplies, check_whole, finish, through

LEASE, AT_ONCE, FAULTS = 4, 2, 6


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
async def test_a_run_is_whole_after_any_script_of_faults(
    server: PostgresServer, database: str, folder: Path, seed: int
) -> None:
    chance = Random(seed)
    address, replies = server.address(database, lease=LEASE), NumberedReplies(0.4)
    script: list[str] = []
    async with Endpoint([replies]) as endpoint, Proxy(server.port) as proxy:
        far = through(address, proxy.port)

        def begin(where: str) -> Command:
            return start(folder, endpoint, "--run", where, "--concurrency", str(AT_ONCE))

        workers = [begin(far), begin(address), begin(far)]
        for _ in range(FAULTS):
            await asyncio.sleep(chance.uniform(0.3, 1.5))
            fault = chance.choice(["kill", "sleep", "cut", "swallow", "answer", "crash"])
            worker = chance.choice(workers)
            script.append(f"{fault} {workers.index(worker)}")
            seconds = chance.uniform(0.2, 1.5) * LEASE
            match fault:
                case "kill":
                    worker.kill()
                    workers.append(begin(chance.choice([far, address])))
                case "sleep":
                    worker.send_signal(signal.SIGSTOP)
                    await asyncio.sleep(seconds)
                    worker.send_signal(signal.SIGCONT)
                case "cut" | "swallow":
                    getattr(proxy, fault)()
                    await asyncio.sleep(seconds)
                    proxy.mend()
                case "answer":
                    proxy.cut_at_answer(b"COMMIT\0", times=3)
                case _:
                    await asyncio.to_thread(server.stop, "immediate")
                    await asyncio.sleep(seconds)
                    await asyncio.to_thread(server.start)
        proxy.cuts_left = 0
        codes, said = await finish(*workers)
        for code, text in zip(codes, said, strict=True):
            # One that begins while there is no way to the database says so.
            known = code in (0, 5, -signal.SIGKILL, 128 + signal.SIGKILL)
            assert known or (code == 2 and "The database cannot be used" in text), (script, code, text)
        last, told = await finish(begin(address))
        assert last == [0], (script, told)
    lost = sum(code != 0 for code in codes)
    assert len(replies.requests) <= CALLS + AT_ONCE * lost, (script, codes)
    await check_whole(folder, address, replies)
