"""What a damaged run still holds, in a new file."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import from_json
from sqlalchemy import TableClause, bindparam, delete, func, select
from sqlalchemy.dialects import sqlite

from bactrian.errors import InputError, StoreError
from bactrian.store import schema
from bactrian.store.migrations import migrate
from bactrian.store.sqlite.database import explain_errors, find_log, open_for_writing
from bactrian.store.sqlite.filesystem import follow_link

_JSON = frozenset({"provenance", "preparation", "axis_values", "said", "recipe", "items", "usage"})
_ROWS_OF_A_PAGE = 300
"""More than fit on a page of 4 KB."""
_FARTHEST = 1 << 40
"""Where nothing can be read after so large a step, nothing more is looked for."""
_ABOUT_TURNS = (
    (schema.proposals, "number"),
    (schema.verdicts, "number"),
    (schema.confirmations, "turn"),
)
"""What is said of a turn that is lost would be taken for what is said of the one that is made in its place."""
_DIALECT = sqlite.dialect(paramstyle="named")


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What was taken over."""

    sessions: int
    turns: int
    opened: int
    """Sessions among them that had ended and lack turns now: the same command that made the run finishes them."""


def recover(path: Path, out: Path) -> RecoveryReport:
    """Write to ``out`` what can be read of the run at ``path``, which is not touched.

    Rows on pages that are damaged are left out, and so are turns that are not what was written and all turns after
    them: what remains of a session is how it was at an earlier moment.

    Raises:
        InputError: there is no file, or ``out`` exists.
        StoreError: nothing of a run can be read in it.
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
            found = _take_over(damaged, new, path)
        new.rename(out)
    return found


def _check(path: Path, out: Path) -> None:
    if not path.is_file():
        raise InputError("There is no such run.", where=str(path), next="Check the path.")
    if out.exists():
        raise InputError("This file exists.", where=str(out), next="Give a new file for --out.")
    if not out.absolute().parent.is_dir():
        raise InputError(
            f"There is no folder {out.absolute().parent}.", where=str(out), next="Make it first."
        )


def _open(copy: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(copy, isolation_level=None)
    # So a file that ends too early, or a broken index, is no reason to refuse all of it.
    connection.execute("PRAGMA writable_schema = ON")
    connection.text_factory = _text
    connection.row_factory = sqlite3.Row
    return connection


def _text(content: bytes) -> str:
    return content.decode(errors="replace")


def _take_over(damaged: sqlite3.Connection, new: Path, path: Path) -> RecoveryReport:
    engine = open_for_writing(new)
    try:
        with engine.begin() as connection:
            migrate(connection, time.time())
        with engine.begin() as connection:
            target = connection.connection.driver_connection
            assert isinstance(target, sqlite3.Connection)
            written = {table.name: _copy(damaged, target, table) for table in schema.TABLES}
            if not written["sessions"] and not written["lists"] and not written["run"]:
                raise StoreError(
                    "Nothing of a run can be read in this file.",
                    where=str(path),
                    next="Take an older copy of it; this file is as it was.",
                )
            target.execute(_AFTER_A_GAP)
            for table, number in _ABOUT_TURNS:
                session = table.c.session
                said = select(func.count()).where(schema.turns.c.session == session).scalar_subquery()
                connection.execute(delete(table).where(table.c[number] > said))
            opened = target.execute(_OPEN_AGAIN).rowcount
            sessions, turns = (
                connection.execute(select(func.count()).select_from(table)).scalar_one()
                for table in (schema.sessions, schema.turns)
            )
    finally:
        engine.dispose()
    return RecoveryReport(sessions, turns, opened)


_AFTER_A_GAP = """
DELETE FROM turns WHERE row IN (
    SELECT row FROM (
        SELECT row, number, row_number() OVER (PARTITION BY session ORDER BY number) AS place FROM turns
    ) WHERE number != place
)
"""
_OPEN_AGAIN = """
UPDATE sessions
SET ending = NULL, ending_turn = NULL, ending_speaker = NULL, ending_evidence = NULL,
    prompt_tokens = NULL, completion_tokens = NULL, cached_tokens = NULL
WHERE ending_turn > (SELECT count(*) FROM turns WHERE session = sessions.id)
"""


def _copy(damaged: sqlite3.Connection, target: sqlite3.Connection, table: TableClause) -> int:
    """Copy the rows of ``table`` that are whole. Gives how many there are."""
    columns = [name for name in _columns(damaged, table.name) if name in table.c]
    if "row" not in columns:
        return 0
    insert = str(table.insert().prefix_with("OR IGNORE").compile(dialect=_DIALECT, column_keys=columns))
    copied = 0
    for row in _rows(damaged, table, columns):
        values = dict(zip(columns, row, strict=True))
        if _is_whole(values):
            try:
                copied += target.execute(insert, values).rowcount
            except sqlite3.IntegrityError:  # a turn without its session, or a value that is gone
                continue
    return copied


def _columns(damaged: sqlite3.Connection, table: str) -> Sequence[str]:
    try:
        return [row["name"] for row in damaged.execute(f"PRAGMA table_info({table})")]
    except sqlite3.DatabaseError:
        return []


def _rows(damaged: sqlite3.Connection, table: TableClause, columns: Sequence[str]) -> Generator[sqlite3.Row]:
    """Every row that can be read."""
    query = select(*(table.c[name] for name in columns)).where(table.c.row >= bindparam("first"))
    sql = str(query.order_by(table.c.row).compile(dialect=_DIALECT))
    first = 0
    while True:
        try:
            for row in damaged.execute(sql, {"first": first}):
                if row["row"] < first:  # a damaged tree can lead back, and round for ever
                    raise sqlite3.DatabaseError("out of order")
                yield row
                first = row["row"] + 1
            return
        except sqlite3.DatabaseError:
            following = _next_readable(damaged, sql, first)
            if following is None:
                return
            first = following


def _next_readable(damaged: sqlite3.Connection, sql: str, lost: int) -> int | None:
    """The number after ``lost`` from which on rows can be read again; None if there is none.

    The rows of one lost page are few, and each number is tried. A lost page of the tree above them hides many more:
    there the steps double until something can be read, and are halved on the way back.
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
