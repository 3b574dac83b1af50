"""Stages of a training beside each other, on sets of questions: answers, judges, and table 2."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bactrian.cli.commands.evaluate.humaneval import SpendingFlags
from bactrian.cli.commands.evaluate.solving import (
    ComparisonFlags,
    SolutionPlan,
    list_verdicts,
    run_comparison,
)
from bactrian.cli.run_async import StopControl
from bactrian.cli.view.emergence import show_stages
from bactrian.evaluate.agents.drawing import draw_tasks
from bactrian.evaluate.emergence.stage_plan import StageModel, build_stage_recipe, pair_stages
from bactrian.evaluate.emergence.stage_report import StageRuns, build_stage_report
from bactrian.evaluate.page import write_page
from bactrian.evaluate.questions.question_set import QuestionSet
from bactrian.language.escape import to_json


async def compare_stages(
    stages: Sequence[StageModel],
    sets: Sequence[QuestionSet],
    folder: Path,
    *,
    judging: ComparisonFlags,
    spending: SpendingFlags,
    stop_control: StopControl,
    limit: int | None,
    longest: int,
) -> int:
    """Ask all stages all questions, let the judges compare them, print the report, and return the exit code.

    Args:
        stages: The base first.
        sets: Sets of questions.
        folder: Holds a folder for each set.
        judging: How the answers are judged.
        spending: Limits for all runs together.
        stop_control: Stops the run in flight.
        limit: Questions of each set, drawn at random; None for all.
        longest: Tokens of an answer.

    Raises:
        BudgetReached: a limit is used up; what was paid for is stored.
    """
    runs: dict[str, StageRuns] = {}
    code = 0
    for chosen in sets:
        asked = list(chosen.questions)
        if limit is not None:
            asked = draw_tasks(asked, limit, spending.seed or 0)
        own = replace(judging, math=judging.math or chosen.has_one_answer)
        plan = SolutionPlan(
            folder / chosen.name,
            build_stage_recipe(stages, chosen.name, asked, longest),
            {stage.name: stage.model for stage in stages},
            pair_stages(stages),
            len(asked),
        )
        print(f"Questions: {chosen.name}", file=sys.stderr)
        done = await run_comparison(plan, own, spending, stop_control)
        code = max(code, done.code)
        runs[chosen.name] = StageRuns(plan.solutions, list_verdicts(plan.folder, own))
        if not judging.forecast and chosen is not sets[-1]:
            spending = done.find_left()
    stop_control.stop = None
    if judging.forecast or not judging.judge:
        return code
    report = await build_stage_report(runs)
    if judging.report is not None:
        write_page(judging.report, "emergence/stages.html.j2", report)
    if judging.as_json:
        print(to_json(report))
    else:
        show_stages(report)
    return code
