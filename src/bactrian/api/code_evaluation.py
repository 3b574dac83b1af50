"""HumanEval and other problems of code, from Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TypedDict, Unpack, cast

from bactrian.api.bridge import run_sync
from bactrian.api.dataset import build_run_order
from bactrian.api.model_arguments import ModelLike
from bactrian.api.solution_comparison import RunFunction, run_quietly
from bactrian.errors import InputError
from bactrian.evaluate.code_judge import Verdict, VerdictFile, check_verdicts, judge_solutions
from bactrian.evaluate.code_scoring import Score, build_recipe, compute_score
from bactrian.evaluate.problems import (
    Problem,
    SolutionSet,
    find_plus_file,
    read_human_eval,
    read_problems,
    read_run,
    read_solutions,
)
from bactrian.options import GenerateOptions, check_names
from bactrian.protocol.argument_names import use_python_words
from bactrian.runs.wiring import RunOrder
from bactrian.sandbox.outcome import Limits
from bactrian.sandbox.programs import choose_tier

WatchJudging = Callable[[int], AbstractContextManager[Callable[[Verdict], object]]]
"""Called with the number of solutions, gives a context with the function that receives each verdict."""
WORKERS = 2
"""Solutions that are judged at once."""


class ScoreOptions(TypedDict, total=False):
    """Keyword options of :func:`evaluate_humaneval` and :func:`score_solutions`."""

    problems: str | Path | None
    """Your own problems: JSON lines in HumanEval's or MBPP's format."""
    plus: str | Path | None
    """HumanEval+: EvalPlus's data file, or ``"cache"`` for the one in its cache."""
    limit: int | None
    """Only the first problems."""
    cpu: float
    """Seconds of CPU time for a solution with all its checks; default 10."""
    workers: int
    """Solutions to judge at once; default 2."""
    verdicts: str | Path | None
    """File of verdicts; default: the run's name with ``.verdicts.jsonl``."""
    seed: int | None
    """Seed of the sampling."""
    concurrency: int | None
    """Concurrent requests."""
    max_tokens: int | None
    """Stop before the run uses this many tokens."""
    price: str | None
    """US dollars per million tokens, ``"prompt/completion[/cached]"``."""
    base_url: str | None
    """Address of the endpoint; default ``OPENAI_BASE_URL``."""
    retry_failed: bool
    """Ask again for failed samples."""


@use_python_words()
def evaluate_humaneval(
    model: ModelLike,
    *,
    run: str | Path,
    samples: int = 1,
    ks: Sequence[int] = (1, 10, 100),
    temperatures: Sequence[float] = (0.2,),
    budget: float | None = None,
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
        ks: Values of k in pass@k; those above ``samples`` are left out.
        temperatures: Each has its own samples and figures.
        budget: Stop before the run costs more than this many US dollars.
        options: See :class:`ScoreOptions`.

    Raises:
        InputError: an argument cannot be used, or the run was begun with another plan.
        SandboxError: this computer has no sandbox. Nothing was asked.
        BudgetReached: a limit is reached; what was paid for is stored.
    """
    check_names(evaluate_humaneval, options, ScoreOptions)
    problems = choose_problems(options)
    order = order_samples(problems, run, model, samples, temperatures, budget, options)
    return judge_samples(run_sync(ask_samples(order, problems, options))[0], order.run, ks, options)


@use_python_words()
def score_solutions(
    solutions: str | Path, *, ks: Sequence[int] = (1, 10, 100), **options: Unpack[ScoreOptions]
) -> Score:
    """Score solutions that exist already, as ``bactrian evaluate humaneval --solutions`` does.

    Args:
        solutions: JSON lines with ``task_id``, and ``completion`` or ``solution``.
        ks: Values of k in pass@k.
        options: See :class:`ScoreOptions`.

    Example:
        >>> import json, pathlib
        >>> import bactrian as bt
        >>> line = {"task_id": "HumanEval/53", "completion": "    return x + y"}
        >>> _ = pathlib.Path("mine.jsonl").write_text(json.dumps(line))
        >>> bt.score_solutions("mine.jsonl").kinds
        {'passed': 1}

    Raises:
        InputError: the file cannot be used.
        SandboxError: this computer has no sandbox.
    """
    check_names(score_solutions, options, ScoreOptions)
    path = Path(solutions)
    return judge_samples(read_file(path, options), path, ks, options)


def choose_problems(options: ScoreOptions) -> list[Problem]:
    """Return the problems of a file, of HumanEval+, or of HumanEval, as many as ``limit`` says.

    Raises:
        InputError: two sets are named, or one cannot be read.
        MissingExtra: HumanEval is not installed.
    """
    path, plus = options.get("problems"), options.get("plus")
    if path is not None and plus is not None:
        raise InputError(
            "These are two sets of problems.", where="--plus", next="Leave out --problems or --plus."
        )
    if plus == "cache":
        path = find_plus_file()
        if path is None:
            raise InputError(
                "EvalPlus has no data in its cache.",
                where="--plus",
                next="Name the file: --plus HumanEvalPlus.jsonl",
            )
    elif plus is not None:
        path = plus
    problems = read_human_eval() if path is None else read_problems(Path(path))
    return problems[: options.get("limit")]


def order_samples(
    problems: Sequence[Problem],
    run: str | Path,
    model: ModelLike | None,
    samples: int,
    temperatures: Sequence[float],
    budget: float | None,
    options: ScoreOptions,
) -> RunOrder:
    """Return the order of a run that asks for ``samples`` solutions of each problem at each temperature.

    Raises:
        InputError: the model or an option cannot be used.
    """
    names = ("seed", "concurrency", "max_tokens", "price", "base_url", "retry_failed")
    of_run = {name: options[name] for name in names if name in options}  # type: ignore[literal-required]
    return build_run_order(
        build_recipe("humaneval", problems, temperatures, samples),
        run,
        model,
        {},
        limit=None,
        budget=budget,
        options=cast("GenerateOptions", of_run),
    )


def _watch_nothing(_: int) -> AbstractContextManager[Callable[[Verdict], object]]:
    return nullcontext(lambda _: None)


async def ask_samples(
    order: RunOrder, problems: Sequence[Problem], options: ScoreOptions, run: RunFunction = run_quietly
) -> tuple[SolutionSet, int]:
    """Ask for the samples that are missing, and return all, with the exit code of the run.

    Raises:
        InputError: the run was begun with another plan, or has no sample.
        SandboxError: this computer has no sandbox. Nothing was asked.
        BudgetReached: a limit is reached; what was paid for is stored.
    """
    # Before anything is spent: without a sandbox or a file of verdicts nothing could be judged.
    choose_tier()
    check_verdicts(find_verdict_file(order.run, options))
    code = await run(order)
    samples = await read_run(order.run, problems, order.plan.recipe.size)
    if not samples.solutions:
        raise InputError(
            "The run has no sample yet.",
            where=str(order.run),
            next="`bactrian failures RUN` shows the reasons.",
        )
    return samples, code


def read_file(path: Path, options: ScoreOptions) -> SolutionSet:
    """Return the solutions in a file.

    Raises:
        InputError: the file cannot be used.
        SandboxError: this computer has no sandbox.
    """
    problems = choose_problems(options)
    choose_tier()
    return read_solutions(path, problems)


def judge_samples(
    samples: SolutionSet,
    source: Path,
    ks: Sequence[int],
    options: ScoreOptions,
    watch: WatchJudging = _watch_nothing,
) -> Score:
    """Judge the samples of ``source``, a run or a file, that have no verdict yet, and return the score of all.

    Raises:
        InputError: the file of verdicts cannot be used.
        BactrianError: no sandbox starts, or a verdict cannot be written. The verdicts so far are kept.
    """
    path = find_verdict_file(source, options)
    if not os.access(path.absolute().parent, os.W_OK):
        raise InputError(
            "This folder cannot be written.", where=str(path), next="Name another file with --out."
        )
    verdicts = VerdictFile(path)
    limits, workers = Limits(cpu=options.get("cpu", 10.0)), options.get("workers", WORKERS)
    with watch(len(samples.solutions)) as on_verdict:
        judged = judge_solutions(samples.solutions, verdicts, limits, workers=workers, on_verdict=on_verdict)
    return compute_score(samples, judged, ks)


def find_verdict_file(source: Path, options: ScoreOptions) -> Path:
    """Return the file of the verdicts on a run, or on a file of solutions."""
    return Path(options.get("verdicts") or source.with_name(f"{source.name}.verdicts.jsonl"))
