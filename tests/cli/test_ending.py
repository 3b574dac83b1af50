"""Threads that a command left do not hold up its end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bactrian.store import open_store
from tests.helpers.command import start_python

LEAVES_A_THREAD = """
import asyncio
import time

from bactrian.cli.run_async import run_async
from bactrian.cli.terminal.process import end_process

async def work():
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 60)
    return 3

try:
    run_async(work(), resume="")
except SystemExit as ending:
    print("The last line", end="")
    end_process(ending.code)
"""


@pytest.mark.slow
def test_a_command_whose_work_is_done_ends_although_it_left_a_thread() -> None:
    command = start_python(LEAVES_A_THREAD)
    out, _ = command.finish()
    assert (command.returncode, out) == (3, b"The last line")


CLOSES_IN_VAIN = """
import asyncio
import sqlite3
import threading
from pathlib import Path

from bactrian.cli.run_async import run_async
from bactrian.cli.terminal.process import end_process
from bactrian.store import open_store
from tests.helpers.runs import session

async def work():
    opened = open_store(Path("run.db"))
    store = await opened.__aenter__()
    held = sqlite3.connect("run.db", isolation_level=None, check_same_thread=False)
    held.execute("BEGIN IMMEDIATE")
    threading.Timer(1.5, held.execute, ["ROLLBACK"]).start()
    writing = asyncio.ensure_future(store.begin(session("paid")))
    await asyncio.sleep(0.1)
    closing = asyncio.ensure_future(opened.__aexit__(None, None, None))
    await asyncio.sleep(0.1)
    closing.cancel()
    return 0

try:
    run_async(work(), resume="")
except SystemExit as ending:
    end_process(ending.code)
"""


@pytest.mark.slow
def test_a_command_whose_end_is_interrupted_writes_what_waits_for_the_disk(tmp_path: Path) -> None:
    command = start_python(CLOSES_IN_VAIN, cwd=tmp_path)
    assert command.wait() == 0
    command.finish()

    async def read() -> list[str]:
        async with open_store(tmp_path / "run.db", read_only=True) as store:
            return [session.id async for session in store.sessions()]

    assert asyncio.run(read()) == ["paid"]
