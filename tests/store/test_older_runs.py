"""A run that an earlier version made is read as it is, goes on, and can be checked and recovered before and after."""

from __future__ import annotations

import gzip
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bactrian.records.turn import Usage
from bactrian.store import SCHEMA, open_store
from bactrian.store.care import recover, verify
from tests.helpers.command import bactrian
from tests.store.test_seals import change, fill

OLD = Path(__file__).parents[1] / "data" / "schema-2.db.gz"
"""Sessions with something of every kind that is stored, as the version before the tiers wrote them."""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old.db"
    path.write_bytes(gzip.decompress(OLD.read_bytes()))
    return path


def read_schema(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT max(number) FROM migrations").fetchone()[0]


def test_reading_an_older_run_leaves_it_as_it_is(old: Path, tmp_path: Path) -> None:
    before = old.read_bytes()
    for words in (("show", "old.db", "one"), ("analyze", "old.db"), ("verify", "old.db")):
        done = bactrian(*words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert old.read_bytes() == before
    assert read_schema(old) == 2


async def test_what_was_paid_for_is_the_same_before_and_after(old: Path, tmp_path: Path) -> None:
    async def read() -> tuple[dict[str, Usage], Usage]:
        async with open_store(old, read_only=True) as store:
            session = await store.session("one")
            assert session is not None
            return await store.count_spent(), session.turns[0].usage

    before = await read()
    await fill(old, "four")
    assert read_schema(old) == SCHEMA
    async with open_store(old, read_only=True) as store:
        spent = await store.list_spent(["one", "two", "three"], each=False)
        new = await store.list_spent(["four"], each=False)
    whole: dict[str, Usage] = {}
    for _, agent, usage in spent:
        whole[agent] = whole.get(agent, Usage()) + usage
    assert whole.items() <= before[0].items()
    assert (await read())[1] == before[1]
    assert {usage.tier for _, _, usage in new} == {"", "flex"}


async def test_its_checksums_hold_after_it_went_on_and_a_row_that_was_changed_before_is_told(
    old: Path, tmp_path: Path
) -> None:
    changed = Path(shutil.copy(old, tmp_path / "changed.db"))
    change(changed, "UPDATE turns SET role = 'Spy' WHERE session = 'two' AND number = 1")
    (fault,) = verify(changed).faults
    assert "of table turns was changed (session two, number 1)" in fault
    for run in (old, changed):
        await fill(run, "four")
    assert (verify(old).faults, verify(old).unsealed) == ((), 0)
    assert verify(changed).faults == (fault,)
    change(old, "DELETE FROM turns WHERE session = 'one' AND number = 3")
    assert verify(old).faults


def test_an_older_run_is_recovered_with_its_checksums(old: Path, tmp_path: Path) -> None:
    change(old, "UPDATE proposals SET text = 'other' WHERE session = 'two'")
    recover(old, tmp_path / "new.db")
    assert (verify(tmp_path / "new.db").faults, verify(tmp_path / "new.db").unsealed) == ((), 1)
