"""Threads that a command left do not hold up its end."""

from __future__ import annotations

import subprocess
import sys

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
