"""Where a run comes from, for the head of a report: recipe, models, prompts, seed, version, command and dates."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bactrian.analyze.aggregate import Aggregate
from bactrian.api.commands import DIFFERENT_ROLES
from bactrian.records.run import Command
from bactrian.store import RunReader

_DEFAULTS: Mapping[str, object] = {"timeout": 600.0, "max_wait": 600.0, "order": "depth"}
"""Options that are left out of a command while they have their usual value."""


async def read_provenance(store: RunReader, run: Path, part: Aggregate) -> dict[str, Any]:
    """Return where a run comes from, as a JSON object; what the run does not store is null.

    ``command`` is the last one, written anew from its stored options.
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
    return shlex.join([*parts, *_write_flags(command.options)])


def _write_flags(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options that are a number or a short text; the others are no flag of their own."""
    for name, value in options.items():
        if name in ("idea", "own", "endings", DIFFERENT_ROLES) or value == _DEFAULTS.get(name):
            continue
        if value is True:
            yield f"--{name.replace('_', '-')}"
        elif isinstance(value, (int, float, str)) and value is not False:
            yield from (f"--{name.replace('_', '-')}", str(value))
