"""Changes to a recipe, given as ``key=value``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic import BaseModel

from bactrian.errors import InputError
from bactrian.files.toml import TomlSource, check_table, suggest_name
from bactrian.files.validation_errors import Place
from bactrian.recipes.axis import Axis
from bactrian.recipes.parameters import AGENT_NAMES, RecipeModels, SamplingSpec
from bactrian.recipes.schema import CriticSpec, Recipe, RolePlayTools

_ADDED: dict[str, type[BaseModel]] = {"critic": CriticSpec, "tools": RolePlayTools, "models": RecipeModels}
"""Tables that a setting may add."""


def apply_overrides(
    setting: str, data: dict[str, Any], model: type[Recipe], source: TomlSource
) -> list[Place]:
    """Change ``data`` as ``setting`` says, and return the places that it changed.

    Raises:
        InputError: it is not ``key=value``, or its key names nothing.
    """
    key, equals, written = setting.partition("=")
    key = key.strip()
    if not equals or not key:
        raise InputError(f"{setting!r} is not key=value.", where="--set", next="For example: task.count=5")
    value = parse_value(written.strip())
    if key == "fresh":
        asked = [(number, axis) for number, axis in enumerate(list_tables(data, "axes")) if "ask" in axis]
        if not asked:
            raise InputError(
                "No list of the recipe can be asked for.", where="--set", next="Leave fresh out."
            )
        for _, axis in asked:
            axis["fresh"] = value
        return [("axes", number, "fresh") for number, _ in asked]
    name, _, last = key.removeprefix("axes.").rpartition(".")
    parts = _parts(data, model)
    if not name and last not in (parts[""].keys or ()):
        name = next((key for key in model.specs if key in parts), "")
    part = parts.get(name)
    if part is None or not last or (part.keys is not None and last not in part.keys):
        known = [f"{each}.{known}".lstrip(".") for each, part in parts.items() for known in part.keys or ()]
        if key not in parts:
            known += filter(None, parts)
        raise InputError(
            f"The recipe has nothing named {key!r}.{suggest_name(key, known)}",
            where="--set",
            next=f"`bactrian recipes show {source.where}` shows what it has.",
        )
    if part.place[:1] == ("axes",) and last in ("given", "file"):  # one replaces the other
        part.table.pop("given", None)
        part.table.pop("file", None)
        part.table.pop("source", None)
    part.table[last] = value
    if name in _ADDED:
        data[name] = part.table
    elif part.place[:1] == ("parameters",):
        _add_parameters(data, part)
    return [(*part.place, last)]


def list_tables(data: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the tables of the list under ``key``; the schema rejects anything else later."""
    found = data.get(key)
    return [
        cast("dict[str, Any]", each)
        for each in (cast("list[Any]", found) if isinstance(found, list) else [])
        if isinstance(each, dict)
    ]


def _add_parameters(data: dict[str, Any], part: _Part) -> None:
    """Add the table of parameters, or that of one agent in it, if it is missing."""
    if part.place == ("parameters",):
        data["parameters"] = part.table
    else:
        data["parameters"] = {**check_table(data.get("parameters")), str(part.place[1]): part.table}


@dataclass(frozen=True, slots=True)
class _Part:
    """A table of the recipe whose values can be set."""

    place: Place
    table: dict[str, Any]
    keys: tuple[str, ...] | None
    """None if any key is allowed."""


def _parts(data: dict[str, Any], model: type[Recipe]) -> dict[str, _Part]:
    """Return the settable keys, by the name before the key."""
    tables = {**model.specs, **_ADDED}
    parts = {
        str(axis.get("name")): _Part(("axes", number), axis, tuple(Axis.model_fields))
        for number, axis in enumerate(list_tables(data, "axes"))
    }
    parts[""] = _Part(
        (), data, tuple(key for key in model.model_fields if key not in ("axes", "parameters", *tables))
    )
    for name, table_model in tables.items():
        table = data.get(name, {} if name in _ADDED else None)
        if isinstance(table, dict):
            parts[name] = _Part((name,), cast("dict[str, Any]", table), tuple(table_model.model_fields))
    parameters = check_table(data.get("parameters"))
    parts["parameters"] = _Part(("parameters",), parameters, tuple(SamplingSpec.model_fields))
    for agent in AGENT_NAMES:
        own = _Part(
            ("parameters", agent), check_table(parameters.get(agent)), tuple(SamplingSpec.model_fields)
        )
        parts[f"parameters.{agent}"] = own
    for name in model.specs:
        for key, value in check_table(data.get(name)).items():
            if value and check_table(value) is value:
                part = parts[f"{name}.{key}"] = _Part((name, key), check_table(value), None)
                parts.setdefault(key, part)
    return parts


def parse_value(written: str) -> Any:
    """Parse a TOML value; anything else is a text."""
    try:
        match tomllib.loads(f"value = {written}"):
            case {"value": value, **others} if not others:
                return value
            case _:  # further lines, with keys of their own
                return written
    except (ValueError, RecursionError):  # ValueError: no TOML, or a number with too many digits
        return written
