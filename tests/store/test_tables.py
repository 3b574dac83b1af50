"""The records, as the code declares them, and the columns of a new run."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from bactrian.store import record_tables
from bactrian.store.database import create_run
from bactrian.store.record_tables import PROGRESS, SEALED, Table

BESIDE = {
    "sessions": {"row", "created"},
    "run": {"row", "recipe", "created"},
    "totals": {"name", "last", "rows", "sum", "unsealed"},
    "migrations": {"number", "applied"},
    **{name: {"row", "session"} for name in ("turns", "proposals", "verdicts", "tools")},
    **{name: {"row"} for name in ("lists", "calls", "confirmations", "marks", "commands", "votes")},
}
"""The columns that no record contains."""


def test_a_new_run_has_a_column_for_each_field_of_each_record_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    create_run(path)
    with closing(sqlite3.connect(path)) as connection:
        tables = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        columns = {
            table: {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")}
            for table in tables
        }
    declared = {name: set(names) for name, names in BESIDE.items()}
    for table in vars(record_tables).values():
        if isinstance(table, Table):
            declared[table.name] |= set(table.names)
    assert SEALED.keys() == declared.keys() - {"totals"}
    for name, names in SEALED.items():
        assert declared[name] - {"row"} == {*names} - {"row"}
        declared[name].add("seal")
    assert columns == declared


def test_progress_is_read_from_its_index_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    create_run(path)
    with closing(sqlite3.connect(path)) as connection:
        query = PROGRESS.select("WHERE id > 'x' ORDER BY id", "id")
        plan = connection.execute(f"EXPLAIN QUERY PLAN {query}")
        assert "COVERING INDEX sessions_progress" in plan.fetchone()[3]
