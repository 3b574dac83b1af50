"""The matrix of stages and domains, and the claim that each domain appears at its own stage and not before."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Any

from bactrian.errors import InputError
from bactrian.evaluate.comparison_jobs import Solutions, build_solution_recipe
from bactrian.evaluate.comparison_report import (
    PAPER_NAMES,
    STAGES,
    TABLE_2,
    ComparedRuns,
    build_comparison_report,
    estimate_strengths,
)
from bactrian.evaluate.known_answers import Graded, load_domains
from bactrian.evaluate.verdicts import JudgedTask, read_judged_tasks
from bactrian.models.local.local_model import identify_weights
from bactrian.models.open import ModelOptions, open_model
from bactrian.recipes.schema import Recipe
from bactrian.stats.bootstrap import (
    BootstrapEstimate,
    bootstrap_ratios,
    widen_interval,
)
from bactrian.stats.intervals import find_mean_interval

GAIN = 0.5
"""Least gain, at its own stage, of a domain that appears."""
MARGIN = 0.25
"""A domain is absent while the upper end of its interval is at most guessing plus this."""


@dataclass(frozen=True, slots=True)
class StageAnswers:
    """The graded answers of one stage in one seed."""

    seed: int
    stage: int
    """0 is the base model."""
    graded: tuple[Graded, ...]


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """The share of right answers of one stage to the questions of one domain."""

    over_questions: BootstrapEstimate
    """The interval is that of other facts: by bootstrap over facts, with all wordings of a fact together."""
    over_seeds: tuple[float, float] | None
    """The 95 % interval of other seeds (Student's t), each with its own facts and training; None for fewer than two."""
    by_seed: tuple[float, ...]
    questions: int

    def to_json(self) -> dict[str, Any]:
        """Return the cell as JSON content."""
        return {
            **self.over_questions.to_json(),
            "low_over_seeds": self.over_seeds[0] if self.over_seeds else None,
            "high_over_seeds": self.over_seeds[1] if self.over_seeds else None,
            "by_seed": list(self.by_seed),
            "questions": self.questions,
        }


@dataclass(frozen=True, slots=True)
class DomainClaim:
    """The claim on one domain: it appears at its own stage and not before."""

    domain: str
    stage: int
    before: MatrixCell
    """All stages before its own together."""
    gain: MatrixCell
    """The share at its own stage minus that at the stage before, on the same questions."""
    guessing: float
    """The share that a guess among the domain's answers gets right."""

    @property
    def appears(self) -> bool:
        """True if the gain is at least a half, and its interval lies above 0."""
        value, low = self.gain.over_questions.value, self.gain.over_questions.low
        return value is not None and low is not None and value >= GAIN and low > 0

    @property
    def is_absent_before(self) -> bool:
        """True if the share before is at most that of guessing and a margin, up to the upper end of its interval."""
        high = self.before.over_questions.high
        return high is not None and high <= self.guessing + MARGIN

    @property
    def holds(self) -> bool:
        """True if both are so."""
        return self.appears and self.is_absent_before

    def to_json(self) -> dict[str, Any]:
        """Return the claim as JSON content."""
        return {
            "domain": self.domain,
            "stage": self.stage,
            "before": self.before.to_json(),
            "gain": self.gain.to_json(),
            "guessing": self.guessing,
            "appears": self.appears,
            "absent_before": self.is_absent_before,
            "holds": self.holds,
        }


@dataclass(frozen=True, slots=True)
class EmergenceMatrix:
    """What each stage knows."""

    stages: tuple[str, ...]
    seeds: tuple[int, ...]
    cells: Mapping[tuple[int, str], MatrixCell]
    """By stage and domain."""
    untaught: Mapping[int, MatrixCell]
    """By stage: facts of all domains that are never taught."""
    in_form: Mapping[int, MatrixCell]
    """By stage: replies in the form of the inception protocol, to all questions."""
    claims: tuple[DomainClaim, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the matrix as JSON content."""
        domains = [domain.key for domain in load_domains().domains]
        return {
            "stages": [
                {
                    "stage": name,
                    "domains": {
                        key: self.cells[number, key].to_json()
                        for key in domains
                        if (number, key) in self.cells
                    },
                    "untaught": self.untaught[number].to_json() if number in self.untaught else None,
                    "in_form": self.in_form[number].to_json() if number in self.in_form else None,
                }
                for number, name in enumerate(self.stages)
            ],
            "seeds": list(self.seeds),
            "claims": [claim.to_json() for claim in self.claims],
            "holds": bool(self.claims) and all(claim.holds for claim in self.claims),
        }


def compute_matrix(stages: Sequence[str], answers: Iterable[StageAnswers]) -> EmergenceMatrix:
    """Return the matrix of ``stages``; the first one is the base model, and domain k is added at stage k.

    The stages of a seed answer the same questions. A seed with fewer stages counts where it has answers.
    """
    grades = [(answer.seed, answer.stage, grade) for answer in answers for grade in answer.graded]
    numbers = sorted({stage for _, stage, _ in grades})
    domains = load_domains().domains

    def measure(
        wanted: Callable[[int, Graded], bool], worth: Callable[[Graded], bool] = lambda grade: grade.right
    ) -> MatrixCell | None:
        values = [
            (seed, grade.question.fact.id, float(worth(grade)))
            for seed, stage, grade in grades
            if wanted(stage, grade)
        ]
        return _summarize(values) if values else None

    def is_taught(grade: Graded, domain: str) -> bool:
        return grade.question.fact.taught and grade.question.fact.domain == domain

    def test_claim(domain: str, own_stage: int, guessing: float) -> DomainClaim | None:
        before = measure(lambda stage, grade: stage < own_stage and is_taught(grade, domain))
        earlier = {
            (seed, grade.question.id): grade.right for seed, stage, grade in grades if stage == own_stage - 1
        }
        gained = [
            (seed, grade.question.fact.id, float(grade.right) - earlier[seed, grade.question.id])
            for seed, stage, grade in grades
            if stage == own_stage and is_taught(grade, domain) and (seed, grade.question.id) in earlier
        ]
        if before is None or not gained:
            return None
        return DomainClaim(domain, own_stage, before, _summarize(gained, is_share=False), guessing)

    cells: dict[tuple[int, str], MatrixCell] = {}
    untaught: dict[int, MatrixCell] = {}
    in_form: dict[int, MatrixCell] = {}
    for number in numbers:
        for domain in domains:
            key = domain.key
            if cell := measure(lambda stage, grade, n=number, key=key: stage == n and is_taught(grade, key)):
                cells[number, key] = cell
        if cell := measure(lambda stage, grade, n=number: stage == n and not grade.question.fact.taught):
            untaught[number] = cell
        if cell := measure(lambda stage, _, n=number: stage == n, lambda grade: grade.in_form):
            in_form[number] = cell
    claims = [
        test_claim(domain.key, number, 1 / len(domain.values)) for number, domain in enumerate(domains, 1)
    ]
    return EmergenceMatrix(
        tuple(stages),
        tuple(sorted({seed for seed, _, _ in grades})),
        cells,
        untaught,
        in_form,
        tuple(claim for claim in claims if claim),
    )


def _summarize(values: Sequence[tuple[int, str, float]], *, is_share: bool = True) -> MatrixCell:
    """Return the mean of ``values`` (seed, fact, value) with its intervals."""
    facts: defaultdict[tuple[int, str], list[float]] = defaultdict(list)
    seeds: defaultdict[int, list[float]] = defaultdict(list)
    for seed, fact, value in values:
        facts[seed, fact].append(value)
        seeds[seed].append(value)
    clusters = [[(sum(of), float(len(of)))] for of in facts.values()]
    (found,) = bootstrap_ratios(clusters)
    if is_share or found.value in (0.0, 1.0):
        # A fact is the unit: its wordings are not independent, so the count is that of facts.
        found = widen_interval(found, round((found.value or 0.0) * len(clusters)), len(clusters))
    means = tuple(fmean(of) for _, of in sorted(seeds.items()))
    over_seeds = find_mean_interval(means)
    if over_seeds is not None:
        lowest = 0.0 if is_share else -1.0
        over_seeds = max(lowest, over_seeds[0]), min(1.0, over_seeds[1])
    return MatrixCell(found, over_seeds, means, len(values))


# Plans the comparison of a training's stages: the pairs to compare, and the recipe of their answers.


_NAMED = re.compile(r"([a-z0-9][a-z0-9-]{0,63})=(.+)", re.S)


@dataclass(frozen=True, slots=True)
class StageModel:
    """A stage of a training, as a model that can be asked."""

    name: str
    model: str
    """As ``--model`` names it."""

    @property
    def title(self) -> str:
        """What a report calls it."""
        return "Base" if self.name == "base" else PAPER_NAMES.get(self.name, f"+ {self.name}")


def read_stages(given: Sequence[str], options: ModelOptions) -> tuple[StageModel, ...]:
    """Return the stages that a user gives as ``MODEL`` or ``NAME=MODEL``, the base first.

    Stages without a name are called as those of the paper, in their order.

    Raises:
        InputError: there are fewer than two, two have one name, or one is not a model.
    """
    stages: list[StageModel] = []
    for number, text in enumerate(given):
        named = _NAMED.fullmatch(text)
        usual = STAGES[number] if number < len(STAGES) else f"stage-{number}"
        stages.append(StageModel(named[1], named[2]) if named else StageModel(usual, text))
    names = [stage.name for stage in stages]
    if len(names) < 2 or len(set(names)) < len(names):
        few = "One stage alone adds nothing." if names else "There is nothing to ask."
        problem = "Two stages have one name." if len(names) > 1 else few
        raise InputError(
            problem,
            where="STAGES",
            next=f"Give the base and the stages after it, in order, as MODEL or NAME=MODEL; or --known-answers. "
            f"Usual names: {', '.join(STAGES)}.",
        )
    for stage in stages:
        open_model(stage.model, options)
    return tuple(stages)


def pair_stages(stages: Sequence[StageModel]) -> list[tuple[str, str]]:
    """Return the pairs of table 2: each stage with the one before, and the last one with the base."""
    names = [stage.name for stage in stages]
    pairs = list(pairwise(names))
    return pairs if len(names) == 2 else [*pairs, (names[0], names[-1])]


def build_stage_recipe(
    stages: Sequence[StageModel], question_set: str, questions: Sequence[str], max_tokens: int
) -> Recipe:
    """Return the recipe in which each stage answers each question, in at most ``max_tokens`` tokens.

    Raises:
        InputError: the weights of a local model cannot be read.
    """
    weights = {stage.name: found for stage in stages if (found := identify_weights(stage.model))}
    spec = Solutions(
        ways=tuple(stage.name for stage in stages),
        titles={stage.name: stage.title for stage in stages},
        weights=weights or None,
        question_set=question_set,
        task_label="question",
        max_tokens=max_tokens,
    )
    return build_solution_recipe(questions, spec)


# The report of table 2: stages of a training beside each other, on several sets of questions.


Json = dict[str, Any]


async def build_stage_report(sets: Mapping[str, ComparedRuns]) -> Json:
    """Return the report on the runs of each set of questions, by the set's name.

    Raises:
        BactrianError: no verdict was given yet on a set.
        StoreError: a run cannot be read.
    """
    reports = {name: await build_comparison_report(of) for name, of in sets.items()}
    rows = [
        _describe_row(name, comparison, report["titles"])
        for name, report in reports.items()
        for comparison in report["comparisons"]
    ]
    judges = list(next(iter(sets.values())).verdicts)
    pooled = {judge: await _pool(sets, judge) for judge in judges}
    return {
        "rows": rows,
        "titles": next(iter(reports.values()))["titles"],
        "strengths": {
            judge: estimate_strengths(of) for judge, of in pooled.items() if len(_list_stages(of)) > 2
        },
        "sets": reports,
        "warnings": [f"{name}: {warning}" for name, of in reports.items() for warning in of["warnings"]],
    }


def _describe_row(questions: str, of: Json, titles: Mapping[str, str]) -> Json:
    """Return one row of table 2: counts of questions, with the paper's where it has the same pair."""
    first, second = of["pair"]
    rate = of["shares"]["win_rate"]
    beside = [one for one in TABLE_2 if (one.first, one.second, one.questions) == (first, second, questions)]
    return {
        "questions": questions,
        "judge": of["judge"],
        "first": titles[first],
        "second": titles[second],
        "draw": of["counts"]["draw"],
        "first_wins": of["counts"]["win"],
        "second_wins": of["counts"]["loss"],
        "unreadable": of["counts"]["unreadable"],
        "draws": of["draws"],
        "second_rate": {
            "value": None if rate["value"] is None else 1 - rate["value"],
            "low": None if rate["high"] is None else 1 - rate["high"],
            "high": None if rate["low"] is None else 1 - rate["low"],
        },
        "paper": {
            "draw": beside[0].draw,
            "first_wins": beside[0].first_wins,
            "second_wins": beside[0].second_wins,
        }
        if beside
        else None,
    }


async def _pool(sets: Mapping[str, ComparedRuns], judge: str) -> dict[tuple[str, str], list[JudgedTask]]:
    """Return the judged questions of all sets together, by pair. A question keeps the name of its set."""
    pooled: dict[tuple[str, str], list[JudgedTask]] = {}
    for name, runs in sets.items():
        for pair, tasks in (await read_judged_tasks(runs.solutions, runs.verdicts[judge])).items():
            pooled.setdefault(pair, []).extend(replace(task, task=f"{name} {task.task}") for task in tasks)
    return pooled


def _list_stages(judged: Mapping[tuple[str, str], object]) -> set[str]:
    return {stage for pair in judged for stage in pair}
