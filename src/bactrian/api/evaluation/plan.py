"""The two runs of a comparison of solutions: what is solved and judged, by whom, and within which limits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bactrian.api.checks import check_base_url, choose_base_url
from bactrian.api.generate import GenerateOptions, build_run_order
from bactrian.api.models import ModelLike
from bactrian.errors import BudgetReached, InputError
from bactrian.evaluate.agents.drawing import (
    build_solution_recipe,
    build_verdict_recipe,
    draw_tasks,
    find_usual_model,
    list_conversations,
    read_stored_draw,
    read_task_file,
)
from bactrian.evaluate.agents.scores import Style
from bactrian.evaluate.agents.solution_jobs import Solutions, Way
from bactrian.evaluate.questions.question_set import load_questions
from bactrian.generate.run import RunOrder
from bactrian.models.wrappers.budget import RAISE_LIMIT
from bactrian.recipes.schema import Recipe


@dataclass(frozen=True, slots=True)
class SolutionPlan:
    """What to solve, with what, and which solutions to compare."""

    folder: Path
    """Holds the runs of solutions and verdicts."""
    recipe: Recipe
    models: Mapping[str, ModelLike]
    """By way."""
    pairs: Sequence[tuple[Way, Way]]
    tasks: int
    one_answer: bool = False
    """True if each task has one right answer, so that judges solve it first."""

    @property
    def solutions(self) -> Path:
        """The run of the solutions."""
        return self.folder / "solutions.db"


@dataclass(frozen=True, slots=True)
class AgentsDraw:
    """Which conversations are evaluated, and in which ways their tasks are solved."""

    run: Path
    ways: tuple[Way, ...]
    against: Path | None = None
    """Another run whose role-plays on the same tasks are compared."""
    tasks: int = 100
    only: Path | None = None
    """A file of session ids instead of a draw."""
    seed: int | None = None
    model: ModelLike | None = None
    """Writes single answers; None for the run's assistant."""
    extractor: ModelLike | None = None
    """Extracts solutions; None for ``model``."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How the two runs are made, and their limits, which apply to both together."""

    budget: float | None = None
    max_tokens: int | None = None
    options: GenerateOptions = field(default_factory=GenerateOptions)
    """Further options, for each of the runs."""

    def subtract(self, order: RunOrder) -> RunSettings:
        """Return the limits that are left after what ``order`` used, earlier commands included.

        Raises:
            BudgetReached: nothing is left.
        """
        meter, budget, tokens = order.meter, self.budget, self.max_tokens
        if budget is not None:
            budget -= meter.usd
        if tokens is not None:
            tokens -= meter.used.total
        if (budget is not None and budget < 0) or (tokens is not None and tokens < 1):
            raise BudgetReached(
                "The runs so far have used up the limit; nothing more was asked.",
                where=str(order.run),
                next=RAISE_LIMIT,
            )
        return replace(self, budget=budget, max_tokens=tokens)


async def plan_agents(draw: AgentsDraw, folder: Path) -> SolutionPlan:
    """Return the plan of an evaluation of role-plays, in ``folder``.

    Raises:
        InputError: the run has no conversations to draw from.
        StoreError: a run cannot be read.
    """
    sessions = await list_conversations(draw.run)
    if draw.against is not None:
        others = set(await list_conversations(draw.against))
        sessions = [one for one in sessions if one in others]
        if not sessions:
            raise InputError(
                "The two runs have no finished session in common.",
                where=str(draw.against),
                next="`bactrian generate --fork NEW --keep-tasks` makes a second run on the same tasks.",
            )
    spec = Solutions(
        ways=draw.ways,
        source=str(draw.run.absolute()),
        against=str(draw.against.absolute()) if draw.against else "",
        seed=draw.seed or 0,
        drawn=None if draw.only else draw.tasks,
    )
    plan = SolutionPlan(folder, build_solution_recipe(["-"], spec), {}, (), 0)
    if draw.only is not None:
        tasks = read_task_file(draw.only, sessions)
    else:
        tasks = await read_stored_draw(plan.solutions, spec)
        tasks = tasks or draw_tasks(sessions, draw.tasks, spec.seed)
    model = draw.model or await find_usual_model(draw.run, tasks[0])
    extractor = draw.extractor or model
    models = {way: extractor if way in ("extraction", "against") else model for way in draw.ways}
    pairs: list[tuple[Way, Way]] = [
        (one, other) for place, one in enumerate(draw.ways) for other in draw.ways[place + 1 :]
    ]
    return replace(
        plan,
        recipe=build_solution_recipe(tasks, spec),
        models=models,
        pairs=pairs,
        tasks=len(tasks),
    )


def plan_questions(
    models: tuple[ModelLike, ModelLike],
    questions: str,
    *,
    limit: int | None,
    seed: int | None,
    folder: Path | None,
) -> SolutionPlan:
    """Return the plan of a comparison of two models on a set of questions.

    Raises:
        InputError: there is no such set, or its file cannot be used.
    """
    chosen = load_questions(questions)
    asked = list(chosen.questions)
    if limit is not None:
        asked = draw_tasks(asked, limit, seed or 0)
    names = re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(map(name_model, models))).strip("-.")[:100]
    spec = Solutions(ways=("first", "second"), question_set=chosen.name, task_label="question")
    return SolutionPlan(
        (folder or Path(f"{names}.{chosen.name}.pairwise")).absolute(),
        build_solution_recipe(asked, spec),
        {"first": models[0], "second": models[1]},
        [("first", "second")],
        len(asked),
        one_answer=chosen.has_one_answer,
    )


def name_model(model: ModelLike) -> str:
    """Return the name of a model, or the type of one that is an object."""
    if isinstance(model, str):
        return model
    return str(getattr(model, "__name__", type(model).__name__)).lower()


def name_verdicts(folder: Path, judge: str, style: Style) -> Path:
    """Return the run of the verdicts of a judge."""
    words = re.sub(r"[^A-Za-z0-9.]+", "-", judge).strip("-.")[:80]
    return folder / f"verdicts.{words}{'.math' if style == 'math' else ''}.db"


def order_solutions(plan: SolutionPlan, settings: RunSettings) -> RunOrder:
    """Return the order of the run of solutions.

    Raises:
        InputError: a model or an option cannot be used.
    """
    return _order(plan.recipe, plan.solutions, plan.models, settings)


def order_verdicts(
    plan: SolutionPlan, judge: ModelLike, settings: RunSettings, *, style: Style, repeats: int
) -> RunOrder:
    """Return the order of the run of a judge's verdicts.

    Raises:
        InputError: the judge or an option cannot be used.
    """
    recipe = build_verdict_recipe(plan.solutions, plan.pairs, plan.tasks, style, repeats)
    path = name_verdicts(plan.folder, name_model(judge), style)
    return _order(recipe, path, {"judge": judge}, settings)


def check_address(plan: SolutionPlan, judges: Iterable[ModelLike], base_url: str | None) -> None:
    """Refuse an address that neither a model of the plan nor a judge takes.

    Raises:
        InputError: no model is ``openai:NAME``.
    """
    check_base_url(base_url, [name_model(one) for one in (*plan.models.values(), *judges)])


def _order(recipe: Recipe, run: Path, models: Mapping[str, ModelLike], settings: RunSettings) -> RunOrder:
    # One address is given for all runs; this one may have no model that takes it.
    base_url = choose_base_url(settings.options.get("base_url"), map(name_model, models.values()))
    return build_run_order(
        recipe,
        run,
        next(iter(models.values())),
        models,
        limit=None,
        budget=settings.budget,
        options={**settings.options, "max_tokens": settings.max_tokens, "base_url": base_url},
    )
