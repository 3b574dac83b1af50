"""HumanEval and other problems of code, from Python."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from bactrian.api import solution_comparison
from bactrian.api.arguments import ModelLike
from bactrian.api.bridge import run_sync, shorten_errors
from bactrian.errors import InputError
from bactrian.evaluate.code_judge import Verdict, VerdictFile, check_verdicts, judge_solutions
from bactrian.evaluate.code_scoring import Completion, Score, build_sample_recipe, compute_score
from bactrian.evaluate.problems import (
    Problem,
    SolutionSet,
    count_whole,
    find_plus_file,
    read_human_eval,
    read_problems,
    read_run,
    read_solutions,
)
from bactrian.options import ScoreOptions, check_options, fill_defaults
from bactrian.sandbox.programs import choose_tier
from bactrian.sandbox.tiers import Limits
from bactrian.store import locate_file
from bactrian.store.locations import name_verdicts

# Called with the number of solutions, gives a context with the function that receives each verdict.
WatchJudging = Callable[[int], AbstractContextManager[Callable[[Verdict], object]]]


@shorten_errors
def evaluate_humaneval(
    model: ModelLike,
    *,
    run: str | Path,
    samples: int = 1,
    ks: Sequence[int] | None = None,
    temperatures: Sequence[float] = (0.2,),
    **options: Unpack[ScoreOptions],
) -> Score:
    """Measure how often a model's code passes the checks of HumanEval, as ``bactrian evaluate humaneval`` does.

    Samples are stored in the run, verdicts in a file beside it. The same call resumes it.

    Example:
        >>> import bactrian as bt
        >>> model = bt.Scripted({"assistant": ["    return sum(numbers)"]})
        >>> score = bt.evaluate_humaneval(model, run="humaneval.db", limit=1)
        >>> score.samples, score.passes[0].value
        (1, 0.0)

    Args:
        model: The model to measure.
        run: File of the run.
        samples: Samples of each problem at each temperature.
        ks: Values of k in pass@k. Default: those of 1, 10 and 100 that are at most ``samples``.
        temperatures: Each has its own samples and figures.
        options: See :class:`ScoreOptions`.

    Raises:
        InputError: an argument cannot be used, or the run was begun with another plan.
        SandboxError: this computer has no sandbox. Nothing was asked.
        BudgetReached: a limit is reached; what was paid for is stored.
    """
    check_options(evaluate_humaneval, options, ScoreOptions)
    return _measure(SampleOrder(model, locate_file(run), samples, temperatures), ks, options)


@shorten_errors
def score_solutions(
    solutions: str | Path, *, ks: Sequence[int] | None = None, **options: Unpack[ScoreOptions]
) -> Score:
    """Score solutions that exist already, as ``bactrian evaluate humaneval --solutions`` does.

    Args:
        solutions: JSON lines with ``task_id``, and ``completion`` or ``solution``.
        ks: Values of k in pass@k. Default: those of 1, 10 and 100 for which there are enough samples.
        options: See :class:`ScoreOptions`.

    Example:
        >>> import json, pathlib
        >>> import bactrian as bt
        >>> line = {"task_id": "HumanEval/53", "completion": "    return x + y"}
        >>> _ = pathlib.Path("mine.jsonl").write_text(json.dumps(line))
        >>> bt.score_solutions("mine.jsonl", partial=True).kinds
        {'passed': 1}

    Raises:
        InputError: the file cannot be used.
        SandboxError: this computer has no sandbox.
    """
    check_options(score_solutions, options, ScoreOptions)
    return _measure(Path(solutions), ks, options)


def _measure(source: SampleOrder | Path, ks: Sequence[int] | None, options: ScoreOptions) -> Score:
    score = run_sync(measure_code(source, ks, options)).score
    assert score is not None  # without a forecast
    return score


def choose_problems(options: ScoreOptions) -> list[Problem]:
    """Return the problems of a file, of HumanEval+, or of HumanEval, as many as ``limit`` says.

    Raises:
        InputError: two sets are named, or one cannot be read, or is a part of HumanEval without ``partial``.
        MissingExtra: HumanEval is not installed.
    """
    problems = _read_set(options)
    _check_part(
        len(problems), count_whole(problems), options, str(options.get("problems") or options.get("plus"))
    )
    return problems[: options.get("limit")]


def _check_part(count: int, whole: int, options: ScoreOptions, where: str) -> None:
    """Refuse a part of a set, whose score is not that of the set, unless it was asked for."""
    if count < whole and not options.get("partial"):
        raise InputError(
            f"The file has {count} of the {whole} problems, and their score is not that of all.",
            where=where,
            next="Complete it, or give partial=True; the result then says so.",
        )


def _read_set(options: ScoreOptions) -> list[Problem]:
    path, plus = options.get("problems"), options.get("plus")
    if path is not None and plus is not None:
        raise InputError("These are two sets of problems.", option="plus", next="Leave out problems or plus.")
    if str(plus) == "cache":
        path = find_plus_file()
        if path is None:
            raise InputError(
                "EvalPlus has no data in its cache.",
                option="plus",
                next="Name the file: plus=HumanEvalPlus.jsonl",
            )
    elif plus is not None:
        path = plus
    return read_human_eval() if path is None else read_problems(Path(path))


@dataclass(frozen=True, slots=True)
class SampleOrder:
    """The samples to ask a model for."""

    model: ModelLike | None
    run: Path  # Keeps the samples
    samples: int
    temperatures: Sequence[float]
    run_jobs: solution_comparison.RunFunction = solution_comparison.run_quietly
    forecast: solution_comparison.ForecastFunction | None = None  # Shows the cost instead


@dataclass(frozen=True, slots=True)
class MeasuredCode:
    """The score of a model, or of solutions in a file."""

    score: Score | None  # None for a forecast
    verdicts: Path
    code: int = 0  # The exit code of the run of the samples


async def measure_code(
    source: SampleOrder | Path,
    ks: Sequence[int] | None,
    options: ScoreOptions,
    watch: WatchJudging = lambda _: nullcontext(lambda _: None),
) -> MeasuredCode:
    """Ask for the samples that are missing, or read the solutions in a file, judge all, and return the score.

    Raises:
        InputError: the run was begun with another plan, or has no sample; or the file cannot be used.
        SandboxError: this computer has no sandbox. Nothing was asked.
        BudgetReached: a limit is reached; what was paid for is stored.
        BactrianError: no sandbox starts, or a verdict cannot be written. The verdicts so far are kept.
    """
    path = source if isinstance(source, Path) else source.run
    verdicts = Path(options.get("verdicts") or name_verdicts(path))
    if isinstance(source, Path):
        samples, code = _read_file(source, options), 0
    else:
        samples, code = await _ask_samples(source, options, verdicts)
    score = None
    if samples is not None:
        score = await asyncio.to_thread(_judge_samples, samples, verdicts, ks, options, watch)
    return MeasuredCode(score, verdicts, code)


async def _ask_samples(
    order: SampleOrder, options: ScoreOptions, verdicts: Path
) -> tuple[SolutionSet | None, int]:
    """Ask for the samples that are missing, and return all, with the exit code of the run; None for a forecast."""
    path, forecast = order.run, order.forecast
    problems = choose_problems(options)
    longest = options.get("reply_length") or solution_comparison.find_reply_length(path, Completion.key)
    recipe = build_sample_recipe("humaneval", problems, order.temperatures, order.samples, longest)
    limits: ScoreOptions = options if forecast is None else {**options, "budget": None}
    asked = solution_comparison.order_questions(recipe, path, {"": order.model}, limits)
    if forecast is not None:
        await forecast(asked, "")
        return None, 0
    # Before anything is spent: without a sandbox or a file of verdicts nothing could be judged.
    choose_tier()
    check_verdicts(verdicts)
    code = await order.run_jobs(asked)
    answers = await read_run(path, problems, recipe.size)
    if not answers.solutions:
        raise InputError(
            "The run has no sample yet.", where=str(path), next="`bactrian failures RUN` shows the reasons."
        )
    return answers, code


def _read_file(path: Path, options: ScoreOptions) -> SolutionSet:
    """Return the solutions in a file."""
    problems = choose_problems(options)
    choose_tier()
    solutions = read_solutions(path, problems)
    solved = {solution.problem.id for solution in solutions.solutions}
    _check_part(len(solved), len(problems), options, str(path))
    return solutions


def _judge_samples(
    samples: SolutionSet,
    path: Path,
    ks: Sequence[int] | None,
    options: ScoreOptions,
    watch: WatchJudging,
) -> Score:
    """Judge the samples that have no verdict in the file ``path`` yet, and return the score of all."""
    if not os.access(path.absolute().parent, os.W_OK):
        raise InputError(
            "This folder cannot be written.", where=str(path), next="Name another file with verdicts=FILE."
        )
    verdicts = VerdictFile(path)
    filled = fill_defaults(options, ScoreOptions)
    limits, workers = Limits(cpu=filled["cpu"]), filled["workers"]
    with watch(len(samples.solutions)) as on_verdict:
        judged = judge_solutions(samples.solutions, verdicts, limits, workers=workers, on_verdict=on_verdict)
    return compute_score(samples, judged, ks, count_whole(_read_set(options)))
