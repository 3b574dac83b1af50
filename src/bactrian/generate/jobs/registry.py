"""Finds job kinds: the built-in ones, and those that installed packages register."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from bactrian.files.plugins import load_plugin
from bactrian.generate.jobs.answer import AnswerJobs
from bactrian.generate.jobs.base import LOCAL, JobKind, ModelChoice
from bactrian.generate.jobs.role_play import RolePlayJobs
from bactrian.generate.jobs.society import SocietyJobs
from bactrian.generate.jobs.translate import TranslateJobs
from bactrian.generate.plan import Plan
from bactrian.recipes.registry import JOBS
from bactrian.recipes.schema import Recipe

BUILT_IN: tuple[type[JobKind[Any]], ...] = (RolePlayJobs, AnswerJobs, TranslateJobs, SocietyJobs)


def find_job_kind(recipe: Recipe) -> type[JobKind[Any]]:
    """Return the kind of the recipe's jobs.

    Raises:
        InputError: the package that registers it is not installed.
    """
    key = recipe.job.key
    for kind in BUILT_IN:
        if kind.spec.key == key:
            return kind
    return cast("type[JobKind[Any]]", load_plugin(JOBS, key))


def choose_models(recipe: Recipe, default: str | None, by_agent: Mapping[str, str]) -> ModelChoice:
    """Choose the models of a run. The user's choice takes precedence over the recipe's, and is trusted more.

    ``default`` is the model of all agents, instead of those in the recipe; None if not given.
    """
    models = recipe.models if default is None else None
    own = models.by_agent() if models else {}
    usual = default or (models.default if models else None)
    named = frozenset(filter(None, (*own.values(), usual if default is None else None)))
    chosen = {**own, **by_agent}
    # A small model must not prepare the work of two large ones.
    follows = usual is None and {"user", "assistant"} <= chosen.keys()
    default = chosen["assistant"] if follows else usual or LOCAL
    return ModelChoice(default, chosen, follows, named - set(by_agent.values()))


def make_plan(recipe: Recipe, choice: ModelChoice, seed: int | None = None) -> Plan:
    """Return the plan of a run: the recipe, with the model of each agent that its jobs have.

    Raises:
        InputError: a value is missing that the user has to provide.
    """
    kind = find_job_kind(recipe)
    kind.check(recipe)
    models = {"lister": choice.find("lister"), **kind.name_models(recipe, choice)}
    before = ModelChoice(LOCAL, choice.by_agent)
    earlier = {"lister": before.find("lister"), **kind.name_models(recipe, before)}
    distrusted = frozenset(models.values()) - choice.trusted
    return Plan(
        recipe, models, seed, distrusted=distrusted, earlier_models=earlier if choice.follows else None
    )
