"""Where a run comes from, for the head of a report: recipe, models, prompts, seed, version, command and dates."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from bactrian.analyze.aggregate import Aggregate
from bactrian.generate.spread import DIFFERENT_ROLES
from bactrian.recipes.load import list_recipes, load_recipe
from bactrian.records.run import Command
from bactrian.store import RunReader

Json = dict[str, Any]
_DEFAULTS: Mapping[str, object] = {"timeout": 600.0, "max_wait": 600.0, "order": "depth"}
"""Options that are left out of a command while they have their usual value."""


async def read_provenance(store: RunReader, run: Path, part: Aggregate) -> dict[str, Any]:
    """Return where a run comes from, as a JSON object; what the run does not store is null.

    ``command`` is the last one, rebuilt from its stored options.
    """
    content = await store.recipe() or {}
    commands = await store.commands()
    begun = sorted((await store.list_created()).values())
    recipe: Mapping[str, Any] = content.get("recipe") or {}
    return {
        "recipe": recipe.get("name"),
        "models": sorted({model for _, model in part.usage if model}),
        "prompts": list(part.prompts),
        "seed": content.get("seed"),
        "versions": list(dict.fromkeys(one.version for one in commands)),
        "command": _write_command(commands[-1], run, content) if commands else None,
        "first": _write_date(begun[0]) if begun else None,
        "last": _write_date(begun[-1]) if begun else None,
    }


def _write_date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="minutes")


def _write_command(command: Command, run: Path, content: Mapping[str, Any]) -> str:
    recipe: Mapping[str, Any] = content.get("recipe") or {}
    subject = recipe.get("name") if command.verb == "generate" else command.options.get("idea")
    parts = ["bactrian", command.verb, *([str(subject)] if subject else []), "--run", run.name]
    models: Mapping[str, str] = content.get("models") or command.options.get("models") or {}
    if len(names := set(models.values())) == 1:
        parts += ["--model", *names]
    if content.get("seed") is not None:
        parts += ["--seed", str(content["seed"])]
    if command.verb == "generate":
        parts += [part for setting in list_settings(recipe) for part in ("--set", setting)]
    return shlex.join([*parts, *_write_flags(command.options)])


def list_settings(recipe: Mapping[str, Any]) -> list[str]:
    """Return the settings, as ``--set`` takes them, that make ``recipe`` of the built-in recipe of its name.

    Only numbers, words and booleans are compared, since nobody types a longer text as a setting. The list is
    empty for a recipe of another name.
    """
    if recipe.get("name") not in list_recipes():
        return []
    base = load_recipe(recipe["name"]).content()
    pairs: list[tuple[str, Any, Any]] = [("", base.get(key), of) for key, of in recipe.items()]
    axes = {axis["name"]: axis for axis in base.get("axes", ())}
    pairs += [(f"{axis['name']}.", axes.get(axis["name"]), axis) for axis in recipe.get("axes", ())]
    return [
        f"{prefix}{key}={str(value).lower() if isinstance(value, bool) else value}"
        for prefix, before, after in pairs
        if isinstance(before, dict) and isinstance(after, dict)
        for key, value in _find_new(cast("Json", before), cast("Json", after)).items()
    ]


def _find_new(before: Json, after: Json) -> Json:
    """Return the short values of ``after`` that ``before`` does not have."""
    short = {key: value for key, value in after.items() if isinstance(value, (bool, int, float, str))}
    return {key: value for key, value in short.items() if value != before.get(key) and "\n" not in str(value)}


def _write_flags(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options that are a number or a short text; the others have no flag."""
    for name, value in options.items():
        if name in ("idea", "own", "endings", DIFFERENT_ROLES) or value == _DEFAULTS.get(name):
            continue
        if name == "limit" and value == options.get("sample"):
            continue  # A sample of so many jobs is limited to them.
        if value is True:
            yield f"--{name.replace('_', '-')}"
        elif isinstance(value, (int, float, str)) and value is not False:
            yield from (f"--{name.replace('_', '-')}", str(value))
