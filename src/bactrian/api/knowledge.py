"""What the stages of a training know: by exact answers to invented facts, and by judges of pairs of stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bactrian.api.arguments import ModelLike
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
from bactrian.evaluate.comparison import ComparedRuns
from bactrian.evaluate.comparison_jobs import Solutions
from bactrian.evaluate.question_sets import draw_tasks, load_questions
from bactrian.evaluate.stages import (
    StageAnswers,
    StageModel,
    build_stage_recipe,
    build_stage_report,
    compute_matrix,
    pair_stages,
    read_stages,
)
from bactrian.models.open import ModelOptions
from bactrian.options import SpendingOptions
from bactrian.train.training import OnEvent, TrainOrder, train_recipe
from bactrian.train.training_folder import TrainedModels, read_training


@dataclass(frozen=True, slots=True)
class KnownAnswerOrder:
    """The options of a known-answer experiment."""

    out: Path  # Folder of the experiment; it contains a folder for each seed
    seeds: tuple[int, ...]
    size: known_answers.FactSize = field(default_factory=known_answers.FactSize)
    base: str = known_answers.NOTHING  # What is trained
    steps: int | None = None  # Steps of each stage of a training; None for the usual length
    # Existing models to ask instead of training new ones, the base first.
    stages: tuple[StageModel, ...] = ()
    options: SpendingOptions = field(default_factory=SpendingOptions)  # How the stages are asked
    on_training: OnEvent | None = None  # Receives the events of the trainings


@dataclass(frozen=True, slots=True)
class KnownAnswerResult:
    """The matrix, with what is missing from it."""

    matrix: dict[str, Any]  # As `compute_matrix` returns it
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
    answers: list[StageAnswers] = []
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
            answers.append(StageAnswers(known.seed, number, graded))
    return KnownAnswerResult(compute_matrix(names, answers), order.size, missing)


async def _train(folder: Path, on_event: OnEvent | None) -> tuple[StageModel, ...]:
    trained = await train_recipe(
        TrainOrder(str(folder / known_answers.RECIPE), out=folder / "training"), on_event
    )
    return _list_models(trained)


async def compare_stages(
    stages: Sequence[StageModel],
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
            build_stage_recipe(
                stages,
                questions.name,
                asked,
                longest
                or series.options["reply_length"]
                or find_reply_length(out / questions.name / "solutions.db", Solutions.key),
            ),
            {stage.name: stage.model for stage in stages},
            pairs or pair_stages(stages),
            len(asked),
            single_answer=questions.has_one_answer,
        )
        tell(questions.name)
        runs[questions.name] = await run_comparison(plan, judges, series)
    report = await build_stage_report(runs) if judges and series.forecast is None else None
    return Comparison(out, out, report)


def find_stages(names: Sequence[str], options: ModelOptions) -> tuple[StageModel, ...]:
    """Return the stages that a user gives: models, the base first, or the folder of a training.

    Raises:
        InputError: there are fewer than two, or one of them is missing or is not a model.
    """
    if len(names) == 1 and Path(names[0]).expanduser().is_dir():
        return _list_models(read_training(Path(names[0]).expanduser()))
    return read_stages(names, options)


def _list_models(trained: TrainedModels) -> tuple[StageModel, ...]:
    """Return the stages of a training. Raises InputError if one is missing, or has no GGUF."""
    names = ["base", *(str(stage["name"]) for stage in trained.plan["recipe"]["stages"])]
    by_name = {stage.name: stage for stage in trained.stages}
    stages: list[StageModel] = []
    for number, name in enumerate(names):
        stage = by_name.get(name)
        weights = None if stage is None else stage.gguf or stage.model
        if weights is None or not weights.exists():
            raise InputError(
                f"The stage {name!r} of the training is not finished, or its model was removed.",
                where=str(trained.folder / f"{number:02}-{name}"),
                next="`bactrian train` with the same recipe and folder resumes; or give the models one by one.",
            )
        stages.append(StageModel(name, f"{'hf' if weights.is_dir() else 'local'}:{weights}"))
    return tuple(stages)
