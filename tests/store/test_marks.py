"""Marks and notes on sessions are kept in the run."""

from __future__ import annotations

from pathlib import Path

from bactrian.records.run import Mark
from bactrian.store import open_store
from bactrian.store.care import recover
from tests.helpers.runs import make_run, session


async def test_a_mark_is_kept_and_its_note_replaced(tmp_path: Path) -> None:
    path = await make_run(tmp_path / "run.db", [session("a"), session("b")])
    async with open_store(path) as store:
        await store.add_mark(Mark("a", "good", "", 1.0))
        await store.add_mark(Mark("b", "good", "short", 2.0))
        await store.add_mark(Mark("a", "good", "a fine plan", 3.0))
        await store.add_mark(Mark("a", "look-again", "", 4.0))
        await store.remove_mark("b", "good")
        await store.remove_mark("b", "never set")
    async with open_store(path, read_only=True) as store:
        assert await store.marks() == [
            Mark("a", "good", "a fine plan", 3.0),
            Mark("a", "look-again", "", 4.0),
        ]


async def test_marks_are_recovered_with_the_run(tmp_path: Path) -> None:
    path = await make_run(tmp_path / "run.db", [session("a")])
    async with open_store(path) as store:
        await store.add_mark(Mark("a", "good", "a fine plan", 3.0))
    recover(path, tmp_path / "new.db")
    async with open_store(tmp_path / "new.db", read_only=True) as store:
        assert [mark.note for mark in await store.marks()] == ["a fine plan"]
