"""A read that is cancelled goes on in its thread."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bactrian.store import open_store
from tests.helpers.runs import session


def count_open(path: Path) -> int:
    return sum(file.resolve() == path for file in Path("/proc/self/fd").iterdir() if file.is_symlink())


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the system does not list open files")
async def test_its_file_is_closed_when_it_ends_although_the_store_was_closed_before(tmp_path: Path) -> None:
    run = (tmp_path / "run.db").resolve()
    async with open_store(run) as store:
        await store.begin(session("001"))
    with closing(sqlite3.connect(run, isolation_level=None)) as other:
        async with open_store(run, read_only=True) as store:
            other.execute("PRAGMA locking_mode = EXCLUSIVE")
            other.execute("BEGIN EXCLUSIVE")
            reading = asyncio.ensure_future(store.session("001"))
            while count_open(run) < 2:
                await asyncio.sleep(0.01)
            reading.cancel()
        assert count_open(run) > 1
    await asyncio.get_running_loop().shutdown_default_executor()
    assert count_open(run) == 0
