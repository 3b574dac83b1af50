"""``bactrian evaluate humaneval``: how often a model's code does what it should."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from bactrian.api.evaluation.code import WORKERS, choose_problems, name_verdict_file
from bactrian.api.generate import GenerateOptions, build_run_order
from bactrian.cli.commands.generate import watch_run
from bactrian.cli.model_options import show_model_progress
from bactrian.cli.options import declare_option, flatten_groups
from bactrian.cli.run_async import StopControl, run_async
from bactrian.cli.view.forecast import show_forecast
from bactrian.cli.view.progress import choose_progress_view
from bactrian.cli.view.scores import JudgingView, show_score
from bactrian.errors import InputError
from bactrian.evaluate.completion_jobs import build_recipe
from bactrian.evaluate.problems.problem import Problem
from bactrian.evaluate.scoring import VerdictFile, check_verdicts, compute_score, judge_solutions
from bactrian.evaluate.solutions import SolutionSet, read_run, read_solutions
from bactrian.generate.forecast import forecast_run
from bactrian.generate.run import RunOrder
from bactrian.sandbox.limits import Limits
from bactrian.sandbox.run import choose_tier

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class SpendingFlags:
    """Where samples are asked for, and how much that may cost."""

    base_url: Annotated[str | None, declare_option("--base-url", "Endpoint of openai:NAME.")] = None
    concurrency: Annotated[
        int | None, declare_option("--concurrency", "Maximum number of concurrent requests.", min=1)
    ] = None
    budget: Annotated[
        float | None,
        declare_option("--budget", "Stop before the run costs more than this many US dollars.", min=0),
    ] = None
    max_tokens: Annotated[
        int | None,
        declare_option("--max-tokens", "Stop before the run uses more than this many tokens.", min=1),
    ] = None
    price: Annotated[
        str | None, declare_option("--price", "US dollars per million tokens, prompt/completion[/cached].")
    ] = None
    seed: Annotated[int | None, declare_option("--seed", "Seed of the sampling.")] = None


@dataclass(frozen=True, slots=True)
class ProblemFlags:
    """Which problems are asked."""

    problems: Annotated[
        Path | None,
        declare_option("--problems", "Your own problems: JSON lines in HumanEval's or MBPP's format."),
    ] = None
    plus: Annotated[
        str | None,
        declare_option("--plus", "HumanEval+: EvalPlus's data file, or `cache` for the one in its cache."),
    ] = None
    limit: Annotated[int | None, declare_option("--limit", "Only the first N problems.", min=1)] = None


@dataclass(frozen=True, slots=True)
class JudgingFlags:
    """How solutions are judged, and where verdicts go."""

    out: Annotated[
        Path | None,
        declare_option("--out", "Verdicts as JSON lines. Default: beside the run or the solutions."),
    ] = None
    cpu: Annotated[
        float, declare_option("--cpu", "Seconds of CPU time for a solution with all its checks.", min=0.1)
    ] = 10.0
    workers: Annotated[
        int | None, declare_option("--workers", "Solutions to judge at once. Default: 2.", min=1)
    ] = None


@flatten_groups
def humaneval(
    model: Annotated[
        str | None, declare_option("--model", "The model to measure; see `bactrian models`. Default: local.")
    ] = None,
    run_file: Annotated[
        Path, declare_option("--run", "The run that keeps the samples; the same command resumes it.")
    ] = Path("humaneval.db"),
    samples: Annotated[
        int,
        declare_option("--samples", "Samples of each problem.", short="-n", min=1),
    ] = 1,
    ks: Annotated[str, typer.Option("-k", help="Values of k in pass@k, separated by commas.")] = "1,10,100",
    temperature: Annotated[
        str, declare_option("--temperature", "Temperatures, separated by commas.")
    ] = "0.2",
    solutions: Annotated[
        Path | None,
        declare_option("--solutions", "Score the solutions of this file (JSON lines); ask no model."),
    ] = None,
    judging: JudgingFlags = JudgingFlags(),
    source: ProblemFlags = ProblemFlags(),
    spending: SpendingFlags = SpendingFlags(),
    forecast: Annotated[
        bool, declare_option("--forecast", "Estimate the cost, without any request.")
    ] = False,
    retry_failed: Annotated[bool, declare_option("--retry-failed", "Ask again for failed samples.")] = False,
    as_json: Annotated[bool, declare_option("--json", "Write the score as JSON.")] = False,
) -> None:
    """Measure how often a model's code passes the checks of HumanEval, or of your own problems."""
    wanted = _read_list("-k", ks, int, 1)
    chosen = choose_problems(source.problems, source.plus)[: source.limit]
    if solutions is not None:
        if model is not None:
            raise InputError(
                "With --solutions no model is asked.", where="--model", next="Leave out one of them."
            )
        choose_tier()
        found = read_solutions(solutions, chosen)
        task = _make_scoring(wanted, judging, solutions, as_json=as_json)
        run_async(_score(found, task), resume="The same command resumes.")
    temperatures = _read_list("--temperature", temperature, float, 0)
    order = build_run_order(
        build_recipe("humaneval", chosen, temperatures, samples),
        run_file,
        model,
        {},
        limit=None,
        budget=None if forecast else spending.budget,
        options=GenerateOptions(
            seed=spending.seed,
            concurrency=spending.concurrency,
            max_tokens=spending.max_tokens,
            price=spending.price,
            base_url=spending.base_url,
            retry_failed=retry_failed,
        ),
    )
    order = replace(order, access=show_model_progress(order.access))
    if forecast:
        run_async(_forecast(order, as_json=as_json), resume="Nothing was spent.")
    # Before anything is spent: without a sandbox nothing could be judged.
    choose_tier()
    task = _make_scoring(wanted, judging, run_file, as_json=as_json)
    stop_control = StopControl()
    run_async(
        _generate_and_score(order, chosen, task, stop_control),
        resume="All results so far are stored; the same command resumes.",
        stop_control=stop_control,
    )


@dataclass(frozen=True, slots=True)
class _Scoring:
    """How to judge and what to report."""

    ks: Sequence[int]
    out: Path
    limits: Limits
    workers: int
    as_json: bool


def _make_scoring(ks: Sequence[int], flags: JudgingFlags, source: Path, *, as_json: bool) -> _Scoring:
    out = flags.out or name_verdict_file(source)
    check_verdicts(out)
    return _Scoring(ks, out, Limits(cpu=flags.cpu), flags.workers or WORKERS, as_json)


def _read_list(option: str, text: str, kind: type[Number], least: Number) -> list[Number]:
    """Return the numbers of an option, each once.

    Raises:
        InputError: one is not a number, or too small.
    """
    try:
        numbers = [kind(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(least <= number < 1_000_000 for number in numbers):
        raise InputError(
            f"{text!r} is not a list of numbers from {least}.",
            where=option,
            next="Write them as in 1,10,100.",
        )
    return list(dict.fromkeys(numbers))


async def _forecast(order: RunOrder, *, as_json: bool) -> int:
    show_forecast(await forecast_run(order), json=as_json)
    return 0


async def _generate_and_score(
    order: RunOrder, problems: Sequence[Problem], task: _Scoring, stop_control: StopControl
) -> int:
    code = await watch_run(
        order, choose_progress_view(json=False, quiet=task.as_json, noun="task"), stop_control
    )
    stop_control.stop = None
    found = await read_run(order.run, problems, order.plan.recipe.size)
    if not found.solutions:
        raise InputError(
            "The run has no sample yet.",
            where=str(order.run),
            next="`bactrian failures RUN` shows the reasons.",
        )
    return max(code, await _score(found, task))


async def _score(found: SolutionSet, task: _Scoring) -> int:
    """Judge, print the score, and return the exit code."""
    if not os.access(task.out.absolute().parent, os.W_OK):
        raise InputError(
            "This folder cannot be written.", where=str(task.out), next="Name another file with --out."
        )
    verdicts = VerdictFile(task.out)
    with JudgingView(len(found.solutions), quiet=task.as_json) as view:
        judged = await asyncio.to_thread(
            judge_solutions,
            found.solutions,
            verdicts,
            task.limits,
            workers=task.workers,
            on_verdict=view.add,
        )
    score = compute_score(found, judged, task.ks)
    if task.as_json:
        print(json.dumps({**score.to_json(), "verdicts": str(task.out)}))
    else:
        show_score(score, task.out)
    return 0
