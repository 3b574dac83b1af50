"""The last process that closes a run deletes the files of its log, while others may look at them."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from contextlib import closing
from pathlib import Path
from threading import Event, Thread

import pytest

from bactrian.records.run import Mark
from bactrian.store import open_store
from bactrian.store.database import can_read_log, has_journal, has_log, open_for_reading
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


@pytest.mark.system
async def test_the_file_of_a_closed_run_has_all_of_it_though_another_process_reads_it(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "run.db", [session("one")])
    # A connection that reads nothing at the moment, as the explorer has some: the writer is not the last one.
    with closing(open_for_reading(run)) as reader:
        reader.execute("SELECT count(*) FROM sessions").fetchone()
        async with open_store(run) as store:
            await store.add_mark(Mark("one", "good", "", time.time()))
        assert has_log(run)
        shutil.copyfile(run, tmp_path / "copy.db")
        shown = bactrian("show", "copy.db", "--json", cwd=tmp_path)
        assert (shown.returncode, json.loads(shown.stdout)["marks"], shown.stderr) == (0, ["good"], "")
    async with open_store(run, read_only=True) as store:
        assert len(await store.marks("one")) == 1
    assert not has_log(run)  # The last reader has folded it in.


@pytest.mark.system
async def test_a_copy_without_the_log_of_an_open_run_is_told_by_what_reads_it(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "run.db", [session("one")])
    async with open_store(run) as store:
        await store.add_mark(Mark("one", "good", "", time.time()))
        shutil.copyfile(run, tmp_path / "copy.db")
    for command in ("status", "show", "analyze"):
        done = await asyncio.to_thread(bactrian, command, "copy.db", cwd=tmp_path, own_process=True)
        assert "its log copy.db-wal is not beside it: the latest data is missing" in " ".join(
            done.stderr.split()
        )
