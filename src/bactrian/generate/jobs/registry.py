"""The kinds of jobs: those that are built in, and those that installed packages register."""

from __future__ import annotations

from typing import Any, cast

from bactrian.files.plugins import load_plugin
from bactrian.generate.jobs.answer import AnswerJobs
from bactrian.generate.jobs.base import JobKind, ModelChoice
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
        InputError: the package that registers it is gone.
    """
    key = recipe.job.key
    for kind in BUILT_IN:
        if kind.spec.key == key:
            return kind
    return cast("type[JobKind[Any]]", load_plugin(JOBS, key))


def make_plan(recipe: Recipe, choice: ModelChoice, seed: int | None = None) -> Plan:
    """Return the plan of a run: the recipe, with the model of each agent that its jobs have.

    Raises:
        InputError: the recipe lacks something that the user has to give.
    """
    kind = find_job_kind(recipe)
    kind.check(recipe)
    models = {"lister": choice.find("lister"), **kind.name_models(recipe, choice)}
    return Plan(recipe, models, seed)
