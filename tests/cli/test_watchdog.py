"""What holds up every conversation is named."""

from __future__ import annotations

import asyncio
import time
from importlib import import_module
from pathlib import Path

import pytest

from bactrian.cli.terminal.watchdog import watch_event_loop
from tests.helpers.command import Command, clean_environment

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


@pytest.mark.system
def test_a_command_that_is_blocked_says_so_for_debugging_and_goes_on(tmp_path: Path) -> None:
    commands = [
        (Command(["-c", BLOCKED], tmp_path, clean_environment(BACTRIAN_DEBUG=debug), own_process=True), told)
        for debug, told in (("1", True), ("", False))
    ]
    for command, told in commands:
        _, progress = command.finish()
        assert (b"warning: Nothing made progress for 1 s: read_a_slow_disk (" in progress) is told


async def test_an_import_that_takes_long_is_no_blocked_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(0.6)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    said: list[str] = []
    with watch_event_loop(said.append, patience=0.2):
        await asyncio.sleep(0.05)
        import_module("slow_to_import")
        await asyncio.sleep(0.05)
    assert said == []
