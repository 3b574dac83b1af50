"""Values that are stored as JSON in one column."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic_core import from_json, to_json

Build = Callable[[Any], Any]


def write_json(value: object) -> str | None:
    """``value`` as JSON; None stays None, which is the database's own null."""
    return None if value is None else to_json(value).decode()


def make_json_reader(hint: Any) -> Build:
    """A function that reads the JSON of a value of type ``hint``: a dataclass, or a tuple or mapping of such."""
    build = _builder(hint)
    return lambda text: None if text is None else build(from_json(text))


@cache
def _builder(hint: Any) -> Build:
    """Makes a value of type ``hint`` from what its JSON holds; a field that is missing takes its default."""
    if is_dataclass(hint):
        return _dataclass_builder(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _union_builder(arguments)
    if origin is tuple:
        build = _builder(arguments[0])
        return lambda values: tuple(map(build, values))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        build = _builder(arguments[1])
        return lambda values: {key: build(value) for key, value in values.items()}
    return lambda value: value


def _dataclass_builder(made: Any) -> Build:
    hints = get_type_hints(made)
    builders = {name: _builder(hints[name]) for name in (field.name for field in fields(made))}

    def build(values: dict[str, Any]) -> Any:
        return made(**{name: builders[name](value) for name, value in values.items()})

    return build


def _union_builder(choices: tuple[Any, ...]) -> Build:
    """Of several dataclasses, the first that has all the fields of the JSON."""
    made = [
        ({field.name for field in fields(choice)}, _builder(choice))
        for choice in choices
        if is_dataclass(choice)
    ]

    def build(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return next(build(value) for names, build in made if names >= value.keys())

    return build if made else lambda value: value
