"""``bactrian evaluate pairwise``: two models answer the same questions, and judges compare them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from bactrian.cli.commands.evaluate.humaneval import SpendingFlags
from bactrian.cli.commands.evaluate.solving import ComparisonFlags, SolutionPlan, compare_solutions
from bactrian.cli.options import declare_option, flatten_groups
from bactrian.cli.run_async import StopControl, run_async
from bactrian.evaluate.agents.drawing import build_solution_recipe, draw_tasks
from bactrian.evaluate.agents.solution_jobs import Solutions
from bactrian.evaluate.questions.question_set import SETS, load_questions

_JUDGING, _SPENDING = ComparisonFlags(), SpendingFlags()


@flatten_groups
def pairwise(
    first: Annotated[str, typer.Argument(metavar="A", help="The first model.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The second model.")],
    questions: Annotated[
        str, declare_option("--questions", f"A set ({', '.join(SETS)}), or a file of JSON lines with `text`.")
    ],
    limit: Annotated[
        int | None, declare_option("--limit", "Only so many questions, drawn at random.", min=1)
    ] = None,
    judging: ComparisonFlags = _JUDGING,
    spending: SpendingFlags = _SPENDING,
    out: Annotated[
        Path | None, declare_option("--out", "Folder of answers and verdicts. Default: A-B.SET.pairwise.")
    ] = None,
) -> None:
    """Compare two models on a set of questions, by judges (table 2 of the paper)."""
    chosen = load_questions(questions)
    asked = list(chosen.questions)
    if limit is not None:
        asked = draw_tasks(asked, limit, spending.seed or 0)
    names = re.sub(r"[^A-Za-z0-9.]+", "-", f"{first}-{second}").strip("-.")[:100]
    folder = (out or Path(f"{names}.{chosen.name}.pairwise")).absolute()
    spec = Solutions(ways=("first", "second"), question_set=chosen.name, task_label="question")
    plan = SolutionPlan(
        folder,
        build_solution_recipe(asked, spec),
        {"first": first, "second": second},
        [("first", "second")],
        len(asked),
    )
    stop_control = StopControl()
    work = compare_solutions(plan, judging, spending, stop_control, math=chosen.has_one_answer)
    run_async(
        work, resume="All results so far are stored; the same command goes on.", stop_control=stop_control
    )
