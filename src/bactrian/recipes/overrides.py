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
from bactrian.recipes.schema import (
    LEAVES,
    Answer,
    Axis,
    CriticSpec,
    Recipe,
    RolePlay,
    RolePlayTools,
    SocietyJob,
    Translate,
)

TEMPLATES = {
    "role_play": ("assistant", "user", "idea", "assistant_description", "user_description"),
    "answer": ("system", "question"),
    "translate": ("system",),
    "society": ("task",),
}
"""The keys of each leaf that hold templates."""
_ADDED = ("critic", "tools")
"""Tables that a setting may add."""
_MODELS: dict[str, type[BaseModel]] = {
    "role_play": RolePlay,
    "answer": Answer,
    "translate": Translate,
    "society": SocietyJob,
    "critic": CriticSpec,
    "tools": RolePlayTools,
}


def apply_overrides(setting: str, data: dict[str, Any], source: TomlSource) -> list[Place]:
    """Change ``data`` as ``setting`` says, and give the places that it changed.

    Raises:
        InputError: it is not ``key=value``, or its key names nothing.
    """
    key, equals, written = setting.partition("=")
    key = key.strip()
    if not equals or not key:
        raise InputError(f"{setting!r} is not key=value.", where="--set", next="For example: task.count=5")
    value = _value(written.strip())
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
    parts = _parts(data)
    if not name and last not in _fields(Recipe):
        name = next((leaf for leaf in LEAVES if leaf in parts), "")
    part = parts.get(name)
    if part is None or not last or (part.keys is not None and last not in part.keys):
        known = [f"{each}.{known}".lstrip(".") for each, part in parts.items() for known in part.keys or ()]
        raise InputError(
            f"The recipe has nothing named {key!r}.{suggest_name(key, known)}",
            where="--set",
            next=f"`bactrian recipes show {source.where}` shows what it has.",
        )
    if part.place[:1] == ("axes",) and last in ("given", "file"):  # the one stands for the other
        part.table.pop("given", None)
        part.table.pop("file", None)
    part.table[last] = value
    if name in _ADDED:
        data[name] = part.table
    return [(*part.place, last)]


def list_tables(data: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """The tables of the list under ``key``; what is none is left to the schema to refuse."""
    found = data.get(key)
    return [
        cast("dict[str, Any]", each)
        for each in (cast("list[Any]", found) if isinstance(found, list) else [])
        if isinstance(each, dict)
    ]


@dataclass(frozen=True, slots=True)
class _Part:
    """A table of the recipe whose values can be set."""

    place: Place
    table: dict[str, Any]
    keys: tuple[str, ...] | None
    """None if any key will do."""


def _parts(data: dict[str, Any]) -> dict[str, _Part]:
    """What can be set, by the name that stands before the key."""
    parts = {
        str(axis.get("name")): _Part(("axes", number), axis, _fields(Axis))
        for number, axis in enumerate(list_tables(data, "axes"))
    }
    parts[""] = _Part((), data, _fields(Recipe))
    for name, model in _MODELS.items():
        table = data.get(name, {} if name in _ADDED else None)
        if isinstance(table, dict):
            parts[name] = _Part((name,), cast("dict[str, Any]", table), _fields(model))
    languages = check_table(check_table(data.get("translate")).get("languages"))
    if languages:
        parts["translate.languages"] = parts["languages"] = _Part(("translate", "languages"), languages, None)
    return parts


def _fields(model: type[BaseModel]) -> tuple[str, ...]:
    """The keys of a table that hold values."""
    return tuple(name for name in model.model_fields if name not in ("axes", *_MODELS))


def _value(written: str) -> Any:
    """A TOML value; anything that is none is a text."""
    try:
        match tomllib.loads(f"value = {written}"):
            case {"value": value, **others} if not others:
                return value
            case _:  # further lines, with keys of their own
                return written
    except (ValueError, RecursionError):  # ValueError: no TOML, or a number with too many digits
        return written
