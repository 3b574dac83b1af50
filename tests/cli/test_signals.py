"""Signals end a command at any time."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.helpers.command import clean_environment

LEAVES_A_THREAD = """
import asyncio
import time
from bactrian.cli.run_async import run_async

def linger():
    time.sleep(1)
    print("lingers", flush=True)
    time.sleep(60)

async def work():
    asyncio.get_running_loop().run_in_executor(None, linger)
    return 0

run_async(work(), resume="")
"""


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_command_whose_work_is_done_but_left_a_thread(which: signal.Signals) -> None:
    command = [sys.executable, "-c", LEAVES_A_THREAD]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=clean_environment()) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"lingers\n"
        process.send_signal(which)
        assert process.wait(20) in (-which, 128 + which)
