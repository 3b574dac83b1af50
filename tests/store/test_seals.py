"""Each row has a checksum, and each table a count: whatever is changed in the file beside the program is told."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from bactrian.errors import StoreError
from bactrian.records.run import Call, Command, Confirmation, ItemList, Mark, Vote
from bactrian.records.session import Ending
from bactrian.records.text import Text
from bactrian.records.turn import Decision, Invocation, Proposal, ToolCall, ToolResult, Usage
from bactrian.store import open_store
from bactrian.store.care import recover, verify
from bactrian.store.database import SCHEMA
from bactrian.store.record_tables import SEALED, compute_seal
from tests.helpers.runs import session

USED = Usage(3, 2, 1, estimated=True, written=1, tier="flex")


async def fill(path: Path, *names: str) -> None:
    """Write sessions with something of every kind that is stored, and what replaces or removes a part of it."""
    async with open_store(path) as store:
        await store.freeze({"recipe": {"name": "tea"}})
        await store.extend({"recipe": {"name": "tea", "limit": 2}})
        for name in names:
            made = session(name, rounds=1)
            await store.begin(replace(made, turns=(), ending=None))
            await store.save_task(replace(made, preparation=USED))
            for turn in made.turns:
                await store.add_turn(name, turn)
                await store.add_turn(name, turn)
            # Whole numbers where others have fractions, and the other way round, as a model of the user's may give.
            odd = Usage(prompt=4.0, completion=True)  # type: ignore[arg-type]
            await store.add_proposal(name, Proposal(1, 1, 1, "user", Text("Ä"), odd, 2, "one", "stop"))
            await store.add_decision(
                name, Decision(1, 1, 1, "user", "critic", Text("1"), 1, "", "", None, "", USED, 1, "one")
            )
            wanted = Invocation("c1", "look", "{}")
            await store.add_tool_call(name, ToolCall(1, 1, 1, "user", wanted, Text("x"), USED, 1.5, "one"))
            await store.add_tool_result(
                name, ToolResult(1, 1, 1, "user", "look", Text("y"), None, 1, cut=True)
            )
            await store.add_call(Call(name, "user", 0, "one", 1.5, b"\0raw", None, USED))
            await store.add_confirmation(
                Confirmation(name, 1, "role_flip", "judge", True, "yes", USED, 1.5, "one")
            )
            for mark, note in (("good", ""), ("gone", ""), ("good", "better")):
                await store.add_mark(Mark(name, mark, note, 5))
            await store.remove_mark(name, "gone")
            await store.add_command(Command("play", name, {"seed": 1}, "1", 7))
            for choice in ("left", "right"):
                await store.add_vote(Vote(name, "a | b", "heron", False, "a", choice, "", "00", 1.5, 9))
            for complete in (False, True):
                await store.save_list(ItemList(name, ("x", "y"), complete, USED, 1))
            assert made.ending is not None
            await store.end(name, Ending("max_messages", 3, "user", "x"))
            await store.reopen(name)
            await store.end(name, made.ending, made.usage)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filled") / "run.db"
    asyncio.run(fill(path, "one", "two", "three"))
    return path


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def list_columns(path: Path) -> dict[str, list[tuple[str, str]]]:
    """The columns of each table with their types."""
    with closing(sqlite3.connect(path)) as connection:
        return {
            table: [(name, kind) for _, name, kind, *_ in connection.execute(f"PRAGMA table_info({table})")]
            for table in (*SEALED, "totals")
        }


CHANGES = {
    "INTEGER": "coalesce({0}, 0) + 1000",
    "FLOAT": "coalesce({0}, 0) + 0.5",
    "TEXT": "coalesce({0}, '') || 'x'",
    "BLOB": "{0} || x'00'",
}


@pytest.mark.parametrize("table", [*SEALED, "totals"])
def test_a_change_of_any_column_is_told_with_table_and_row(filled: Path, tmp_path: Path, table: str) -> None:
    assert (verify(filled).faults, verify(filled).unsealed) == ((), 0)
    (key, _), *columns = list_columns(filled)[table]
    if table == "migrations":  # Its key is the schema of the run: another one is refused.
        key = "applied"
    for name, kind in ((key, {"totals": "TEXT", "migrations": "FLOAT"}.get(table, "INTEGER")), *columns):
        changed = Path(shutil.copy(filled, tmp_path / "run.db"))
        where = "name = 'turns'" if table == "totals" else f"rowid = (SELECT max(rowid) FROM {table})"
        value = CHANGES[kind].format(f'"{name}"')
        change(changed, f'UPDATE {table} SET "{name}" = {value} WHERE {where}')
        faults = " ".join(verify(changed).faults)
        row = {"run": 1, "migrations": SCHEMA, "turns": 9}.get(table, 3)
        expected = (
            f"of table {table}"
            if name == key and table != "migrations"
            else f"Row {row} of table {table} was changed"
        )
        assert ("able turns" if table == "totals" else expected) in faults, name


# Without its only row of `migrations`, a file is none that is read.
@pytest.mark.parametrize("table", sorted(SEALED.keys() - {"migrations"}))
def test_a_row_that_is_removed_added_or_moved_is_told(filled: Path, tmp_path: Path, table: str) -> None:
    names = ", ".join(f'"{name}"' for name in SEALED[table] if name != "row")
    with closing(sqlite3.connect(filled)) as connection:
        (last,) = connection.execute(f"SELECT max(rowid) FROM {table}").fetchone()
    for statements in (
        [f"DELETE FROM {table} WHERE rowid = {last}"],
        [f"INSERT OR IGNORE INTO {table} ({names}, seal) SELECT {names}, seal FROM {table}"],
        [
            f"UPDATE {table} SET rowid = {to} WHERE rowid = {at}"
            for at, to in ((1, -1), (last, 1), (-1, last))
        ],
    ):
        changed = Path(shutil.copy(filled, tmp_path / "run.db"))
        before = read_all(changed, table)
        change(changed, *statements)
        if (
            read_all(changed, table) != before
        ):  # A row that must be unique cannot be added, and a single one not moved.
            assert f"able {table}" in " ".join(verify(changed).faults), statements


def read_all(path: Path, table: str) -> list[object]:
    """All rows with their numbers."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT rowid, * FROM {table} ORDER BY rowid").fetchall()


async def test_a_run_goes_on_and_a_row_that_was_changed_is_not_made_right_by_it(tmp_path: Path) -> None:
    run = tmp_path / "run.db"
    await fill(run, "one")
    await fill(run, "two")
    assert verify(run).faults == ()
    change(run, "UPDATE sessions SET user_role = 'Spy', ending = 'failed' WHERE id = 'one'")
    async with open_store(run) as store:
        await store.end("one", Ending("task_done", 3, "user", "x"))
        await store.add_mark(Mark("two", "later", "", 1.0))
    (fault,) = verify(run).faults
    assert fault == "Row 1 of table sessions was changed (id one): its checksum differs."
    recover(run, tmp_path / "new.db")
    assert (verify(tmp_path / "new.db").faults, verify(tmp_path / "new.db").unsealed) == ((), 1)


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT * FROM n"
PROGRAMS = {
    "view": ["ALTER TABLE {table} RENAME TO old", f"CREATE VIEW {{table}} AS {ENDLESS}"],
    "trigger": [f"CREATE TRIGGER t AFTER INSERT ON {{table}} BEGIN SELECT count(*) FROM ({ENDLESS}); END"],
    "virtual table": ["CREATE VIRTUAL TABLE words USING fts5(text)"],
    "table or index with an expression": [
        "ALTER TABLE {table} ADD COLUMN long TEXT AS (hex(zeroblob(400000000)))"
    ],
}
EXPRESSIONS = {
    "a view that is called a table": [
        f"CREATE VIEW v AS {ENDLESS}",
        "DROP TABLE marks",
        "UPDATE sqlite_master SET type = 'table', sql = replace(sql, ' v ', ' marks ') WHERE name = 'v'",
        "UPDATE sqlite_master SET name = 'marks', tbl_name = 'marks' WHERE name = 'v'",
    ],
    "an index": ["CREATE INDEX ix ON turns (length(hex(zeroblob(4 + number))))"],
    "a part of an index": ["CREATE INDEX ix ON turns (number) WHERE length(hex(zeroblob(4 + number))) > 1"],
    "a check": ["CREATE TABLE more (x CHECK (length(hex(zeroblob(x))) > 1))"],
    "a check behind a name like a comment": ['CREATE TABLE more ("--" CHECK (length(hex(zeroblob(4))) > 1))'],
}


@pytest.mark.parametrize("kind", EXPRESSIONS)
def test_no_expression_in_a_schema_runs_whatever_it_calls_itself(
    filled: Path, tmp_path: Path, kind: str
) -> None:
    run = Path(shutil.copy(filled, tmp_path / "run.db"))
    change(run, "PRAGMA writable_schema = ON", *EXPRESSIONS[kind])
    with pytest.raises(StoreError):
        verify(run)
    with pytest.raises(StoreError, match="contains a "):
        recover(run, tmp_path / "new.db")


def test_parts_of_a_run_that_are_not_of_its_schema_are_told(filled: Path, tmp_path: Path) -> None:
    run = Path(shutil.copy(filled, tmp_path / "run.db"))
    change(
        run,
        "CREATE TABLE more (x)",
        "ALTER TABLE turns ADD COLUMN y TEXT",
        "CREATE INDEX z ON turns (role)",
        "DROP INDEX sessions_progress",
    )
    assert verify(run).faults == (
        "The column more.x is none that bactrian writes.",
        "The column turns.y is none that bactrian writes.",
        "The index z is none that bactrian writes.",
        "The table more is none that bactrian writes.",
        "The index sessions_progress is missing.",
    )
    change(run, "DROP TABLE totals")
    assert "The table totals is missing." in verify(run).faults


@pytest.mark.system
def test_a_recovery_removes_what_a_killed_one_left(filled: Path, tmp_path: Path) -> None:
    killed = f"""
import os, shutil
from pathlib import Path
from bactrian.store.care import recover
shutil.copyfile = lambda *_: os.kill(os.getpid(), 9)
recover(Path({str(filled)!r}), Path("a.db"))
"""
    subprocess.run([sys.executable, "-c", killed], cwd=tmp_path, check=False)
    assert len(list(tmp_path.glob(".a.db.*.recovery"))) == 1
    recover(filled, tmp_path / "a.db")
    assert [path.name for path in tmp_path.iterdir()] == ["a.db"]


@pytest.mark.parametrize("table", ["migrations", "sessions", "votes", "totals"])
@pytest.mark.parametrize("kind", PROGRAMS)
async def test_a_file_with_sql_that_would_run_is_refused(
    filled: Path, tmp_path: Path, kind: str, table: str
) -> None:
    run = Path(shutil.copy(filled, tmp_path / "run.db"))
    change(run, *(statement.format(table=table) for statement in PROGRAMS[kind]))
    for read_only in (True, False):
        with pytest.raises(StoreError, match=f"contains a {kind}"):
            async with open_store(run, read_only=read_only):
                pass
    for attempt in (lambda: verify(run), lambda: recover(run, tmp_path / "new.db")):
        with pytest.raises(StoreError, match=f"contains a {kind}"):
            attempt()


def test_a_kind_of_text_number_or_bytes_has_the_checksum_of_what_is_stored() -> None:
    class Name(str):
        def __str__(self) -> str:
            return "another text"

    class Count(int): ...

    class Share(float): ...

    class Packed(bytes): ...

    kinds = (Name("Cook"), Count(3), Share(0.5), Packed(b"x"), True, None)
    assert compute_seal(kinds) == compute_seal(("Cook", 3, 0.5, b"x", 1, None))


async def test_a_value_of_another_type_is_told_with_its_column(tmp_path: Path) -> None:
    await fill(tmp_path / "run.db", "one")
    with closing(sqlite3.connect(tmp_path / "run.db")) as run, run:
        run.execute("UPDATE turns SET role = x'00' WHERE number = 2")
    async with open_store(tmp_path / "run.db", read_only=True) as store:
        with pytest.raises(StoreError, match="its role in the table turns is bytes"):
            await store.session("one")
