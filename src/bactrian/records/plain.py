"""Construction of records from plain JSON data."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from bactrian.records.text import Text

Build = Callable[[Any], Any]


@cache
def find_builder(hint: Any) -> Build:
    """Return a function that builds a value of the type ``hint`` from plain data.

    Dataclasses, and tuples, mappings and unions of them, are built from objects and lists. A missing field takes its
    default; other values stay unchanged.

    Raises:
        TypeError: raised by the function if an object has a field that its dataclass lacks, or lacks a required field.
    """
    if hint is Text:
        return Text
    if is_dataclass(hint):
        return _make_dataclass_builder(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _make_union_builder(arguments)
    if origin is tuple:
        build = find_builder(arguments[0])
        return lambda values: tuple(map(build, values))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        build = find_builder(arguments[1])
        return lambda values: {key: build(value) for key, value in values.items()}
    return lambda value: value


def _make_dataclass_builder(record: Any) -> Build:
    hints = get_type_hints(record)
    builders = {field.name: find_builder(hints[field.name]) for field in fields(record)}

    def build(values: Mapping[str, Any]) -> Any:
        built = {name: builders.get(name, _return_unchanged)(value) for name, value in values.items()}
        return record(**built)

    return build


def _make_union_builder(choices: tuple[Any, ...]) -> Build:
    """Return a builder for a union: None stays None; an object becomes the first dataclass that has all its fields."""
    records = [
        ({field.name for field in fields(choice)}, find_builder(choice))
        for choice in choices
        if is_dataclass(choice)
    ]
    others = [choice for choice in choices if not is_dataclass(choice) and choice is not type(None)]
    other = find_builder(others[0]) if len(others) == 1 else _return_unchanged

    def build(value: Any) -> Any:
        if value is None:
            return None
        if not records or not isinstance(value, Mapping):
            return other(value)
        values = cast("Mapping[str, Any]", value)
        for names, build_record in records:
            if names >= values.keys():
                return build_record(values)
        raise TypeError(f"no record has the fields {sorted(values)}")

    return build


def _return_unchanged(value: Any) -> Any:
    return value
