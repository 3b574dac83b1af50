"""What the commands that compare solutions share: flags, the two runs, and the report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from bactrian.api.evaluation.plan import RunSettings, SolutionPlan, order_solutions, order_verdicts
from bactrian.api.generate import GenerateOptions
from bactrian.cli.commands.evaluate.humaneval import SpendingFlags
from bactrian.cli.commands.generate import watch_run
from bactrian.cli.model_options import show_model_progress
from bactrian.cli.options import declare_option
from bactrian.cli.run_async import StopControl
from bactrian.cli.view.comparison import show_comparison
from bactrian.cli.view.forecast import show_forecast
from bactrian.cli.view.progress import choose_progress_view
from bactrian.evaluate.agents.html import write_comparison_page
from bactrian.evaluate.agents.report import build_comparison_report
from bactrian.evaluate.agents.scores import Style
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


def name_solutions(folder: Path) -> Path:
    """Return the run of the solutions in the folder of an evaluation."""
    return folder / "solutions.db"


def name_folder(run: Path, out: Path | None) -> Path:
    """Return the folder of an evaluation of ``run``: beside it, unless ``out`` names another."""
    return (out or run.with_name(f"{run.stem}.agents")).absolute()


async def compare_solutions(
    plan: SolutionPlan,
    judging: ComparisonFlags,
    spending: SpendingFlags,
    stop_control: StopControl,
) -> int:
    """Write the solutions, ask the judges, print the report, and return the exit code.

    Raises:
        BudgetReached: a limit is used up; what was paid for is stored.
    """
    style: Style = "math" if judging.math or plan.one_answer else "general"
    settings = _read_settings(spending, judging)

    def order_judge(judge: str) -> RunOrder:
        return order_verdicts(plan, judge, settings, style=style, repeats=judging.repeats)

    order = order_solutions(plan, settings)
    judges = judging.judge or ()
    if judging.forecast:
        for one in (order, *map(order_judge, judges)):
            show_forecast(await forecast_run(one), json=judging.as_json)
        return 0
    plan.folder.mkdir(parents=True, exist_ok=True)
    code = await _run(order, judging, stop_control)
    verdicts: dict[str, Path] = {}
    for judge in judges:
        settings = settings.subtract(order)
        order = order_judge(judge)
        verdicts[judge] = order.run
        code = max(code, await _run(order, judging, stop_control))
    stop_control.stop = None
    if not verdicts:
        return code
    report = await build_comparison_report(plan.solutions, verdicts, by_roles=judging.by_roles)
    if judging.report is not None:
        write_comparison_page(judging.report, report)
    if judging.as_json:
        print(to_json(report))
    else:
        show_comparison(report)
    return code


async def _run(order: RunOrder, judging: ComparisonFlags, stop_control: StopControl) -> int:
    order = replace(order, access=show_model_progress(order.access))
    return await watch_run(order, choose_progress_view(json=False, quiet=judging.as_json), stop_control)


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
