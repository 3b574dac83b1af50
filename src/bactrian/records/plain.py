"""Records from plain data, as JSON holds it."""

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
    """A function that makes a value of the type ``hint`` from plain data.

    Dataclasses, and tuples, mappings and unions of them, are made from objects and lists. A field that is missing takes
    its default; everything else stays as it is.

    Raises:
        TypeError: from the function, if an object has a field that its dataclass lacks, or lacks one without default.
    """
    if hint is Text:
        return Text
    if is_dataclass(hint):
        return _dataclass_builder(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _union_builder(arguments)
    if origin is tuple:
        build = find_builder(arguments[0])
        return lambda values: tuple(map(build, values))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        build = find_builder(arguments[1])
        return lambda values: {key: build(value) for key, value in values.items()}
    return lambda value: value


def _dataclass_builder(made: Any) -> Build:
    hints = get_type_hints(made)
    builders = {field.name: find_builder(hints[field.name]) for field in fields(made)}

    def build(values: Mapping[str, Any]) -> Any:
        built = {name: builders.get(name, _keep)(value) for name, value in values.items()}
        return made(**built)

    return build


def _union_builder(choices: tuple[Any, ...]) -> Build:
    """None stays None; an object becomes the first dataclass that has all of its fields."""
    records = [
        ({field.name for field in fields(choice)}, find_builder(choice))
        for choice in choices
        if is_dataclass(choice)
    ]
    others = [choice for choice in choices if not is_dataclass(choice) and choice is not type(None)]
    other = find_builder(others[0]) if len(others) == 1 else _keep

    def build(value: Any) -> Any:
        if value is None:
            return None
        if not records or not isinstance(value, Mapping):
            return other(value)
        given = cast("Mapping[str, Any]", value)
        for names, build_record in records:
            if names >= given.keys():
                return build_record(given)
        raise TypeError(f"no record has the fields {sorted(given)}")

    return build


def _keep(value: Any) -> Any:
    return value
