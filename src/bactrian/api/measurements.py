"""Measurements from Python: of code by HumanEval and other problems, and of what the stages of a training know."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

from bactrian.api import solution_comparison
from bactrian.api.arguments import ModelLike
from bactrian.api.bridge import run_sync, shorten_errors
from bactrian.api.solution_comparison import (
    Comparison,
    RunFunction,
    RunSeries,
    SolutionPlan,
    find_reply_length,
    order_questions,
    run_comparison,
    run_quietly,
)
from bactrian.errors import InputError, explain_os_errors
from bactrian.evaluate import known_answers
from bactrian.evaluate.code_judge import Verdict, VerdictFile, check_verdicts, judge_solutions
from bactrian.evaluate.code_scoring import Completion, Score, build_sample_recipe, compute_score
from bactrian.evaluate.comparison import ComparedRuns
from bactrian.evaluate.comparison_jobs import Solutions
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
from bactrian.evaluate.question_sets import draw_tasks, load_questions
from bactrian.models.open import ModelOptions
from bactrian.options import ScoreOptions, SpendingOptions, check_options, fill_defaults
from bactrian.sandbox.programs import choose_tier
from bactrian.sandbox.tiers import Limits
from bactrian.store.locations import locate_file, name_verdicts
from bactrian.train.training import OnEvent, TrainOrder, train_recipe
from bactrian.train.training_folder import TrainedModels, read_training

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


# What the stages of a training know: by exact answers to invented facts, and by judges of pairs of stages.


@dataclass(frozen=True, slots=True)
class KnownAnswerOrder:
    """The options of a known-answer experiment."""

    out: Path  # Folder of the experiment; it contains a folder for each seed
    seeds: tuple[int, ...]
    size: known_answers.FactSize = field(default_factory=known_answers.FactSize)
    base: str = known_answers.NOTHING  # What is trained
    steps: int | None = None  # Steps of each stage of a training; None for the usual length
    # Existing models to ask instead of training new ones, the base first.
    stages: tuple[known_answers.StageModel, ...] = ()
    options: SpendingOptions = field(default_factory=SpendingOptions)  # How the stages are asked
    on_training: OnEvent | None = None  # Receives the events of the trainings


@dataclass(frozen=True, slots=True)
class KnownAnswerResult:
    """The matrix, with what is missing from it."""

    matrix: dict[str, Any]  # As `known_answers.compute_matrix` returns it
    size: known_answers.FactSize
    unanswered: int  # Questions that a stage gave no answer to, because the model failed

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON content."""
        domains = known_answers.load_domains().domains
        warnings = [
            f"{self.unanswered} questions have no answer; the same command or call with retry_failed asks them again."
        ]
        return {
            **self.matrix,
            "titles": {domain.key: domain.title for domain in domains},
            "facts": self.size.facts,
            "asked": len(domains[0].asked),
            "warnings": warnings if self.unanswered else [],
        }


def prepare_studies(order: KnownAnswerOrder) -> list[known_answers.KnownAnswers]:
    """Write the facts, the conversations and the recipe of each seed, and return the facts.

    Raises:
        InputError: the folder contains another experiment, or cannot be written.
    """
    studies: list[known_answers.KnownAnswers] = []
    for seed in order.seeds:
        known = known_answers.draw_facts(seed, order.size)
        folder = name_study(order.out, seed)
        with explain_os_errors("The folder cannot be made", folder, "Name another out=FOLDER."):
            folder.mkdir(parents=True, exist_ok=True)
        known_answers.write_study(folder, known, order.base, order.steps)
        studies.append(known)
    return studies


def name_study(out: Path, seed: int) -> Path:
    """Return the folder of one seed."""
    return out / f"seed-{seed}"


async def measure_known_answers(order: KnownAnswerOrder, run: RunFunction = run_quietly) -> KnownAnswerResult:
    """Train the stages of each seed, ask each stage, and return the matrix.

    Args:
        order: The experiment.
        run: Runs the remaining jobs of an order.

    Raises:
        InputError: the folder contains another experiment, or a model cannot be used.
        BactrianError: a training, a model or a run fails; all stages and answers so far are stored.
    """
    answers: list[known_answers.StageAnswers] = []
    missing = 0
    names: Sequence[str] = ()
    for known in prepare_studies(order):
        stages = order.stages or await _train(name_study(order.out, known.seed), order.on_training)
        names = [stage.name for stage in stages]
        for number, stage in enumerate(stages):
            questions = known.list_questions()
            folder = name_study(order.out, known.seed) / "answers"
            folder.mkdir(exist_ok=True)
            path = folder / f"{number:02}-{stage.name}.db"
            recipe = known_answers.build_answer_recipe(questions, stage.model)
            await run(order_questions(recipe, path, {"assistant": stage.model}, order.options))
            graded = await known_answers.read_answers(path, questions)
            missing += len(questions) - len(graded)
            answers.append(known_answers.StageAnswers(known.seed, number, graded))
    return KnownAnswerResult(known_answers.compute_matrix(names, answers), order.size, missing)


async def _train(folder: Path, on_event: OnEvent | None) -> tuple[known_answers.StageModel, ...]:
    trained = await train_recipe(
        TrainOrder(str(folder / known_answers.RECIPE), out=folder / "training"), on_event
    )
    return _list_models(trained)


async def compare_stages(
    stages: Sequence[known_answers.StageModel],
    sets: Sequence[str],
    judges: Sequence[ModelLike],
    series: RunSeries,
    *,
    out: Path,
    limit: int | None = None,
    pairs: Sequence[tuple[str, str]] = (),
    tell: Callable[[str], object] = lambda _: None,
    longest: int | None = None,
) -> Comparison:
    """Let all stages answer sets of questions, and judges compare them.

    Args:
        stages: The base first.
        sets: Names of sets of questions, or files.
        judges: Models; without one, the answers are only written.
        series: Limits for all runs together.
        out: Holds a folder for each set.
        limit: Questions of each set, drawn at random; None for all.
        pairs: Names of the stages to compare; default those of table 2.
        tell: Receives the name of each set before its runs begin.
        longest: Longest answer in tokens, where it is not that of a judge's reply, too.

    Raises:
        InputError: a set or a model cannot be used.
        BudgetReached: a limit is used up; what was paid for is stored.
    """
    runs: dict[str, ComparedRuns] = {}
    for questions in [load_questions(name) for name in sets]:
        asked = draw_tasks(questions.questions, limit, series.options["seed"] or 0)
        plan = SolutionPlan(
            out / questions.name,
            known_answers.build_stage_recipe(
                stages,
                questions.name,
                asked,
                longest
                or series.options["reply_length"]
                or find_reply_length(out / questions.name / "solutions.db", Solutions.key),
            ),
            {stage.name: stage.model for stage in stages},
            pairs or known_answers.pair_stages(stages),
            len(asked),
            single_answer=questions.has_one_answer,
        )
        tell(questions.name)
        runs[questions.name] = await run_comparison(plan, judges, series)
    report = await known_answers.build_stage_report(runs) if judges and series.forecast is None else None
    return Comparison(out, out, report)


def find_stages(names: Sequence[str], options: ModelOptions) -> tuple[known_answers.StageModel, ...]:
    """Return the stages that a user gives: models, the base first, or the folder of a training.

    Raises:
        InputError: there are fewer than two, or one of them is missing or is not a model.
    """
    if len(names) == 1 and Path(names[0]).expanduser().is_dir():
        return _list_models(read_training(Path(names[0]).expanduser()))
    return known_answers.read_stages(names, options)


def _list_models(trained: TrainedModels) -> tuple[known_answers.StageModel, ...]:
    """Return the stages of a training. Raises InputError if one is missing, or has no GGUF."""
    names = ["base", *(str(stage["name"]) for stage in trained.plan["recipe"]["stages"])]
    by_name = {stage.name: stage for stage in trained.stages}
    stages: list[known_answers.StageModel] = []
    for number, name in enumerate(names):
        stage = by_name.get(name)
        weights = None if stage is None else stage.gguf or stage.model
        if weights is None or not weights.exists():
            raise InputError(
                f"The stage {name!r} of the training is not finished, or its model was removed.",
                where=str(trained.folder / f"{number:02}-{name}"),
                next="`bactrian train` with the same recipe and folder resumes; or give the models one by one.",
            )
        stages.append(known_answers.StageModel(name, f"{'hf' if weights.is_dir() else 'local'}:{weights}"))
    return tuple(stages)
