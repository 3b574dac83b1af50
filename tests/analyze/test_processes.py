"""Runs are read by several processes."""

from __future__ import annotations

import os
import signal

import pytest

from bactrian.analyze.processes import map_parts
from bactrian.errors import BactrianError


def die(part: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return part


async def test_a_process_that_is_killed_while_it_reads_is_named_and_not_waited_for() -> None:
    with pytest.raises(BactrianError, match="probably for lack of memory"):
        _ = [part async for part in map_parts(die, [1, 2], 2)]
