"""The last process that closes a run deletes the files of its log, while others may look at them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from threading import Event, Thread

import pytest

from bactrian.records.run import Mark
from bactrian.store import open_store
from bactrian.store.database import can_read_log, has_journal, has_log
from tests.helpers.command import bactrian
from tests.helpers.runs import make_run, session


def test_a_file_of_the_log_that_disappears_is_a_file_that_is_missing(tmp_path: Path) -> None:
    run = tmp_path / "run.db"
    files = [tmp_path / f"run.db{suffix}" for suffix in ("-wal", "-shm", "-journal")]
    ended = Event()

    def come_and_go() -> None:
        while not ended.is_set():
            for file in files:
                file.touch()
            for file in files:
                file.unlink()

    others = Thread(target=come_and_go)
    others.start()
    try:
        for _ in range(3000):
            assert (has_log(run), can_read_log(run), has_journal(run)) == (False, True, False)
    finally:
        ended.set()
        others.join()


@pytest.mark.system
async def test_a_process_that_reads_and_writes_a_run_sees_what_another_process_wrote_in_between(
    tmp_path: Path,
) -> None:
    run = await make_run(tmp_path / "run.db", [session("one")])

    async def add(name: str) -> None:
        async with open_store(run) as store:
            await store.add_mark(Mark("one", name, "", time.time()))

    async with open_store(run, read_only=True) as reader:
        assert not await reader.marks("one")
        for number in range(2):
            await add(f"here {number}")
            # The other process must not think that it is the last one, and delete the log.
            mark = ("show", "run.db", "one", "--mark", f"there {number}")
            done = await asyncio.to_thread(bactrian, *mark, cwd=tmp_path, own_process=True)
            assert done.returncode == 0, done.stderr
            assert has_log(run)
        await add("here 2")
        marks = {mark.mark for mark in await reader.marks("one")}
    assert marks == {"here 0", "there 0", "here 1", "there 1", "here 2"}
