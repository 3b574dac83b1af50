"""Mapping of records to database rows and back. The columns are derived from the fields of the record."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic_core import from_json, to_json

from bactrian.records.plain import find_builder
from bactrian.records.text import Text
from bactrian.records.usage import Usage

Record = TypeVar("Record")
Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column and the attribute of a record that it stores."""

    name: str
    path: str
    """The attribute of the record, with dots for nested parts."""
    type: str
    """SQL type."""
    nullable: bool = False
    write: Convert | None = None
    """Converts the attribute to the column's value; None if they are equal."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """A part of a record that is stored in its own columns."""

    columns: Mapping[str, str]
    """Column by field of the part; other fields are not stored."""


@dataclass(frozen=True, slots=True)
class Json:
    """A field that is stored as JSON."""

    column: str | None = None
    """None if the column has the name of the field."""


@dataclass(frozen=True, slots=True)
class Derived:
    """A column that is computed from a field on writing, and not read back."""

    field: str
    type: str
    write: Convert


Override = str | Embedded | Json
"""How a field is stored: the name of its column, or one of the classes above."""

PARTS: Mapping[type, Embedded] = {
    Usage: Embedded(
        {
            "prompt": "prompt_tokens",
            "completion": "completion_tokens",
            "cached": "cached_tokens",
            "estimated": "estimated",
        }
    ),
}
"""Parts that are always stored in their own columns."""
_SQL: Mapping[Any, str] = {
    str: "TEXT",
    Text: "TEXT",
    int: "INTEGER",
    bool: "INTEGER",
    float: "FLOAT",
    bytes: "BLOB",
}
_READ: Mapping[type, Convert] = {bool: bool, Text: Text}
"""Conversions of values that the database returns with another type."""


class RecordMapping(Generic[Record]):
    """The columns of one kind of record, in the order of writing and reading."""

    def __init__(self, columns: Sequence[Column], derived: Sequence[Column], read: Convert) -> None:
        self.columns = (*columns, *derived)
        self.names = tuple(column.name for column in self.columns)
        self._values = attrgetter(*(column.path for column in self.columns))
        self._writers = [
            (place, column.write) for place, column in enumerate(self.columns) if column.write is not None
        ]
        self._width = len(columns)
        self._read = read

    def write(self, record: Record) -> tuple[Any, ...]:
        """Convert ``record`` to a row."""
        values = self._values(record)
        if not self._writers:
            return values
        row = list(values)
        for place, write in self._writers:
            row[place] = write(row[place])
        return tuple(row)

    def read(self, row: Sequence[Any]) -> Record:
        """Convert a row of these columns to a record."""
        return self._read(row[: self._width])

    def pick(self, *names: str) -> RecordMapping[Record]:
        """Return the mapping of the columns ``names`` only, for writing."""
        return RecordMapping([column for column in self.columns if column.name in names], (), self._read)


def declare_table(
    record: type[Record],
    *,
    leave: Sequence[str] = (),
    derived: Mapping[str, Derived] | None = None,
    **overrides: Override,
) -> RecordMapping[Record]:
    """Map ``record``, with a column for each field except those in ``leave``.

    A field of a plain type is stored in a column of the same name, and a part such as ``Usage`` in the columns given by
    :data:`PARTS`. ``overrides`` contains the exceptions by field.
    """
    columns, read = _make_columns(record, leave, overrides, "")
    return RecordMapping(
        columns,
        [Column(name, one.field, one.type, write=one.write) for name, one in (derived or {}).items()],
        read,
    )


def write_json(value: object) -> str | None:
    """Serialize ``value`` as JSON; None stays None, which is NULL in the database."""
    return None if value is None else to_json(value).decode()


def _make_columns(
    record: type, leave: Sequence[str], overrides: Mapping[str, Override], prefix: str
) -> tuple[list[Column], Convert]:
    """Return the columns of a record, or of a part of one, and the function that makes it from their values."""
    hints = get_type_hints(record)
    columns: list[Column] = []
    names: list[str] = []
    values: list[tuple[int, Convert]] = []
    parts: list[tuple[int, int, Convert]] = []
    for name in (field.name for field in fields(record) if field.name not in leave):
        override = overrides.get(name, name)
        own, read = _make_field_columns(hints[name], override, name, prefix)
        if isinstance(override, Embedded) or len(own) > 1:
            parts.append((len(columns), len(columns) + len(own), read or tuple))
        elif read is not None:
            values.append((len(columns), read))
        columns += own
        names.append(name)
    parts.reverse()  # from the last, so that earlier positions stay valid
    in_order = names == [field.name for field in fields(record)][: len(names)]

    if in_order and not values and not parts:
        return columns, lambda row: record(*row)

    def build(row: Sequence[Any]) -> Any:
        row_values = list(row)
        for place, read in values:
            row_values[place] = read(row_values[place])
        for place, end, read in parts:
            row_values[place:end] = (read(row_values[place:end]),)
        return record(*row_values) if in_order else record(**dict(zip(names, row_values, strict=True)))

    return columns, build


def _make_field_columns(
    hint: Any, override: Override, name: str, prefix: str
) -> tuple[list[Column], Convert | None]:
    """Return the columns of a field, and the function that builds its value from them; None if it is the column's."""
    plain, nullable = _strip_none(hint)
    path = prefix + name
    if isinstance(override, Embedded):
        left = [field.name for field in fields(plain) if field.name not in override.columns]
        return _make_columns(plain, left, override.columns, f"{path}.")
    if isinstance(override, Json):
        build = find_builder(plain)
        column = Column(override.column or name, path, "TEXT", nullable, write_json)
        return [column], lambda value: None if value is None else build(from_json(value))
    if plain in PARTS:
        return _make_columns(plain, (), PARTS[plain].columns, f"{path}.")
    column = Column(override, path, _find_sql_type(plain), nullable)
    convert = _READ.get(plain)
    if convert is None or not nullable:
        return [column], convert
    return [column], lambda value: None if value is None else convert(value)


def _find_sql_type(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "TEXT"
    if hint not in _SQL:
        raise TypeError(f"{hint} is not a column type: store the field as Json, or leave it out")
    return _SQL[hint]


def _strip_none(hint: Any) -> tuple[Any, bool]:
    """Return a type without its None, and whether it had one."""
    if get_origin(hint) not in (Union, types.UnionType):
        return hint, False
    others = [one for one in get_args(hint) if one is not type(None)]
    nullable = len(others) < len(get_args(hint))
    return (others[0] if len(others) == 1 else Union[tuple(others)]), nullable  # noqa: UP007
