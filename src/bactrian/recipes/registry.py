"""The kinds of jobs that a recipe can have: the built-in ones, and those of installed packages."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Any

from pydantic import create_model

from bactrian.errors import InputError
from bactrian.files.plugins import list_plugins, load_plugin
from bactrian.recipes.job_specs import Answer, RolePlay, SocietyJob, Translate
from bactrian.recipes.schema import JobSpec, Recipe

JOBS = "bactrian.jobs"
"""Entry-point group: a kind of job by the name of its table, an object whose ``spec`` is a :class:`JobSpec` class."""
BUILT_IN: tuple[type[JobSpec], ...] = (RolePlay, Answer, Translate, SocietyJob)


def find_recipe_model(keys: Collection[str] | None = None) -> type[Recipe]:
    """Return the model of a recipe whose tables are ``keys``; None for one that knows every kind of job.

    A package is loaded only for a recipe that has a table of its name, so that a broken one disturbs no others.

    Raises:
        InputError: a package that registers one of them cannot be used.
    """
    built_in = {spec.key for spec in BUILT_IN}
    others = [name for name in list_plugins(JOBS) if name not in built_in and (keys is None or name in keys)]
    return _build_recipe_model((*BUILT_IN, *map(_load_spec, others)))


def _load_spec(name: str) -> type[JobSpec]:
    found = load_plugin(JOBS, name)
    spec: object = getattr(found, "spec", None)
    if not (isinstance(spec, type) and issubclass(spec, JobSpec)) or spec.key != name:
        raise InputError(
            f"What a package registers as {name!r} under {JOBS!r} is not a kind of job.",
            where=name,
            next=f"Register a JobKind, whose spec is a JobSpec with the key {name!r}.",
        )
    if name in Recipe.model_fields:
        raise InputError(
            f"A package registers a kind of job as {name!r}, which is another key of every recipe.",
            where=name,
            next="Give it another name.",
        )
    return spec


@cache
def _build_recipe_model(specs: tuple[type[JobSpec], ...]) -> type[Recipe]:
    fields: dict[str, Any] = {spec.key: (spec | None, None) for spec in specs}
    model = create_model("Recipe", __base__=Recipe, __doc__=Recipe.__doc__, **fields)
    model.specs = {spec.key: spec for spec in specs}
    return model
