"""Plain error messages for schema violations, with their position in the file."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from bactrian.errors import InputError
from bactrian.files.toml import TomlSource, check_table, suggest_name

Place = tuple[str | int, ...]
"""Path of a value in the content: ``("axes", 1, "count")``."""

_MESSAGES = {
    "tuple_type": "this is not a list",
    "model_type": "this is not a table",
    "dict_type": "this is not a table",
    "string_type": "this is not a string in quotes",
    "bool_type": "this is neither true nor false",
    "int_type": "this is not an integer",
    "float_type": "this is not a number",
    "too_short": "this list is empty",
    "string_too_short": "this is empty",
}
"""Messages in TOML's terms, by pydantic's error type."""
_PATTERNS = {
    r"\S": "this is empty",
    r"^[^\x00]*[^\s\x00][^\x00]*$": "this is empty or contains a NUL character",
    r"^[a-z0-9][a-z0-9-]{0,63}$": "a name has 1 to 64 lower-case letters, digits and hyphens",
    r"^[a-z][a-z0-9_]{0,63}$": "a name has 1 to 64 lower-case letters, digits and underscores, a letter first",
    r"^beam:[1-9]\d?x[1-9]\d?$": "a search is beam:WIDTHxDEPTH, each from 1 to 99, for example beam:2x3",
}


def explain_validation_error(
    error: ValidationError, source: TomlSource, model: type[BaseModel], changed: Collection[Place] = ()
) -> InputError:
    """Return an error for the first fault. Its location is ``--set`` if the fault lies in a ``changed`` place."""
    # A misspelt key is reported as missing too; the unknown key is the better hint.
    found = error.errors(include_url=False)
    first = next((fault for fault in found if fault["type"] == "extra_forbidden"), found[0])
    context: dict[str, Any] = first.get("ctx", {})
    place: Place = (*first["loc"], *context.get("place", ()))
    what, following = _describe(first, place, source, model)
    if any(place[: len(each)] == each or each[: len(place)] == place for each in changed if place):
        return source.kind.error(what, where="--set", next=following)
    key = next((part for part in reversed(place) if isinstance(part, str)), "")
    return source.error(what, key, following, within=source.part(place))


def _describe(
    first: ErrorDetails, place: Place, source: TomlSource, model: type[BaseModel]
) -> tuple[str, str]:
    """Return the problem and the next action."""
    name = _join_place(place, source) or f"The {source.kind.name}"
    help_text = f"{source.kind.help} shows what a {source.kind.name} looks like."
    context: dict[str, Any] = first.get("ctx", {})
    match first["type"]:
        case "extra_forbidden":
            known = _list_keys(model, place[:-1])
            hint = suggest_name(str(place[-1]), known)
            return f"Unknown key {str(place[-1])!r}.{hint}", f"Known keys: {', '.join(known)}."
        case "missing":
            return f"The key {name!r} is missing.", help_text
        case "string_pattern_mismatch" if context.get("pattern") in _PATTERNS:
            message = _PATTERNS[context["pattern"]]
        case kind:
            message = _MESSAGES.get(kind) or first["msg"].removeprefix("Value error, ")
    hint = suggest_name(context["word"], context["known"]) if "word" in context else ""
    return f"{name}: {message[:1].lower()}{message[1:]}.{hint}", help_text


def _join_place(place: Place, source: TomlSource) -> str:
    """Return ``place`` with dots; items of a list by their name: ``axes.task.count``."""
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


def _list_keys(model: type[BaseModel], place: Place) -> list[str]:
    """Return the keys that the table at ``place`` may have."""
    for part in place:
        if isinstance(part, str):
            model = _find_model(model.model_fields[part].annotation) or model
    return [field.alias or name for name, field in model.model_fields.items()]


def _find_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in get_args(annotation) if (found := _find_model(each))), None)
