"""``bactrian evaluate emergence``: what the stages of a training know, one after another."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bactrian.api.emergence.known_answers import (
    KnownAnswerOrder,
    find_stages,
    measure_known_answers,
    prepare_studies,
)
from bactrian.api.generate import GenerateOptions
from bactrian.cli.commands.evaluate.humaneval import SpendingFlags
from bactrian.cli.commands.evaluate.solving import ComparisonFlags
from bactrian.cli.commands.evaluate.staging import compare_stages
from bactrian.cli.commands.generate import SOME_FAILED, watch_run
from bactrian.cli.commands.train.view import TrainingView
from bactrian.cli.options import declare_option, flatten_groups
from bactrian.cli.run_async import StopControl, run_async
from bactrian.cli.view.emergence import show_harness, show_matrix
from bactrian.cli.view.progress import choose_progress_view
from bactrian.errors import InputError
from bactrian.evaluate.emergence.lm_eval import read_results, write_commands
from bactrian.evaluate.emergence.study import NOTHING, choose_size
from bactrian.evaluate.page import write_page
from bactrian.evaluate.questions.question_set import SETS, load_questions
from bactrian.generate.run import RunOrder
from bactrian.language.escape import to_json
from bactrian.models.registry import ModelOptions

_RESUME = "All results so far are stored; the same command resumes."
_JUDGING, _SPENDING = ComparisonFlags(), SpendingFlags()


@dataclass(frozen=True, slots=True)
class KnownAnswerFlags:
    """The known-answer experiment."""

    known_answers: Annotated[
        bool,
        declare_option("--known-answers", "Train on invented facts, and ask for them: answers are exact."),
    ] = False
    base: Annotated[
        str,
        declare_option(
            "--base", "What is trained: `nothing` (made from nothing), `built-in`, a GGUF file, a folder."
        ),
    ] = NOTHING
    seeds: Annotated[
        int,
        declare_option(
            "--seeds", "Repetitions, each with facts and a training of its own; --seed is the first.", min=1
        ),
    ] = 1
    facts: Annotated[
        int | None,
        declare_option("--facts", "Facts taught in each domain. Default: 12; 10 for other bases.", min=2),
    ] = None
    wordings: Annotated[
        int | None,
        declare_option(
            "--wordings",
            "Wordings in which each fact is taught. Default: 6; 4 for other bases.",
            min=1,
            max=6,
        ),
    ] = None
    steps: Annotated[
        int | None, declare_option("--steps", "Steps of each stage, instead of the usual length.", min=1)
    ] = None
    write_only: Annotated[
        bool,
        declare_option("--write-only", "Only write facts, conversations and recipes; train and ask nothing."),
    ] = False


@dataclass(frozen=True, slots=True)
class QuestionFlags:
    """What judges compare."""

    questions: Annotated[
        list[str] | None,
        declare_option(
            "--questions", f"A set ({', '.join(SETS)}) or a file; can be repeated. Default: all four sets."
        ),
    ] = None
    limit: Annotated[
        int | None, declare_option("--limit", "Only N questions of each set, drawn at random.", min=1)
    ] = None
    longest: Annotated[int, declare_option("--longest", "Longest answer, in tokens.", min=1)] = 1024


@flatten_groups
def emergence(
    stages: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[STAGES]...",
            help="The stages, as MODEL or NAME=MODEL, the base first; or the folder of a training.",
        ),
    ] = None,
    known: KnownAnswerFlags = KnownAnswerFlags(),
    asked: QuestionFlags = QuestionFlags(),
    judging: ComparisonFlags = _JUDGING,
    spending: SpendingFlags = _SPENDING,
    lm_eval: Annotated[
        bool,
        declare_option(
            "--lm-eval",
            "Table 7: show the results in files of lm-evaluation-harness (STAGES), or without files its commands.",
        ),
    ] = False,
    out: Annotated[
        Path, declare_option("--out", "Folder of the experiment; the same command resumes it.")
    ] = Path("emergence"),
) -> None:
    """Measure what each stage of a training adds (tables 2, 6 and 7 of the paper)."""
    if lm_eval:
        _show_harness(stages or (), as_json=judging.as_json)
        return
    if judging.by_roles:
        raise InputError(
            "Questions to stages have no pairs of roles.", where="--by-roles", next="Leave it out."
        )
    stop_control = StopControl()
    if known.known_answers:
        order = _order_known_answers(stages or (), known, judging, spending, out)
        if known.write_only:
            for study in prepare_studies(order):
                typer.echo(shlex.quote(str(out / f"seed-{study.seed}")))
            return
        work = _measure_known_answers(order, stop_control, judging)
    else:
        work = compare_stages(
            find_stages(stages or (), ModelOptions(base_url=spending.base_url)),
            [load_questions(name) for name in asked.questions or SETS],
            out.absolute(),
            judging=judging,
            spending=spending,
            stop_control=stop_control,
            limit=asked.limit,
            longest=asked.longest,
        )
    run_async(work, resume=_RESUME, stop_control=stop_control)


def _show_harness(files: Sequence[str], *, as_json: bool) -> None:
    if not files:
        for command in write_commands("MODEL"):
            typer.echo(command)
        return
    results = read_results([Path(file).expanduser() for file in files])
    if as_json:
        print(to_json({"models": [one.to_json() for one in results]}))
    else:
        show_harness(results)


def _order_known_answers(
    stages: Sequence[str],
    known: KnownAnswerFlags,
    judging: ComparisonFlags,
    spending: SpendingFlags,
    out: Path,
) -> KnownAnswerOrder:
    for flag, given in (
        ("--judge", judging.judge),
        ("--forecast", judging.forecast),
        ("--budget", spending.budget),
    ):
        if given:
            raise InputError(
                "Known answers are graded without a judge, and asked of models on this computer.",
                where=flag,
                next="Leave it out, or leave --known-answers out.",
            )
    seed = 1 if spending.seed is None else spending.seed
    return KnownAnswerOrder(
        out.absolute(),
        tuple(range(seed, seed + (1 if stages else known.seeds))),
        choose_size(known.base, known.facts, known.wordings),
        str(Path(known.base).absolute()) if Path(known.base).exists() else known.base,
        known.steps,
        find_stages(stages, ModelOptions(base_url=spending.base_url)) if stages else (),
        GenerateOptions(
            base_url=spending.base_url,
            concurrency=spending.concurrency,
            max_tokens=spending.max_tokens,
            price=spending.price,
            timeout=judging.timeout,
            max_wait=judging.timeout,
            retry_failed=judging.retry_failed,
        ),
        TrainingView(quiet=judging.as_json).show_event,
    )


async def _measure_known_answers(
    order: KnownAnswerOrder, stop_control: StopControl, judging: ComparisonFlags
) -> int:
    async def run(asked: RunOrder) -> int:
        print(f"Asking {asked.run.stem}, {asked.run.parent.parent.name}.", file=sys.stderr)
        return await watch_run(asked, choose_progress_view(json=False, quiet=True), stop_control)

    result = await measure_known_answers(order, run)
    stop_control.stop = None
    report = result.to_json()
    if judging.report is not None:
        write_page(judging.report, "emergence/matrix.html.j2", report)
    if judging.as_json:
        print(to_json(report))
    else:
        show_matrix(report)
    return SOME_FAILED if result.unanswered else 0
