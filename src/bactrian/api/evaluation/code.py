"""HumanEval and other problems of code, from Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict, Unpack

from bactrian.api.bridge import run_sync
from bactrian.api.checks import check_names
from bactrian.api.generate import GenerateOptions, build_run_order, run_order, watch_progress
from bactrian.api.models import ModelLike
from bactrian.errors import InputError
from bactrian.evaluate.completion_jobs import build_recipe
from bactrian.evaluate.problems.human_eval import read_human_eval
from bactrian.evaluate.problems.own import read_problems
from bactrian.evaluate.problems.plus import find_plus_file
from bactrian.evaluate.problems.problem import Problem
from bactrian.evaluate.scoring import Score, VerdictFile, compute_score, judge_solutions
from bactrian.evaluate.solutions import SolutionSet, read_run, read_solutions
from bactrian.generate.run import PreparedRun
from bactrian.language.argument_names import use_python_words
from bactrian.sandbox.limits import Limits
from bactrian.sandbox.run import choose_tier

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
    problems = choose_problems(options.get("problems"), options.get("plus"))[: options.get("limit")]
    names = ("seed", "concurrency", "max_tokens", "price", "base_url", "retry_failed")
    given = {name: options[name] for name in names if name in options}  # type: ignore[literal-required]
    order = build_run_order(
        build_recipe("humaneval", problems, temperatures, samples),
        run,
        model,
        {},
        limit=None,
        budget=budget,
        options=GenerateOptions(**given),  # type: ignore[typeddict-item]
    )
    choose_tier()

    async def solve() -> SolutionSet:
        ready: list[PreparedRun] = []
        await run_order(order, ready.append, watch_progress(None))
        return await read_run(order.run, problems, order.plan.recipe.size)

    return _score(run_sync(solve()), Path(run), ks, options)


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
    problems = choose_problems(options.get("problems"), options.get("plus"))[: options.get("limit")]
    choose_tier()
    return _score(read_solutions(Path(solutions), problems), Path(solutions), ks, options)


def choose_problems(path: str | Path | None, plus: str | Path | None) -> list[Problem]:
    """Return the problems of a file, of HumanEval+, or of HumanEval.

    Raises:
        InputError: two sets are named, or one cannot be read.
        MissingExtra: HumanEval is not installed.
    """
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
    return read_human_eval() if path is None else read_problems(Path(path))


def name_verdict_file(source: Path) -> Path:
    """Return the file of the verdicts on a run, or on a file of solutions."""
    return source.with_name(f"{source.name}.verdicts.jsonl")


def _score(found: SolutionSet, source: Path, ks: Sequence[int], options: ScoreOptions) -> Score:
    if not found.solutions:
        raise InputError(
            "There is no sample yet.", where=str(source), next="The run's failures() gives the reasons."
        )
    verdicts = VerdictFile(Path(options.get("verdicts") or name_verdict_file(source)))
    judged = judge_solutions(
        found.solutions,
        verdicts,
        Limits(cpu=options.get("cpu", 10.0)),
        workers=options.get("workers", WORKERS),
        on_verdict=lambda _: None,
    )
    return compute_score(found, judged, ks)
