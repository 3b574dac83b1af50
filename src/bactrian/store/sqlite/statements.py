"""SQL statements that write a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from bactrian.store import schema

_MOST_ROWS = 64
"""Maximum rows per statement. Batch sizes are powers of two, so that few statements need preparing."""


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """SQL with its parameters, for any number of rows at once."""

    place: int
    """Order within a transaction, ascending: a session before its turns."""
    head: str
    row: str = ""
    """The placeholders of one row; empty if the statement takes one row at a time."""
    tail: str = ""

    def batches(self, rows: Sequence[tuple[Any, ...]]) -> list[tuple[str, tuple[Any, ...]]]:
        """Return SQL and parameters that together write ``rows``.

        Each statement releases and reacquires the interpreter's lock; one statement for many rows costs the event loop
        far less than one per row.
        """
        if not self.row:
            return [(self.head, row) for row in rows]
        pairs: list[tuple[str, tuple[Any, ...]]] = []
        done = 0
        while done < len(rows):
            size = min(_MOST_ROWS, 1 << (len(rows) - done).bit_length() - 1)
            sql = f"{self.head}{', '.join([self.row] * size)}{self.tail}"
            pairs.append((sql, tuple(chain.from_iterable(rows[done : done + size]))))
            done += size
        return pairs


def _insert(place: int, table: str, *columns: str) -> Statement:
    """Insert a row unless its key exists."""
    row = f"({', '.join('?' * len(columns))})"
    head = f"INSERT INTO {table} ({_join_columns(columns)}) VALUES "  # noqa: S608
    return Statement(place, head, row, " ON CONFLICT DO NOTHING")


def _replace(place: int, table: str, key: str, *columns: str) -> Statement:
    """Insert a row, or update the one with its key. ``key`` is a column, or several with commas between them."""
    renewed = ", ".join(f'"{name}" = excluded."{name}"' for name in columns if name != key)
    values = ", ".join("?" * len(columns))
    names = _join_columns(columns)
    sql = f"INSERT INTO {table} ({names}) VALUES ({values}) ON CONFLICT ({key}) DO UPDATE SET {renewed}"  # noqa: S608
    return Statement(place, sql)


def _update(place: int, table: str, columns: Sequence[str], where: str) -> Statement:
    """Update columns of the rows that match ``where``. Its parameters follow those of the columns."""
    changes = ", ".join(f'"{name}" = ?' for name in columns)
    return Statement(place, f"UPDATE {table} SET {changes} WHERE {where}")  # noqa: S608


def _join_columns(columns: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)


_OPEN = "(ending IS NULL OR ending IN ('failed', 'stopped'))"

ADD_SESSION = _insert(0, "sessions", "created", *schema.SESSIONS.names)
SAVE_TASK = _update(1, "sessions", schema.PREPARATION.names, "id = ?")
ADD_TURN = _insert(2, "turns", "session", *schema.TURNS.names)
END_SESSION = _update(3, "sessions", (*schema.ENDINGS.names, *schema.TOTALS.names), f"id = ? AND {_OPEN}")
ADD_CALL = _insert(4, "calls", *schema.CALLS.names)
SAVE_LIST = _replace(5, "lists", "id", *schema.LISTS.names)
ADD_RECIPE = _insert(6, "run", "row", "recipe", "created")
ADD_PROPOSAL = _insert(7, "proposals", "session", *schema.PROPOSALS.names)
ADD_DECISION = _insert(8, "verdicts", "session", *schema.DECISIONS.names)
ADD_CONFIRMATION = _insert(9, "confirmations", *schema.CONFIRMATIONS.names)
ADD_TOOL_CALL = _insert(10, "tools", "session", *schema.TOOL_CALLS.names)
ADD_TOOL_RESULT = _update(
    11, "tools", schema.RESULT.names, "session = ? AND number = ? AND round = ? AND place = ?"
)
ADD_MARK = _replace(13, "marks", "session, mark", *schema.MARKS.names)
REMOVE_MARK = Statement(14, "DELETE FROM marks WHERE session = ? AND mark = ?")
ADD_COMMAND = _insert(15, "commands", *schema.COMMANDS.names)
ADD_VOTE = _replace(16, "votes", "session, pair, voter, repeated", *schema.VOTES.names)
REOPEN_SESSION = Statement(
    12,
    "UPDATE sessions SET "  # noqa: S608
    + ", ".join(f'"{name}" = NULL' for name in (*schema.ENDINGS.names, *schema.TOTALS.names))
    + " WHERE id = ? AND ending = 'max_messages'",
)
REPLACE_RECIPE = Statement(13, "UPDATE run SET recipe = ? WHERE row = 1")
