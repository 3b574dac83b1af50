"""The tables of a run and the records in them. The columns of a table are derived from the fields of its record.

``schema.sql`` creates the tables; a test compares the two.
"""

from __future__ import annotations

import marshal
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import chain
from operator import attrgetter
from types import NoneType
from typing import Any, Generic, NamedTuple, TypeVar, get_args, get_type_hints

from pydantic_core import from_json, to_json

from bactrian.records.run import Call, Command, Confirmation, ItemList, Mark, Progress, Vote
from bactrian.records.session import Ending, Session
from bactrian.records.text import Text, find_builder
from bactrian.records.turn import Decision, Proposal, ToolCall, ToolResult, Turn, Usage

Record = TypeVar("Record")
Convert = Callable[[Any], Any]

_MOST_ROWS = 64
"""Maximum rows per statement. Batch sizes are powers of two, so that few statements need preparing."""


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """SQL that writes any number of rows at once."""

    rank: int
    """Order within a transaction, ascending: sessions, since other rows refer to them, then other inserts, updates
    and removals."""
    head: str
    row: str = ""
    """The placeholders of one row; empty if the statement takes one row at a time."""
    tail: str = ""
    unset: int | None = None
    """Columns with a checksum that the row does not contain, being empty at first; None for rows without one."""

    def seal(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return ``row`` with its checksum, if the statement writes one."""
        return row if self.unset is None else (*row, compute_seal((*row, *_NULLS[: self.unset])))

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


def make_insert(
    table: str, columns: Sequence[str], key: Sequence[str] = (), later: Sequence[str] = ()
) -> Statement:
    """Insert a row unless it exists; with ``key``, update the row that has the same values there.

    Columns ``later`` are empty at first.
    """
    columns = (*columns, "seal")
    row = f"({', '.join('?' * len(columns))})"
    head = f"INSERT INTO {table} ({quote_names(columns)}) VALUES "  # noqa: S608
    rank = 0 if table == "sessions" else 1
    if not key:
        return Statement(rank, head, row, " ON CONFLICT DO NOTHING", len(later))
    changes = ", ".join(f'"{name}" = excluded."{name}"' for name in columns if name not in key)
    tail = f" ON CONFLICT ({quote_names(key)}) DO UPDATE SET {changes}"
    return Statement(rank, f"{head}{row}{tail}", unset=len(later))


def make_update(table: str, columns: Sequence[str], where: str, value: str = "?") -> Statement:
    """Set ``columns`` of the rows that match ``where``. The parameters of ``where`` follow those of the columns."""
    new = {name: f"?{number}" if value == "?" else value for number, name in enumerate(columns, 1)}
    changes = ", ".join(f'"{name}" = {value}' for name, value in new.items())
    return Statement(2, f"UPDATE {table} SET {changes}, seal = {write_seal(table, new)} WHERE {where}")  # noqa: S608


def write_seal(table: str, new: Mapping[str, str]) -> str:
    """Return the checksum of a row of ``table`` whose columns get ``new`` values, in SQL.

    A row that did not match its checksum before does not match it after.
    """
    before = [f'"{name}"' for name in SEALED[table]]
    after = [new.get(name, f'"{name}"') for name in SEALED[table]]
    return f"iif(seal = row_seal({', '.join(before)}), row_seal({', '.join(after)}), seal)"


def quote_names(names: Sequence[str]) -> str:
    """Return the columns ``names`` for a statement; quoted, since ``left`` is a word of SQL."""
    return ", ".join(f'"{name}"' for name in names)


class Column(NamedTuple):
    """A column and the attribute of a record that it stores."""

    name: str
    path: str
    """The attribute of the record, with dots for nested parts."""
    write: Convert | None = None
    """Converts the attribute to the column's value; None if they are equal."""
    types: tuple[type, ...] = (str, NoneType)
    """Those of its values."""


Stored = str | Mapping[str, str]
"""Where a field is stored: the name of its column, or columns by the fields of a part, others of which are left out."""

_USAGE = {
    "prompt": "prompt_tokens",
    "completion": "completion_tokens",
    "cached": "cached_tokens",
    "estimated": "estimated",
    "written": "written_tokens",
    "tier": "tier",
}
# Conversions of values that the database returns with another type, and to the type that it returns.
_READ: Mapping[type, Convert] = {bool: bool, Text: Text}
_WRITE: Mapping[type, Convert] = {bool: int, int: int, Text: str, float: float}


class Table(Generic[Record]):
    """A table, or the part of one, that stores one kind of record.

    ``read`` makes a record of the first ``width`` columns; the others are derived from the record on writing.
    """

    def __init__(
        self,
        name: str,
        columns: Sequence[Column],
        read: Convert,
        width: int,
        before: Sequence[str] = (),
        key: Sequence[str] = (),
        later: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.columns = columns
        self.names = tuple(column.name for column in columns)
        self.insert = make_insert(name, (*before, *self.names), key, later)
        """Inserts a record after the values of its columns ``before``."""
        self.sealed = (*before, *self.names, *later)
        self._values = attrgetter(*(column.path for column in columns))
        self._writers = [(index, column.write) for index, column in enumerate(columns) if column.write]
        self._read = read
        self._width = width
        self._seen: set[tuple[type, ...]] = set()

    def write(self, record: Record) -> tuple[Any, ...]:
        """Convert ``record`` to a row."""
        values = self._values(record)
        if not self._writers:
            return values
        row = list(values)
        for index, write in self._writers:
            row[index] = write(row[index])
        return tuple(row)

    def read(self, row: Sequence[Any]) -> Record:
        """Convert a row of these columns to a record; raise TypeError if the file contains values of other types."""
        row = row[: self._width]
        # A column of SQLite takes values of any type.
        if (types := tuple(map(type, row))) not in self._seen:
            for column, value in zip(self.columns, row, strict=False):
                if type(value) not in column.types:
                    raise TypeError(f"its {column.name} in the table {self.name} is {type(value).__name__}")
            self._seen.add(types)
        return self._read(row)

    def select(self, rest: str, *before: str) -> str:
        """Return the query for rows of these columns, after the columns ``before``; ``rest`` begins after the table."""
        return f"SELECT {quote_names((*before, *self.names))} FROM {self.name} {rest}"  # noqa: S608

    def pick(self, *names: str) -> Table[Record]:
        """Return the columns ``names`` only, for writing."""
        return Table(self.name, [column for column in self.columns if column.name in names], self._read, 0)


def map_record(
    name: str,
    record: type[Record],
    *,
    before: Sequence[str] = (),
    key: Sequence[str] = (),
    later: Sequence[str] = (),
    leave: Sequence[str] = (),
    json: Sequence[str] = (),
    derived: Sequence[Column] = (),
    **stored: Stored,
) -> Table[Record]:
    """Map ``record`` to the table ``name``, with a column for each field except those in ``leave``.

    A field is stored in a column of the same name, as JSON if it is in ``json``, and a usage in six; ``stored``
    contains the exceptions by field. ``derived`` columns are computed on writing and not read back, ``before`` names
    columns that the record does not contain, those ``later`` belong to other records of the same row, and a record with
    the same ``key`` replaces another.
    """
    columns, read = _map_fields(record, leave, json, stored, "")
    return Table(name, [*columns, *derived], read, len(columns), before, key, later)


def write_json(value: object) -> str | None:
    """Serialize ``value`` as JSON; None stays None, which is NULL in the database."""
    return None if value is None else to_json(value).decode()


def compute_checksum(text: str) -> int:
    """Compute the CRC-32 of a text; SQLite does not detect flipped bytes."""
    return zlib.crc32(text.encode())


def compute_seal(row: tuple[Any, ...]) -> int:
    """Compute the CRC-32 of a row of text, whole numbers, floats, bytes and None.

    It shows a change that nobody wanted. Whoever wants one can compute it, too: it is no signature.
    """
    # The second format of marshal knows neither references nor interned texts, so equal rows have equal bytes.
    try:
        return zlib.crc32(marshal.dumps(row, 2))
    except ValueError:  # A model of the user's own may reply with a kind of text; nothing is lost for that.
        return zlib.crc32(marshal.dumps(tuple(map(_make_plain, row)), 2))


def _make_plain(value: Any) -> Any:
    """Return a value as SQLite stores it, without the subclass of a built-in type that it may have."""
    for kind, convert in _PLAIN:
        if isinstance(value, kind):
            return convert(value)
    return value


_PLAIN: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (int, int.__index__),
    (float, float.__float__),
    (bytes, bytes),
)


_NULLS = (None,) * 8


def _map_fields(
    record: type, leave: Sequence[str], json: Sequence[str], stored: Mapping[str, Stored], prefix: str
) -> tuple[list[Column], Convert]:
    """Return the columns of a record, or of a part of one, and the function that makes it from their values."""
    hints = get_type_hints(record)
    columns: list[Column] = []
    names = [field.name for field in fields(record) if field.name not in leave]
    values: list[tuple[int, Convert]] = []
    parts: list[tuple[int, int, Convert]] = []
    for name in names:
        hint, start, path = hints[name], len(columns), prefix + name
        column = stored.get(name, _USAGE if hint is Usage and name not in json else name)
        if not isinstance(column, str):
            left = [field.name for field in fields(hint) if field.name not in column]
            nested, read_part = _map_fields(hint, left, (), column, f"{path}.")
            columns += nested
            parts.insert(0, (start, len(columns), read_part))  # from the last, so that positions stay valid
        elif name in json:
            columns.append(Column(column, path, write_json))
            values.append((start, partial(_read_json, find_builder(hint))))
        else:
            with_none = get_args(hint)
            read, write = (
                next((kinds[kind] for kind in kinds if kind is hint or kind in with_none), None)
                for kinds in (_READ, _WRITE)
            )
            if with_none:
                read, write = read and partial(_skip_none, read), write and partial(_skip_none, write)
            columns.append(Column(column, path, write, _find_types(hint)))
            values += [(start, read)] if read else []
    in_order = names == [field.name for field in fields(record)][: len(names)]
    if in_order and not values and not parts:
        return columns, lambda row: record(*row)

    def build(row: Sequence[Any]) -> Any:
        row_values = list(row)
        for index, read in values:
            row_values[index] = read(row_values[index])
        for start, end, read in parts:
            row_values[start:end] = (read(row_values[start:end]),)
        return record(*row_values) if in_order else record(**dict(zip(names, row_values, strict=True)))

    return columns, build


def _find_types(hint: Any) -> tuple[type, ...]:
    """Return the types that SQLite stores a field of the type ``hint`` as."""
    stored = {bool: int, int: int, float: float, bytes: bytes, NoneType: NoneType}
    return tuple({stored.get(kind, str) for kind in get_args(hint) or (hint,)})


def _read_json(build: Convert, value: str | None) -> Any:
    return None if value is None else build(from_json(value))


def _skip_none(convert: Convert, value: Any) -> Any:
    return None if value is None else convert(value)


ENDINGS = map_record(
    "sessions",
    Ending,
    code="ending",
    turn="ending_turn",
    speaker="ending_speaker",
    evidence="ending_evidence",
)
TOTALS = map_record(
    "sessions",
    Usage,
    leave=("estimated", "written", "tier"),
    prompt="prompt_tokens",
    completion="completion_tokens",
    cached="cached_tokens",
)
"""Total usage of a session, in its row once it has ended."""
SESSIONS = map_record(
    "sessions",
    Session,
    before=("created",),
    later=(*ENDINGS.names, *TOTALS.names),
    leave=("turns", "ending", "pending", "beside"),
    json=("provenance", "preparation", "values"),
    assistant={"name": "assistant_role", "description": "assistant_description"},
    user={"name": "user_role", "description": "user_description"},
    task={"original": "original_task", "specified": "specified_task", "planned": "planned_task"},
    values="axis_values",
)
PREPARATION = SESSIONS.pick("specified_task", "planned_task", "preparation")
"""Columns of a session that the steps before the conversation fill."""
PROGRESS = map_record(
    "sessions",
    Progress,
    turns="ending_turn",
    prompt="prompt_tokens",
    completion="completion_tokens",
    cached="cached_tokens",
)
"""Columns of the index ``sessions_progress``, so that resuming a run need not read the wide rows."""
TURNS = map_record(
    "turns",
    Turn,
    before=("session",),
    leave=("uses",),
    json=("said",),
    derived=[Column("checksum", "text", compute_checksum)],
)
PROPOSALS = map_record("proposals", Proposal, before=("session",))
DECISIONS = map_record("verdicts", Decision, before=("session",), json=("kept",))
TOOL_RESULTS = map_record("tools", ToolResult, text="result", seconds="tool_seconds")
"""Stored in the row of the call."""
RESULT = TOOL_RESULTS.pick("result", "problem", "tool_seconds", "cut")
"""Columns of a call that its result fills."""
TOOL_CALLS = map_record(
    "tools",
    ToolCall,
    before=("session",),
    later=RESULT.names,
    wanted={"id": "call", "name": "name", "arguments": "arguments"},
)
CONFIRMATIONS = map_record("confirmations", Confirmation, key=("session", "turn", "behaviour", "judge"))
COMMANDS = map_record("commands", Command, json=("options",))
MARKS = map_record("marks", Mark, key=("session", "mark"))
VOTES = map_record("votes", Vote, key=("session", "pair", "voter", "repeated"))
CALLS = map_record("calls", Call, json=("usage",))
LISTS = map_record("lists", ItemList, key=("id",), json=("items", "usage"))
SEALED: Mapping[str, tuple[str, ...]] = {
    "migrations": ("number", "applied"),
    "run": ("row", "recipe", "created"),
    **{
        table.name: table.sealed
        for table in (
            *(LISTS, SESSIONS, TURNS, CALLS, PROPOSALS, DECISIONS),
            *(TOOL_CALLS, CONFIRMATIONS, MARKS, COMMANDS, VOTES),
        )
    },
}
"""The columns with a checksum by table, in the order in which it is computed."""
