"""What holds up every conversation is named."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

from bactrian.cli.terminal.watchdog import watch_event_loop

BLOCKED = """
import time
from bactrian.cli.run_async import run_async

def read_a_slow_disk():
    time.sleep(1.6)

async def work():
    read_a_slow_disk()
    return 0

run_async(work(), resume="")
"""


def hog(seconds: float) -> None:
    time.sleep(seconds)


async def test_a_blocked_loop_is_told_once_with_its_cause() -> None:
    said: list[str] = []
    with watch_event_loop(said.append, patience=0.2):
        await asyncio.sleep(0.1)
        hog(0.8)
        await asyncio.sleep(0.1)
        hog(0.8)
    (warning,) = said
    assert "for 0.2 s: hog (test_watchdog.py:" in warning


async def test_a_loop_that_only_waits_is_not_blocked() -> None:
    said: list[str] = []
    with watch_event_loop(said.append, patience=0.4):
        await asyncio.sleep(1.2)
    assert said == []


def test_a_command_that_is_blocked_says_so_and_goes_on() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True, check=False)
    assert "warning: Nothing could go on for 1 s: read_a_slow_disk (" in done.stderr
