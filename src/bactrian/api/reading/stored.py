"""Rebuilds the order of a stored run, so that it resumes without its recipe and options being named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bactrian.errors import InputError
from bactrian.generate.plan import Plan
from bactrian.recipes.load import read_recipe_content
from bactrian.recipes.schema import Recipe
from bactrian.records.run import Command
from bactrian.store import RunReader


@dataclass(frozen=True, slots=True)
class StoredRun:
    """What a run stores about how it is made."""

    plan: Plan
    options: Mapping[str, Any]
    """The options of the last command; empty for a run of a version that did not store them."""
    content: Mapping[str, Any]
    """What was frozen."""

    @property
    def recipe(self) -> Recipe:
        """The recipe of the run."""
        return self.plan.recipe

    @property
    def objects(self) -> tuple[str, ...]:
        """Python objects that the run was made with, and that a file cannot store."""
        models = [name for name in self.plan.models.values() if name.startswith("python:")]
        return tuple(
            dict.fromkeys((*models, *self.content.get("endings", ()), *self.options.get("sources", ())))
        )

    @property
    def needs_limit(self) -> bool:
        """True if nothing says how many of the recipe's jobs are wanted."""
        return "limit" not in self.options


async def read_stored_run(store: RunReader) -> StoredRun:
    """Return how the run is made.

    Raises:
        InputError: it was not made from a recipe.
    """
    content = await store.recipe()
    if content is None or "recipe" not in content:
        raise InputError(
            "This run was not made from a recipe.",
            where=str(store.path),
            next="`bactrian generate` makes runs from recipes.",
        )
    commands = [one for one in await store.commands() if one.verb == "generate"]
    return rebuild_stored_run(content, commands[-1] if commands else None)


def rebuild_stored_run(content: Mapping[str, Any], command: Command | None) -> StoredRun:
    """Return how a run with this frozen content is made.

    No name of a model in a file is trusted: an address in it receives a key only if a person names the address.
    """
    models: Mapping[str, str] = content["models"]
    plan = Plan(
        read_recipe_content(content["recipe"]),
        models,
        content.get("seed"),
        distrusted=frozenset(models.values()),
    )
    return StoredRun(plan, command.options if command else {}, content)
