"""A fault that the schema found, in words and with its place in the file."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from bactrian.errors import InputError
from bactrian.files.toml import TomlSource, check_table, suggest_name

Place = tuple[str | int, ...]
"""Where something stands in the content: ``("axes", 1, "count")``."""

_SAID = {
    "tuple_type": "this is not a list",
    "model_type": "this is not a table",
    "dict_type": "this is not a table",
    "string_type": "this is not a text in quotes",
    "bool_type": "this is neither true nor false",
    "int_type": "this is not a whole number",
    "float_type": "this is not a number",
    "too_short": "this list is empty",
    "string_too_short": "this is empty",
}
"""Pydantic's names for faults in words of TOML."""
_PATTERNS = {
    r"\S": "this is empty",
    r"^[^\x00]*[^\s\x00][^\x00]*$": "this is empty or holds a NUL",
    r"^[a-z0-9][a-z0-9-]{0,63}$": "a name has small letters, digits and hyphens, 64 at most",
    r"^[a-z][a-z0-9_]{0,63}$": "a name has small letters, digits and underscores, 64 at most, a letter first",
    r"^beam:[1-9]\d?x[1-9]\d?$": "a search is beam:WIDTHxDEPTH, each from 1 to 99, for example beam:2x3",
}


def explain_validation_error(
    error: ValidationError, source: TomlSource, model: type[BaseModel], changed: Collection[Place] = ()
) -> InputError:
    """The first fault that was found. Its place is ``--set`` if it lies at what was ``changed`` there."""
    # A misspelt key is also a missing one; the spelling is what to mend.
    found = error.errors(include_url=False)
    first = next((fault for fault in found if fault["type"] == "extra_forbidden"), found[0])
    context: dict[str, Any] = first.get("ctx", {})
    place: Place = (*first["loc"], *context.get("place", ()))
    what, following = _said(first, place, source, model)
    if any(place[: len(each)] == each or each[: len(place)] == place for each in changed if place):
        return source.kind.error(what, where="--set", next=following)
    key = next((part for part in reversed(place) if isinstance(part, str)), "")
    return source.error(what, key, following, within=source.part(place))


def _said(first: ErrorDetails, place: Place, source: TomlSource, model: type[BaseModel]) -> tuple[str, str]:
    """What is wrong, and what to do next."""
    name = _name(place, source) or f"The {source.kind.name}"
    shown = f"{source.kind.help} shows what a {source.kind.name} looks like."
    context: dict[str, Any] = first.get("ctx", {})
    match first["type"]:
        case "extra_forbidden":
            known = _keys(model, place[:-1])
            hint = suggest_name(str(place[-1]), known)
            return f"Unknown key {str(place[-1])!r}.{hint}", f"Known keys: {', '.join(known)}."
        case "missing":
            return f"The key {name!r} is missing.", shown
        case "string_pattern_mismatch" if context.get("pattern") in _PATTERNS:
            said = _PATTERNS[context["pattern"]]
        case kind:
            said = _SAID.get(kind) or first["msg"].removeprefix("Value error, ")
    hint = suggest_name(context["word"], context["known"]) if "word" in context else ""
    return f"{name}: {said[:1].lower()}{said[1:]}.{hint}", shown


def _name(place: Place, source: TomlSource) -> str:
    """``axes.task.count`` for the count of the axis whose name is task."""
    content: Any = source.table()
    parts: list[str] = []
    for part in place:
        try:
            content = content[part]
        except (KeyError, IndexError, TypeError):
            content = None
        if isinstance(part, str):
            parts.append(part)
        else:
            name = check_table(content).get("name")
            parts.append(name if isinstance(name, str) else str(part + 1))
    return ".".join(parts)


def _keys(model: type[BaseModel], place: Place) -> list[str]:
    """The keys that the table at ``place`` may have."""
    for part in place:
        if isinstance(part, str):
            model = _model_in(model.model_fields[part].annotation) or model
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in get_args(annotation) if (found := _model_in(each))), None)
