"""Parts are read by several processes, which end with the one that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.helpers.command import clean_environment

PROGRAM = """
import asyncio, os, time
from pathlib import Path
from bactrian.analyze.processes import map_parts
from tests.helpers.parts import tell_process

async def main():
    async for process in map_parts(tell_process, range(1000), 2):
        print(process, flush=True)

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_the_processes_end_when_the_one_that_started_them_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "read_parts.py"
    program.write_text(PROGRAM)
    root = str(Path(__file__).parents[2])
    command = subprocess.Popen(
        [sys.executable, str(program)],
        env=clean_environment(PYTHONPATH=root),
        stdout=subprocess.PIPE,
        text=True,
    )
    with command:
        assert command.stdout is not None
        processes = {int(command.stdout.readline()) for _ in range(2)}
        command.send_signal(signal.SIGKILL)
    for _ in range(200):
        if not any(Path(f"/proc/{one}").exists() for one in processes):
            return
        time.sleep(0.05)
    for one in processes:
        os.kill(one, signal.SIGKILL)
    raise AssertionError(f"still running: {processes}")
