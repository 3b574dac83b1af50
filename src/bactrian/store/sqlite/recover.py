"""Recovery of the readable data of a damaged run into a new file."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import from_json
from sqlalchemy import TableClause, bindparam, select
from sqlalchemy.dialects import sqlite

from bactrian.errors import InputError, StoreError
from bactrian.files.identity import check_replaceable
from bactrian.records.session import IMPORTED
from bactrian.store import schema
from bactrian.store.migrations import migrate
from bactrian.store.sqlite.database import begin_transaction, explain_errors, find_log, open_for_writing
from bactrian.store.sqlite.filesystem import follow_link, list_run_files

_JSON = frozenset({"provenance", "preparation", "axis_values", "said", "recipe", "items", "usage"})
_ROWS_OF_A_PAGE = 300
"""Upper bound on the rows of a 4 KB page."""
_FARTHEST = 1 << 40
"""Maximum step: if nothing is readable after it, the search ends."""
_ABOUT_LOST_TURNS = (
    """
    DELETE FROM proposals
    WHERE number > (SELECT coalesce(max(number), 0) FROM turns WHERE session = proposals.session)
    """,
    """
    DELETE FROM verdicts
    WHERE number > (SELECT coalesce(max(number), 0) FROM turns WHERE session = verdicts.session)
    """,
    """
    DELETE FROM confirmations
    WHERE turn > (SELECT coalesce(max(number), 0) FROM turns WHERE session = confirmations.session)
    """,
)
"""Rows about a lost turn would otherwise apply to the turn that replaces it."""
_DIALECT = sqlite.dialect(paramstyle="named")


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """The result of a recovery."""

    sessions: int
    turns: int
    opened: int
    """Number of ended sessions that lack turns now; the command that made the run finishes them."""


def recover(path: Path, out: Path) -> RecoveryReport:
    """Write the readable data of the run at ``path`` to ``out``; ``path`` stays unchanged.

    Rows on damaged pages are left out, as are turns with a wrong checksum and all turns after them: a recovered session
    is in an earlier state. An imported session may have had gaps before, so it keeps all turns that are readable.

    Raises:
        InputError: the file does not exist, or ``out`` exists.
        StoreError: no data is readable.
    """
    path = follow_link(path)
    _check(path, out)
    with (
        explain_errors(out),
        tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.absolute().parent) as folder,
    ):
        copy, new = Path(folder) / "damaged.db", Path(folder) / "new.db"
        shutil.copyfile(path, copy)
        if find_log(path).exists():
            shutil.copyfile(find_log(path), find_log(copy))
        with closing(_open(copy)) as damaged:
            found = _copy_tables(damaged, new, path)
        new.rename(out)
    return found


def _check(path: Path, out: Path) -> None:
    if not path.is_file():
        raise InputError("There is no such run.", where=str(path), next="Check the path.")
    with suppress(FileNotFoundError):
        out.stat()  # Path.exists() would take a path that cannot be a file, such as one that is too long, for a new one
        raise InputError("This file exists.", where=str(out), next="Give a new file for --out.")
    check_replaceable(out, list_run_files(path))
    if not out.absolute().parent.is_dir():
        raise InputError(
            f"There is no folder {out.absolute().parent}.", where=str(out), next="Create it first."
        )


def _open(copy: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(copy, isolation_level=None)
    # With this setting, SQLite opens truncated files and files with broken indexes.
    connection.execute("PRAGMA writable_schema = ON")
    connection.text_factory = _decode
    connection.row_factory = sqlite3.Row
    return connection


def _decode(content: bytes) -> str:
    return content.decode(errors="replace")


def _copy_tables(damaged: sqlite3.Connection, new: Path, path: Path) -> RecoveryReport:
    with closing(open_for_writing(new)) as target:
        with begin_transaction(target):
            migrate(target, time.time())
        with begin_transaction(target):
            written = {table.name: _copy(damaged, target, table) for table in schema.TABLES}
            if not written["sessions"] and not written["lists"] and not written["run"]:
                raise StoreError(
                    "This file contains no readable data of a run.",
                    where=str(path),
                    next="Use an older copy; this file is unchanged.",
                )
            target.execute(_AFTER_A_GAP, (f"{IMPORTED}%",))
            for statement in _ABOUT_LOST_TURNS:
                target.execute(statement)
            opened = target.execute(_OPEN_AGAIN).rowcount
            (sessions,) = target.execute("SELECT count(*) FROM sessions").fetchone()
            (turns,) = target.execute("SELECT count(*) FROM turns").fetchone()
    return RecoveryReport(sessions, turns, opened)


_AFTER_A_GAP = """
DELETE FROM turns WHERE row IN (
    SELECT row FROM (
        SELECT row, number, row_number() OVER (PARTITION BY session ORDER BY number) AS place FROM turns
        WHERE session NOT IN (SELECT id FROM sessions WHERE json_extract(provenance, '$.prompts') LIKE ?)
    ) WHERE number != place
)
"""
_OPEN_AGAIN = """
UPDATE sessions
SET ending = NULL, ending_turn = NULL, ending_speaker = NULL, ending_evidence = NULL,
    prompt_tokens = NULL, completion_tokens = NULL, cached_tokens = NULL
WHERE ending_turn > (SELECT coalesce(max(number), 0) FROM turns WHERE session = sessions.id)
"""


def _copy(damaged: sqlite3.Connection, target: sqlite3.Connection, table: TableClause) -> int:
    """Copy the intact rows of ``table``; return their number."""
    columns = [name for name in _list_columns(damaged, table.name) if name in table.c]
    if "row" not in columns:
        return 0
    insert = str(table.insert().prefix_with("OR IGNORE").compile(dialect=_DIALECT, column_keys=columns))
    copied = 0
    for row in _read_rows(damaged, table, columns):
        values = dict(zip(columns, row, strict=True))
        if _is_whole(values):
            try:
                copied += target.execute(insert, values).rowcount
            except sqlite3.IntegrityError:  # a turn without its session, or a lost value
                continue
    return copied


def _list_columns(damaged: sqlite3.Connection, table: str) -> Sequence[str]:
    try:
        return [row["name"] for row in damaged.execute(f"PRAGMA table_info({table})")]
    except sqlite3.DatabaseError:
        return []


def _read_rows(
    damaged: sqlite3.Connection, table: TableClause, columns: Sequence[str]
) -> Generator[sqlite3.Row]:
    """Yield every row that can be read."""
    query = select(*(table.c[name] for name in columns)).where(table.c.row >= bindparam("first"))
    sql = str(query.order_by(table.c.row).compile(dialect=_DIALECT))
    first = 0
    while True:
        try:
            for row in damaged.execute(sql, {"first": first}):
                if row["row"] < first:  # a damaged tree can lead back in an endless loop
                    raise sqlite3.DatabaseError("out of order")
                yield row
                first = row["row"] + 1
            return
        except sqlite3.DatabaseError:
            following = _find_next_readable(damaged, sql, first)
            if following is None:
                return
            first = following


def _find_next_readable(damaged: sqlite3.Connection, sql: str, lost: int) -> int | None:
    """Return the first number after ``lost`` from which rows are readable again; None if not found.

    A lost leaf page has few rows, so each number is tried. A lost page of the tree above hides many more: there the
    steps double until a row is readable, followed by a binary search.
    """

    def readable(number: int) -> bool:
        try:
            row = damaged.execute(sql, {"first": number}).fetchone()
        except sqlite3.DatabaseError:
            return False
        return row is None or row["row"] >= number

    for number in range(lost + 1, lost + _ROWS_OF_A_PAGE):
        if readable(number):
            return number
    hidden, step = lost + _ROWS_OF_A_PAGE - 1, 1
    while not readable(hidden + step):
        hidden, step = hidden + step, 2 * step
        if step > _FARTHEST:
            return None
    found = hidden + step
    while found - hidden > 1:
        middle = (found + hidden) // 2
        hidden, found = (hidden, middle) if readable(middle) else (middle, found)
    return found


def _is_whole(row: Mapping[str, Any]) -> bool:
    try:
        if "checksum" in row and schema.compute_checksum(row["text"]) != row["checksum"]:
            return False
        for name in _JSON & row.keys():
            if row[name] is not None:
                from_json(row[name])
    except (ValueError, TypeError, AttributeError):
        return False
    return True
