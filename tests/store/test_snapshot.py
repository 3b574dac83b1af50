"""A snapshot is one state of a run, however it is read and whatever is written meanwhile."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from bactrian.analyze.aggregate import measure
from bactrian.api.notebook import read_frame
from bactrian.export.exporter import ExportOptions, export_run
from bactrian.export.formats import find_format
from bactrian.export.session_filters import Filters
from bactrian.records.run import Finding
from bactrian.records.session import Session
from bactrian.store import open_store
from bactrian.tables.tables import MESSAGES, Row, make_message_rows
from tests.store.test_store import session, turn

NAMES = [f"{number:03}" for number in range(260)]
"""More sessions than are read at a time."""


async def make_run(path: Path, names: Sequence[str] = NAMES) -> None:
    async with open_store(path) as store:
        await asyncio.gather(*(store.begin(session(name)) for name in names))
        await asyncio.gather(*(store.add_turn(name, turn(1)) for name in names))


def say_more(path: Path) -> None:
    """Add a turn to every session, as another process would."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "INSERT INTO turns (session, number, speaker, role, text, prompt_tokens, completion_tokens, cached_tokens, "
            "estimated, seconds, model, finish, lossy, thought, checksum) "
            "SELECT session, 2, speaker, role, text, 1, 1, 0, 0, 0.1, "
            "model, finish, 0, thought, checksum FROM turns WHERE number = 1"
        )


async def test_no_page_of_a_snapshot_is_newer_than_the_first(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    await make_run(path)
    async with open_store(path, read_only=True) as store, store.snapshot() as run:
        say_more(path)
        assert {len(session.turns) async for session in run.sessions()} == {1}
        found = await asyncio.gather(*(run.session(name) for name in NAMES[:20]))
        assert {len(session.turns) for session in found if session is not None} == {1}
        assert {len(session.turns) async for session in store.sessions()} == {2}


@pytest.mark.system
async def test_an_export_is_one_state_of_a_run_that_is_being_written(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    await make_run(path)
    seen: list[int] = []

    def look(session: Session) -> list[Finding]:
        if not seen:
            say_more(path)
        seen.append(len(session.turns))
        return []

    options = ExportOptions(
        find_format("parquet"), tmp_path / "out", filters=Filters(unfinished=True), findings=look
    )
    async with open_store(path, read_only=True) as store:
        await export_run(store, options)
    assert seen == [1] * len(NAMES)


@pytest.mark.system
async def test_an_analysis_is_one_state_of_a_run_that_is_being_written(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    await make_run(path)
    written: list[int] = []

    def write_once(done: int, _of: int | None) -> None:
        if not written:
            say_more(path)
        written.append(done)

    async with open_store(path) as writer:
        assert await writer.is_open()
        measured = await measure(writer, on_progress=write_once)
    assert len(written) > 1
    assert {facts.messages for facts in measured.facts} == {1}


async def test_a_run_is_open_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    async with open_store(path), open_store(path, read_only=True) as reader:
        assert await reader.is_open()
    async with open_store(path, read_only=True) as reader:
        assert not await reader.is_open()


@pytest.mark.system
async def test_a_data_frame_is_one_state_of_a_run_that_is_being_written(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    names = [f"{number:04}" for number in range(1100)]  # more than become rows at a time
    await make_run(path, names)
    seen: list[str] = []

    def look(found: Session) -> list[Row]:
        if len(seen) == 0:
            say_more(path)
        seen.append(found.id)
        return list(make_message_rows(found, "run"))

    assert len(await read_frame(path, MESSAGES, look)) == len(names)
