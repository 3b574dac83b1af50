"""The common parts of the commands that compare solutions: flags, the two runs, and the report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from bactrian.api.evaluation.plan import (
    RunSettings,
    SolutionPlan,
    check_address,
    name_verdicts,
    order_solutions,
    order_verdicts,
)
from bactrian.api.generate import GenerateOptions
from bactrian.cli.commands.evaluate.humaneval import SpendingFlags
from bactrian.cli.commands.generate import watch_run
from bactrian.cli.model_options import show_model_progress
from bactrian.cli.options import declare_option
from bactrian.cli.run_async import StopControl
from bactrian.cli.view.comparison import show_comparison
from bactrian.cli.view.forecast import show_forecast
from bactrian.cli.view.progress import choose_progress_view
from bactrian.evaluate.agents.report import build_comparison_report
from bactrian.evaluate.agents.scores import Style
from bactrian.evaluate.page import write_page
from bactrian.generate.forecast import forecast_run
from bactrian.generate.run import RunOrder
from bactrian.language.escape import to_json


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
        write_page(judging.report, "agents/comparison.html.j2", report)
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
    """The result of a comparison."""

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
    check_address(plan, judging.judge or (), spending.base_url)
    order = _order_solutions(plan, spending, judging)
    verdicts = list_verdicts(plan.folder, judging)
    if judging.forecast:
        show_forecast(await forecast_run(order), json=judging.as_json, title="Solutions")
        for judge in verdicts:
            show_forecast(
                await forecast_run(_order_verdicts(plan, judge, spending, judging)),
                json=judging.as_json,
                title=f"Verdicts of {judge}",
            )
        return ComparisonRun(0, spending, order)
    plan.folder.mkdir(parents=True, exist_ok=True)
    code = await _run(order, judging, stop_control)
    for judge in verdicts:
        spending = _subtract(spending, order)
        order = _order_verdicts(plan, judge, spending, judging)
        code = max(code, await _run(order, judging, stop_control))
    return ComparisonRun(code, spending, order)


async def _run(order: RunOrder, judging: ComparisonFlags, stop_control: StopControl) -> int:
    return await watch_run(
        order, choose_progress_view(json=False, quiet=judging.as_json, noun="task"), stop_control
    )


def _order_solutions(plan: SolutionPlan, spending: SpendingFlags, judging: ComparisonFlags) -> RunOrder:
    order = order_solutions(plan, _read_settings(spending, judging))
    return replace(order, access=show_model_progress(order.access))


def _order_verdicts(
    plan: SolutionPlan, judge: str, spending: SpendingFlags, judging: ComparisonFlags
) -> RunOrder:
    settings = _read_settings(spending, judging)
    order = order_verdicts(plan, judge, settings, style=judging.style, repeats=judging.repeats)
    return replace(order, access=show_model_progress(order.access))


def _read_settings(spending: SpendingFlags, judging: ComparisonFlags) -> RunSettings:
    options = GenerateOptions(
        seed=spending.seed,
        concurrency=spending.concurrency,
        price=spending.price,
        base_url=spending.base_url,
        timeout=judging.timeout,
        max_wait=judging.timeout,
        retry_failed=judging.retry_failed,
    )
    return RunSettings(None if judging.forecast else spending.budget, spending.max_tokens, options)


def _subtract(spending: SpendingFlags, order: RunOrder) -> SpendingFlags:
    """Return the limits that are left for the next run, after what ``order`` used, earlier commands included."""
    left = RunSettings(spending.budget, spending.max_tokens).subtract(order)
    return replace(spending, budget=left.budget, max_tokens=left.max_tokens)
