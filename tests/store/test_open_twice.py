"""A process that opens a run again keeps SQLite's locks for its other readers, which closing the file would drop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bactrian.store import is_run, open_store
from bactrian.store.care import verify
from tests.helpers.command import start_python
from tests.helpers.runs import make_run, session

WRITE = (
    "import asyncio, pathlib, sys\n"
    "from tests.helpers.runs import make_run, session\n"
    "asyncio.run(make_run(pathlib.Path(sys.argv[1]), [session(sys.argv[2])]))"
)


@pytest.mark.system
async def test_a_reader_sees_what_others_write_after_the_run_was_opened_again_beside_it(
    tmp_path: Path,
) -> None:
    run = await make_run(tmp_path / "run.db", [session("first")])
    async with open_store(run, read_only=True) as store:
        assert len(await store.outlines(limit=9)) == 1
        async with open_store(run, read_only=True):
            pass
        assert is_run(run)
        assert verify(run).sessions == 1
        for number in range(3):
            written = await asyncio.to_thread(start_python(WRITE, run, f"later{number}").finish)
            assert len(await store.outlines(limit=9)) == 2 + number, written
