"""Records as rows and back. The fields of a record are its columns, declared once, by the record itself."""

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
    """A column and the value of a record that it holds."""

    name: str
    path: str
    """The attribute of the record, with dots for those of its parts."""
    type: str
    """Name of the type in SQL."""
    nullable: bool = False
    write: Convert | None = None
    """From the attribute to the column's value; None if they are the same."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """A part of a record that is stored in columns of its own."""

    columns: Mapping[str, str]
    """Name of the column by the part's field; fields that are not named are not stored."""


@dataclass(frozen=True, slots=True)
class Json:
    """A field that is stored as JSON."""

    column: str | None = None
    """None if the column is named as the field is."""


@dataclass(frozen=True, slots=True)
class Derived:
    """A column that is computed from a field when the record is written, and not read back."""

    field: str
    type: str
    write: Convert


Override = str | Embedded | Json
"""How a field is stored: the name of its column, or one of the others."""

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
"""Parts that are stored in columns of their own wherever they occur."""
_SQL: Mapping[Any, str] = {
    str: "TEXT",
    Text: "TEXT",
    int: "INTEGER",
    bool: "INTEGER",
    float: "FLOAT",
    bytes: "BLOB",
}
_READ: Mapping[type, Convert] = {bool: bool, Text: Text}
"""What the database gives back as another type. Everything else comes back as it was written."""


class RecordMapping(Generic[Record]):
    """The columns of one kind of record, in the order in which rows of them are written and read."""

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
        """The values of the columns for ``record``."""
        values = self._values(record)
        if not self._writers:
            return values
        row = list(values)
        for place, write in self._writers:
            row[place] = write(row[place])
        return tuple(row)

    def read(self, row: Sequence[Any]) -> Record:
        """The record of a row of these columns."""
        return self._read(row[: self._width])

    def pick(self, *names: str) -> RecordMapping[Record]:
        """Only the columns with these names, for writing."""
        return RecordMapping([column for column in self.columns if column.name in names], (), self._read)


def declare_table(
    record: type[Record],
    *,
    leave: Sequence[str] = (),
    derived: Mapping[str, Derived] | None = None,
    **overrides: Override,
) -> RecordMapping[Record]:
    """Map ``record``: a column for each field, but for those in ``leave``.

    A field of a plain type is a column of its own name, and a part such as ``Usage`` has its own columns, as
    :data:`PARTS` says. ``overrides`` tell, by field, what is different.
    """
    columns, read = _columns_of(record, leave, overrides, "")
    return RecordMapping(
        columns,
        [Column(name, one.field, one.type, write=one.write) for name, one in (derived or {}).items()],
        read,
    )


def write_json(value: object) -> str | None:
    """``value`` as JSON; None stays None, which is the database's own null."""
    return None if value is None else to_json(value).decode()


def _columns_of(
    record: type, leave: Sequence[str], overrides: Mapping[str, Override], prefix: str
) -> tuple[list[Column], Convert]:
    """The columns of a record, or of a part of one, and the function that makes it from their values."""
    hints = get_type_hints(record)
    columns: list[Column] = []
    names: list[str] = []
    values: list[tuple[int, Convert]] = []
    parts: list[tuple[int, int, Convert]] = []
    for name in (field.name for field in fields(record) if field.name not in leave):
        override = overrides.get(name, name)
        own, read = _columns_of_field(hints[name], override, name, prefix)
        if isinstance(override, Embedded) or len(own) > 1:
            parts.append((len(columns), len(columns) + len(own), read or tuple))
        elif read is not None:
            values.append((len(columns), read))
        columns += own
        names.append(name)
    parts.reverse()  # from the last, so that the places of those before it stay
    in_order = names == [field.name for field in fields(record)][: len(names)]

    def build(row: Sequence[Any]) -> Any:
        given = list(row)
        for place, read in values:
            given[place] = read(given[place])
        for place, end, read in parts:
            given[place:end] = (read(given[place:end]),)
        return record(*given) if in_order else record(**dict(zip(names, given, strict=True)))

    return columns, build


def _columns_of_field(
    hint: Any, override: Override, name: str, prefix: str
) -> tuple[list[Column], Convert | None]:
    """The columns of a field, and the function that makes its value from theirs; None if that is the column's."""
    plain, nullable = _without_none(hint)
    path = prefix + name
    if isinstance(override, Embedded):
        left = [field.name for field in fields(plain) if field.name not in override.columns]
        return _columns_of(plain, left, override.columns, f"{path}.")
    if isinstance(override, Json):
        build = find_builder(plain)
        column = Column(override.column or name, path, "TEXT", nullable, write_json)
        return [column], lambda value: None if value is None else build(from_json(value))
    if plain in PARTS:
        return _columns_of(plain, (), PARTS[plain].columns, f"{path}.")
    column = Column(override, path, _sql_type(plain), nullable)
    convert = _READ.get(plain)
    if convert is None or not nullable:
        return [column], convert
    return [column], lambda value: None if value is None else convert(value)


def _sql_type(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "TEXT"
    if hint not in _SQL:
        raise TypeError(f"{hint} is not the type of a column: store it as Json, or leave it out")
    return _SQL[hint]


def _without_none(hint: Any) -> tuple[Any, bool]:
    """A type without its None, and whether it had one."""
    if get_origin(hint) not in (Union, types.UnionType):
        return hint, False
    others = [one for one in get_args(hint) if one is not type(None)]
    nullable = len(others) < len(get_args(hint))
    return (others[0] if len(others) == 1 else Union[tuple(others)]), nullable  # noqa: UP007
