"""Runs are read by several processes."""

from __future__ import annotations

import gc
import os
import signal

import pytest

from bactrian.analyze.aggregate import map_parts
from bactrian.errors import BactrianError
from tests.helpers.parts import tell_process, work_and_tell_process

pytestmark = pytest.mark.system


def die(part: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return part


async def test_a_process_that_is_killed_while_it_reads_is_named_and_not_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(BactrianError, match="probably for lack of memory"):
        _ = [part async for part in map_parts(die, [1, 2, 3, 4], 2)]
    gc.collect()
    assert caplog.messages == []


async def test_a_few_parts_of_little_work_are_read_by_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert [process async for process in map_parts(tell_process, [1, 2, 3])] == [os.getpid()] * 3


async def test_other_processes_read_what_would_take_this_one_longer_than_their_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    parts, readers = zip(
        *[result async for result in map_parts(work_and_tell_process, [*range(50)])], strict=True
    )
    assert parts == tuple(range(50))
    assert readers[0] == os.getpid()
    assert os.getpid() not in readers[1:]


async def test_as_many_processes_as_are_asked_for_read_from_the_first_part_on() -> None:
    assert os.getpid() not in [process async for process in map_parts(tell_process, [1, 2], 2)]
