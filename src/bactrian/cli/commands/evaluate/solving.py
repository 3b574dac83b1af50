"""What the commands that compare solutions share: flags, the two runs, and the report."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from bactrian.api.generate import GenerateOptions, build_run_order
from bactrian.cli.commands.evaluate.humaneval import SpendingFlags
from bactrian.cli.commands.generate import watch_run
from bactrian.cli.model_options import show_model_progress
from bactrian.cli.options import declare_option
from bactrian.cli.run_async import StopControl
from bactrian.cli.view.comparison import show_comparison
from bactrian.cli.view.forecast import show_forecast
from bactrian.cli.view.progress import choose_progress_view
from bactrian.errors import BudgetReached
from bactrian.evaluate.agents.drawing import build_verdict_recipe
from bactrian.evaluate.agents.html import write_comparison_page
from bactrian.evaluate.agents.report import build_comparison_report
from bactrian.evaluate.agents.scores import Style
from bactrian.evaluate.agents.solution_jobs import Way
from bactrian.generate.forecast import forecast_run
from bactrian.generate.run import RunOrder
from bactrian.language.escape import to_json
from bactrian.models.wrappers.budget import RAISE_LIMIT
from bactrian.recipes.schema import Recipe


@dataclass(frozen=True, slots=True)
class ComparisonFlags:
    """Who judges, and how."""

    judge: Annotated[
        list[str] | None,
        declare_option(
            "--judge",
            "Model that judges. Without one, solutions are only written. Can be repeated, for a panel.",
        ),
    ] = None
    math: Annotated[
        bool, declare_option("--math", "Ask the judge to solve the problem first, for tasks with one answer.")
    ] = False
    repeats: Annotated[int, declare_option("--repeats", "Judgements in each of the two orders.", min=1)] = 1
    by_roles: Annotated[
        bool, declare_option("--by-roles", "Intervals by resampling pairs of roles instead of tasks.")
    ] = False
    report: Annotated[Path | None, declare_option("--report", "Write the report as a page: FILE.html.")] = (
        None
    )
    timeout: Annotated[
        float, declare_option("--timeout", "Longest wait for a reply, in seconds.", min=0.001)
    ] = 600.0
    forecast: Annotated[bool, declare_option("--forecast", "Estimate the cost, without any request.")] = False
    retry_failed: Annotated[bool, declare_option("--retry-failed", "Ask again where a model failed.")] = False
    as_json: Annotated[bool, declare_option("--json", "Write the report as JSON.")] = False

    @property
    def style(self) -> Style:
        """How the judge is asked."""
        return "math" if self.math else "general"


@dataclass(frozen=True, slots=True)
class SolutionPlan:
    """What to solve, with what, and which solutions to compare."""

    folder: Path
    """Holds the runs of solutions and verdicts."""
    recipe: Recipe
    models: Mapping[str, str]
    """By way."""
    pairs: Sequence[tuple[Way, Way]]
    tasks: int

    @property
    def solutions(self) -> Path:
        """The run of the solutions."""
        return name_solutions(self.folder)


def name_solutions(folder: Path) -> Path:
    """Return the run of the solutions in the folder of an evaluation."""
    return folder / "solutions.db"


def name_folder(run: Path, out: Path | None) -> Path:
    """Return the folder of an evaluation of ``run``: beside it, unless ``out`` names another."""
    return (out or run.with_name(f"{run.stem}.agents")).absolute()


def name_verdicts(folder: Path, judge: str, style: Style) -> Path:
    """Return the run of the verdicts of a judge."""
    words = re.sub(r"[^A-Za-z0-9.]+", "-", judge).strip("-.")[:80]
    return folder / f"verdicts.{words}{'.math' if style == 'math' else ''}.db"


async def compare_solutions(
    plan: SolutionPlan,
    judging: ComparisonFlags,
    spending: SpendingFlags,
    stop_control: StopControl,
    *,
    math: bool = False,
) -> int:
    """Write the solutions, ask the judges, print the report, and return the exit code. ``math`` sets the flag.

    Raises:
        BudgetReached: a limit is used up; what was paid for is stored.
    """
    judging = replace(judging, math=judging.math or math)
    code = (await run_comparison(plan, judging, spending, stop_control)).code
    stop_control.stop = None
    verdicts = list_verdicts(plan.folder, judging)
    if judging.forecast or not verdicts:
        return code
    report = await build_comparison_report(plan.solutions, verdicts, by_roles=judging.by_roles)
    if judging.report is not None:
        write_comparison_page(judging.report, report)
    if judging.as_json:
        print(to_json(report))
    else:
        show_comparison(report)
    return code


def list_verdicts(folder: Path, judging: ComparisonFlags) -> dict[str, Path]:
    """Return the runs of the verdicts by the judge's name."""
    return {judge: name_verdicts(folder, judge, judging.style) for judge in judging.judge or ()}


@dataclass(frozen=True, slots=True)
class ComparisonRun:
    """What a comparison came to."""

    code: int
    """Exit code."""
    spending: SpendingFlags
    order: RunOrder
    """The last run, under the limits of ``spending``."""

    def find_left(self) -> SpendingFlags:
        """Return the limits that are left for another comparison. Raises BudgetReached if nothing is."""
        return _subtract(self.spending, self.order)


async def run_comparison(
    plan: SolutionPlan, judging: ComparisonFlags, spending: SpendingFlags, stop_control: StopControl
) -> ComparisonRun:
    """Write the solutions, and ask the judges; or print what that will cost.

    Raises:
        BudgetReached: a limit is used up; what was paid for is stored.
    """
    order = _order_run(plan.recipe, plan.solutions, plan.models, spending, judging)
    verdicts = list_verdicts(plan.folder, judging)
    if judging.forecast:
        show_forecast(await forecast_run(order), json=judging.as_json)
        for judge, path in verdicts.items():
            show_forecast(
                await forecast_run(_order_verdicts(plan, judge, path, spending, judging)),
                json=judging.as_json,
            )
        return ComparisonRun(0, spending, order)
    plan.folder.mkdir(parents=True, exist_ok=True)
    code = await _run(order, judging, stop_control)
    for judge, path in verdicts.items():
        spending = _subtract(spending, order)
        order = _order_verdicts(plan, judge, path, spending, judging)
        code = max(code, await _run(order, judging, stop_control))
    return ComparisonRun(code, spending, order)


async def _run(order: RunOrder, judging: ComparisonFlags, stop_control: StopControl) -> int:
    return await watch_run(order, choose_progress_view(json=False, quiet=judging.as_json), stop_control)


def _order_run(
    recipe: Recipe, run: Path, models: Mapping[str, str], spending: SpendingFlags, judging: ComparisonFlags
) -> RunOrder:
    order = build_run_order(
        recipe,
        run,
        next(iter(models.values())),
        models,
        limit=None,
        budget=None if judging.forecast else spending.budget,
        options=GenerateOptions(
            seed=spending.seed,
            concurrency=spending.concurrency,
            max_tokens=spending.max_tokens,
            price=spending.price,
            base_url=spending.base_url,
            timeout=judging.timeout,
            max_wait=judging.timeout,
            retry_failed=judging.retry_failed,
        ),
    )
    return replace(order, access=show_model_progress(order.access))


def _order_verdicts(
    plan: SolutionPlan, judge: str, path: Path, spending: SpendingFlags, judging: ComparisonFlags
) -> RunOrder:
    recipe = build_verdict_recipe(plan.solutions, plan.pairs, plan.tasks, judging.style, judging.repeats)
    return _order_run(recipe, path, {"judge": judge}, spending, judging)


def _subtract(spending: SpendingFlags, order: RunOrder) -> SpendingFlags:
    """Return the limits that are left for the next run, after what ``order`` used, earlier commands included."""
    meter = order.meter
    budget, tokens = spending.budget, spending.max_tokens
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
    return replace(spending, budget=budget, max_tokens=tokens)
