"""``bactrian evaluate pairwise``: two models answer the same questions, and judges compare them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bactrian.api.evaluation.plan import plan_questions
from bactrian.cli.commands.evaluate.humaneval import SpendingFlags
from bactrian.cli.commands.evaluate.solving import ComparisonFlags, compare_solutions
from bactrian.cli.options import declare_option, flatten_groups
from bactrian.cli.run_async import StopControl, run_async
from bactrian.evaluate.questions.question_set import SETS

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
    plan = plan_questions((first, second), questions, limit=limit, seed=spending.seed, folder=out)
    stop_control = StopControl()
    work = compare_solutions(plan, judging, spending, stop_control, math=plan.one_answer)
    run_async(
        work, resume="All results so far are stored; the same command resumes.", stop_control=stop_control
    )
