"""The records, as the code declares them, and the columns that the migrations make."""

from __future__ import annotations

import ast
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bactrian.store import migrations, open_store, schema
from bactrian.store.mapping import RecordMapping

TABLES: dict[str, tuple[set[str], list[RecordMapping]]] = {  # type: ignore[type-arg]
    "sessions": ({"row", "created"}, [schema.SESSIONS, schema.ENDINGS, schema.TOTALS]),
    "turns": ({"row", "session"}, [schema.TURNS]),
    "run": ({"row", "recipe", "created"}, []),
    "lists": ({"row"}, [schema.LISTS]),
    "calls": ({"row"}, [schema.CALLS]),
    "proposals": ({"row", "session"}, [schema.PROPOSALS]),
    "verdicts": ({"row", "session"}, [schema.DECISIONS]),
    "tools": ({"row", "session"}, [schema.TOOL_CALLS, schema.TOOL_RESULTS]),
    "confirmations": ({"row"}, [schema.CONFIRMATIONS]),
    "marks": ({"row"}, [schema.MARKS]),
    "votes": ({"row"}, [schema.VOTES]),
    "commands": ({"row"}, [schema.COMMANDS]),
}
LATER = {
    "sessions": {*schema.ENDINGS.names, *schema.TOTALS.names},
    "tools": {*schema.RESULT.names},
}
"""Columns that are empty until something else has happened."""


@pytest.fixture
async def columns(tmp_path: Path) -> dict[str, dict[str, tuple[str, bool]]]:
    """Type and whether it may be null, by table and column, in a new run."""
    path = tmp_path / "run.db"
    async with open_store(path):
        pass
    with closing(sqlite3.connect(path)) as connection:
        return {
            table: {
                name: (type_, not not_null)
                for _, name, type_, not_null, *_ in connection.execute(f"PRAGMA table_info({table})")
            }
            for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        }


async def test_a_new_run_has_a_column_for_each_field_of_each_record(
    columns: dict[str, dict[str, tuple[str, bool]]],
) -> None:
    assert columns.keys() == TABLES.keys() | {"migrations"}
    for table, (own, mappings) in TABLES.items():
        declared = {
            column.name: (column.type, column.nullable or column.name in LATER.get(table, ()))
            for mapping in mappings
            for column in mapping.columns
        }
        assert columns[table].keys() == own | declared.keys(), table
        assert {name: columns[table][name] for name in declared} == declared, table


async def test_progress_is_read_from_its_index_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    async with open_store(path):
        pass
    with closing(sqlite3.connect(path)) as connection:
        names = ", ".join(schema.PROGRESS.names)
        plan = connection.execute(
            f"EXPLAIN QUERY PLAN SELECT {names} FROM sessions WHERE id > 'x' ORDER BY id"
        )
        assert "COVERING INDEX sessions_progress" in plan.fetchone()[3]


def test_a_migration_knows_nothing_of_todays_records() -> None:
    tree = ast.parse(Path(migrations.__file__).read_text("utf-8"))
    imported = {
        node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module is not None
    }
    assert not {name for name in imported if name.startswith("bactrian")}
