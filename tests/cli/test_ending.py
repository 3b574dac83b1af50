"""Threads that a command left do not hold up its end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from bactrian.store import open_store
from tests.helpers.command import clean_environment

LEAVES_A_THREAD = """
import asyncio
import time

import typer

from bactrian.cli.run_async import run_async
from bactrian.cli.terminal.ending import end_process

async def work():
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 60)
    return 3

try:
    run_async(work(), resume="")
except typer.Exit as ending:
    print("The last line", end="")
    end_process(ending.exit_code)
"""


def test_a_command_whose_work_is_done_ends_although_it_left_a_thread() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEAVES_A_THREAD], stdout=-1, env=clean_environment(), timeout=20, check=False
    )
    assert (done.returncode, done.stdout) == (3, b"The last line")


CLOSES_IN_VAIN = """
import asyncio
import sqlite3
import threading
from pathlib import Path

import typer

from bactrian.cli.run_async import run_async
from bactrian.cli.terminal.ending import end_process
from bactrian.store import open_store
from tests.helpers.runs import session

async def work():
    opened = open_store(Path("run.db"))
    store = await opened.__aenter__()
    held = sqlite3.connect("run.db", isolation_level=None, check_same_thread=False)
    held.execute("BEGIN IMMEDIATE")
    threading.Timer(3, held.execute, ["ROLLBACK"]).start()
    writing = asyncio.ensure_future(store.begin(session("paid")))
    await asyncio.sleep(0.1)
    closing = asyncio.ensure_future(opened.__aexit__(None, None, None))
    await asyncio.sleep(0.1)
    closing.cancel()
    return 0

try:
    run_async(work(), resume="")
except typer.Exit as ending:
    end_process(ending.exit_code)
"""


def test_a_command_whose_end_is_interrupted_writes_what_waits_for_the_disk(tmp_path: Path) -> None:
    environment = clean_environment(PYTHONPATH=str(Path(__file__).parents[2]))
    done = subprocess.run(
        [sys.executable, "-c", CLOSES_IN_VAIN], cwd=tmp_path, env=environment, timeout=60, check=False
    )
    assert done.returncode == 0

    async def read() -> list[str]:
        async with open_store(tmp_path / "run.db", read_only=True) as store:
            return [one.id async for one in store.sessions()]

    assert asyncio.run(read()) == ["paid"]
