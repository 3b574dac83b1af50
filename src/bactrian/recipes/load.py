"""From a file, or a built-in name, and the user's settings to a checked recipe."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from bactrian.errors import InputError, RecipeError
from bactrian.recipes.schema import (
    Answer,
    Axis,
    Critic,
    Ensemble,
    Recipe,
    RolePlay,
    RolePlayTools,
    Translate,
)
from bactrian.source import Kind, Source, as_table, beside, built_in, did_you_mean, find
from bactrian.template import TemplateFault, compiled

_KIND = Kind("recipe", RecipeError, "docs/recipes.md", "recipes")
_LARGEST_LIST = 64 * 1024 * 1024
_MOST_LINES = 1_000_000
_SAID = {
    "tuple_type": "this is not a list",
    "model_type": "this is not a table",
    "dict_type": "this is not a table",
    "string_type": "this is not a text in quotes",
}
"""Pydantic's names for faults in words of TOML."""
_TEMPLATES = {
    "role_play": ("assistant", "user", "idea", "assistant_description", "user_description"),
    "answer": ("system", "question"),
    "translate": ("system",),
    "society": ("task",),
}
"""The keys of each leaf that hold templates."""
_CRITIC_TEMPLATES = ("role", "criteria")
_ADDED = ("critic", "tools")
"""Tables that a setting may add."""


def built_in_recipes() -> tuple[str, ...]:
    """Names of the recipes that come with the program."""
    return built_in(_folder())


def recipe_text(name_or_path: str) -> str:
    """The recipe as it is written. Raises RecipeError if it cannot be read."""
    return find(name_or_path, _folder(), _KIND).text


def load_recipe(name_or_path: str, settings: Sequence[str] = ()) -> Recipe:
    """Read a recipe, change it by ``settings`` (``key=value``, as in ``task.count=5``), and check it.

    A key is one of the leaf's, of the recipe's, or of an axis after its name. ``fresh=true`` alone asks a model for
    every list that it can be asked for.

    Raises:
        RecipeError: the file cannot be read or is no recipe; its place is told.
        InputError: a setting names nothing, or its value does not fit.
    """
    source = find(name_or_path, _folder(), _KIND)
    data = source.table()
    for setting in settings:
        _set(data, setting, source)
    _read_lists(data, source)
    beside(source.where, as_table(data.get("tools")), "python")
    try:
        recipe = Recipe.model_validate(data)
    except ValidationError as error:
        raise _explained(error, source, settings) from error
    _check_templates(recipe, source)
    return recipe


def from_content(content: Mapping[str, Any]) -> Recipe:
    """The recipe that a run has kept."""
    return Recipe.model_validate(dict(content))


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What changed between two contents, one line each: ``axes.task.count: 10 → 5``."""
    before, after = _flat(old), _flat(new)
    keys = [*before, *(key for key in after if key not in before)]
    return [
        f"{key}: {_short(before.get(key))} → {_short(after.get(key))}"
        for key in keys
        if before.get(key) != after.get(key)
    ]


def _folder() -> Traversable:
    return resources.files("bactrian.recipes").joinpath("built_in")


def _read_lists(data: dict[str, Any], source: Source) -> None:
    """Put the lines of list files where given items would be, so that the run keeps them."""
    for axis in _axes(data):
        name = axis.get("file")
        if isinstance(name, str) and "given" not in axis:
            axis["given"] = _lines(Path(source.where).parent / name, name, source)
            del axis["file"]


def _lines(path: Path, name: str, source: Source) -> list[str]:
    """The lines of a list file that are not blank."""
    items: list[str] = []
    lines = 0
    try:
        with path.open(encoding="utf-8-sig") as file:
            size = os.fstat(file.fileno()).st_size
            if size > _LARGEST_LIST:
                raise _too_large(name, f"{size:,} bytes", f"{_LARGEST_LIST:,}", source)
            for line in file:
                lines += 1
                if len(items) < _MOST_LINES and (item := line.strip()):
                    items.append(item)
    except UnicodeDecodeError as error:
        raise RecipeError(
            f"The list is not UTF-8 text from about line {lines + 1:,} on.",
            where=str(path),
            next="Save it as UTF-8.",
        ) from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else error
        raise source.error(
            f"The list {name!r} cannot be read: {reason}.",
            "file",
            "Give the path to a text file beside the recipe.",
        ) from error
    if lines > _MOST_LINES:
        raise _too_large(name, f"{lines:,} lines", f"{_MOST_LINES:,}", source)
    return items


def _too_large(name: str, size: str, limit: str, source: Source) -> InputError:
    return source.error(f"The list {name!r} has {size}; the limit is {limit}.", "file", "Split it.")


def _axes(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    axes = data.get("axes")
    found: list[Any] = cast("list[Any]", axes) if isinstance(axes, list) else []
    return [cast("dict[str, Any]", axis) for axis in found if isinstance(axis, dict)]


def _set(data: dict[str, Any], setting: str, source: Source) -> None:
    key, equals, written = setting.partition("=")
    key = key.strip()
    if not equals or not key:
        raise InputError(f"{setting!r} is not key=value.", where="--set", next="For example: task.count=5")
    value = _value(written.strip())
    if key == "fresh":
        for axis in _axes(data):
            if "ask" in axis:
                axis["fresh"] = value
        return
    leaf = next((name for name in _TEMPLATES if isinstance(data.get(name), dict)), None)
    *path, last = key.removeprefix("axes.").split(".")
    tables: dict[str, tuple[dict[str, Any], type[BaseModel]]] = {
        **{str(axis.get("name")): (axis, Axis) for axis in _axes(data)},
        "": (data, Recipe),
    }
    for name in _ADDED:
        added = data.get(name, {})
        if isinstance(added, dict):
            tables[name] = (added, _MODELS[name])
    if leaf is not None:
        tables[leaf] = (data[leaf], _MODELS[leaf])
        if not path and last not in Recipe.model_fields:
            path = [leaf]
    table, model = tables.get(".".join(path), (None, Recipe))
    if table is None or last not in _fields(model):
        known = [
            ".".join(filter(None, (name, field)))
            for name, (_, kind) in tables.items()
            for field in _fields(kind)
        ]
        raise InputError(
            f"The recipe has nothing named {key!r}.{did_you_mean(key, known)}",
            where="--set",
            next=f"`bactrian recipes show {source.where}` shows what it has.",
        )
    if model is Axis and last in ("given", "file"):  # the one stands for the other
        table.pop("given", None)
        table.pop("file", None)
    table[last] = value
    if path and path[0] in _ADDED:
        data[path[0]] = table


def _fields(model: type[BaseModel]) -> list[str]:
    return [name for name in model.model_fields if name not in ("kind", "axes", *_TEMPLATES)]


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


_MODELS: dict[str, type[BaseModel]] = {
    "role_play": RolePlay,
    "answer": Answer,
    "translate": Translate,
    "society": Ensemble,
    "critic": Critic,
    "tools": RolePlayTools,
}


def _explained(error: ValidationError, source: Source, settings: Sequence[str]) -> InputError:
    """The first fault that was found, with its place in the file."""
    # A misspelt key is also a missing one; the spelling is what to mend.
    found = error.errors(include_url=False)
    first = next((fault for fault in found if fault["type"] == "extra_forbidden"), found[0])
    place = first["loc"]
    names = [str(part) for part in place if isinstance(part, str)]
    model: type[BaseModel] = Recipe
    key = names[-1] if names else "name"
    after = 0
    if len(place) > 1 and place[0] == "axes" and isinstance(place[1], int):
        model = Axis
        starts = [match.start() for match in re.finditer(r"^[ \t]*\[\[[ \t]*axes", source.text, re.MULTILINE)]
        after = starts[place[1]] if place[1] < len(starts) else 0
        written = _axes(source.table())
        axis = written[place[1]] if place[1] < len(written) else {}
        if isinstance(axis.get("name"), str):
            names.insert(1, axis["name"])
        if key == "axes":
            key = "name"
        elif key == "given" and "file" in axis:
            key = "file"
    elif len(names) > 1 and names[0] in _MODELS:
        model = _MODELS[names[0]]
    if first["type"] == "extra_forbidden":
        what = f"Unknown key {key!r}.{did_you_mean(key, _fields(model))}"
        following = f"Known keys: {', '.join(name for name in model.model_fields if name != 'kind')}."
    elif first["type"] == "missing":
        what = f"The key {'.'.join(names)!r} is missing."
        following = f"{source.kind.help} shows what a recipe looks like."
    else:
        message = _SAID.get(first["type"]) or first["msg"].removeprefix("Value error, ")
        what = f"{'.'.join(names) or 'The recipe'}: {message[:1].lower()}{message[1:]}."
        following = (
            "Check the --set options too."
            if settings
            else f"{source.kind.help} shows what a recipe looks like."
        )
    return source.error(what, key, following, after=after)


def _check_templates(recipe: Recipe, source: Source) -> None:
    known: list[str] = []
    for axis in recipe.axes:
        if axis.ask is not None:
            _check_template(source, "ask", axis.ask, {"count", *axis.per})
        known.append(axis.name)
    leaf = recipe.leaf
    names = {*known, "language_name"} if leaf.kind == "translate" else set(known)
    for key in _TEMPLATES[leaf.kind]:
        if text := getattr(leaf, key):
            _check_template(source, key, text, names)
    for key in _CRITIC_TEMPLATES if recipe.critic else ():
        _check_template(source, key, getattr(recipe.critic, key), names)


def _check_template(source: Source, key: str, text: str, may: set[str]) -> None:
    try:
        compiled(text, may=frozenset(may))
    except TemplateFault as fault:
        # The same key may stand at several axes; its text tells which one this is.
        after = (
            max(source.text.find(text.strip().splitlines()[0][:60]) - len(key) - 200, 0)
            if text.strip()
            else 0
        )
        raise source.error(
            f"{key!r}, line {fault.line}, {fault.what}.", key, fault.next, after=after
        ) from fault


def _flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, Mapping):
            flat |= _flat(cast("Mapping[str, Any]", value), f"{prefix}{key}.")
        elif key == "axes":
            for axis in value:
                flat |= _flat(axis, f"{prefix}axes.{axis['name']}.")
        else:
            flat[prefix + key] = value
    return flat


def _short(value: object) -> str:
    text = "nothing" if value is None else str(value) if isinstance(value, (int, float)) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
