"""What the stages of a training know: the comparison that is planned, the matrix of domains, and table 2's report."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean

from bactrian.errors import InputError
from bactrian.evaluate.comparison import (
    ComparedRuns,
    Json,
    build_comparison_report,
    estimate_strengths,
    load_paper,
)
from bactrian.evaluate.comparison_jobs import Solutions, build_solution_recipe
from bactrian.evaluate.known_answers import Graded, load_domains
from bactrian.evaluate.verdicts import JudgedTask, read_judged_tasks
from bactrian.models.local.local_model import identify_weights
from bactrian.models.open import ModelOptions, open_model
from bactrian.recipes.schema import Recipe
from bactrian.stats.clusters import estimate_ratio
from bactrian.stats.intervals import find_mean_interval

GAIN = 0.5  # Least gain, at its own stage, of a domain that appears
MARGIN = 0.25  # A domain is absent while the upper end of its interval is at most guessing plus this


@dataclass(frozen=True, slots=True)
class StageAnswers:
    """The graded answers of one stage in one seed."""

    seed: int
    stage: int  # 0 is the base model
    graded: tuple[Graded, ...]


def compute_matrix(stages: Sequence[str], answers: Iterable[StageAnswers]) -> Json:
    """Return what each of ``stages`` knows; the first is the base model, and domain k is added at stage k.

    The stages of a seed answer the same questions. A seed with fewer stages counts where it has answers.
    A claim on a domain is that it appears at its own stage and not before.
    """
    grades = [(answer.seed, answer.stage, grade) for answer in answers for grade in answer.graded]
    # By stage and domain; the empty domain is that of the facts that were not taught.
    cells: defaultdict[tuple[int, str], list[tuple[int, Graded]]] = defaultdict(list)
    for seed, stage, grade in grades:
        fact = grade.question.fact
        cells[stage, fact.domain if fact.taught else ""].append((seed, grade))
    domains = load_domains().domains
    keys = [domain.key for domain in domains]
    rows: list[Json] = [
        {
            "stage": name,
            "domains": {key: _measure(cells[number, key]) for key in keys if cells[number, key]},
            "untaught": _measure(cells[number, ""]),
            "in_form": _measure(
                [of for key in (*keys, "") for of in cells[number, key]], lambda grade: grade.in_form
            ),
        }
        for number, name in enumerate(stages)
    ]
    claims: list[Json] = []
    for number, domain in enumerate(domains, 1):
        before = _measure([of for stage in range(number) for of in cells[stage, domain.key]])
        earlier = {(seed, of.question.id): of.right for seed, of in cells[number - 1, domain.key]}
        gained = [
            (seed, of.question.fact.id, float(of.right) - earlier[seed, of.question.id])
            for seed, of in cells[number, domain.key]
            if (seed, of.question.id) in earlier
        ]
        if before is None or not gained:
            continue
        gain, guessing = _summarize(gained, is_share=False), 1 / len(domain.values)
        appears = gain["low"] is not None and gain["value"] >= GAIN and gain["low"] > 0
        is_absent = before["high"] is not None and before["high"] <= guessing + MARGIN
        claims.append(
            {
                "domain": domain.key,
                "stage": number,
                "before": before,
                "gain": gain,
                "guessing": guessing,
                "appears": appears,
                "absent_before": is_absent,
                "holds": appears and is_absent,
            }
        )
    return {
        "stages": rows,
        "seeds": sorted({seed for seed, _, _ in grades}),
        "claims": claims,
        "holds": bool(claims) and all(claim["holds"] for claim in claims),
    }


def _measure(
    graded: Sequence[tuple[int, Graded]], worth: Callable[[Graded], bool] = lambda grade: grade.right
) -> Json | None:
    """Return the share of these answers, each with its seed, that are right or ``worth`` something; None for none."""
    values = [(seed, grade.question.fact.id, float(worth(grade))) for seed, grade in graded]
    return _summarize(values) if values else None


def _summarize(values: Sequence[tuple[int, str, float]], *, is_share: bool = True) -> Json:
    """Return the mean of ``values`` (seed, fact, value) with two intervals, both of 95 %.

    ``low`` and ``high`` are those of other facts: over facts, with all wordings of a fact together.
    The other intervals are those of other seeds (Student's t), each with its own facts and training; None for one seed.
    """
    facts: defaultdict[tuple[int, str], list[float]] = defaultdict(list)
    seeds: defaultdict[int, list[float]] = defaultdict(list)
    for seed, fact, value in values:
        facts[seed, fact].append(value)
        seeds[seed].append(value)
    share = estimate_ratio(
        ((sum(of), float(len(of))) for of in facts.values()), "share" if is_share else None, name="fact"
    )
    means = [fmean(of) for _, of in sorted(seeds.items())]
    low, high = find_mean_interval(means) or (None, None)
    return {
        **share.to_json(),
        "low_over_seeds": None if low is None else max(0.0 if is_share else -1.0, low),
        "high_over_seeds": None if high is None else min(1.0, high),
        "by_seed": means,
        "questions": len(values),
    }


# Plans the comparison of a training's stages: the pairs to compare, and the recipe of their answers.


_NAMED = re.compile(r"([a-z0-9][a-z0-9-]{0,63})=(.+)", re.S)


@dataclass(frozen=True, slots=True)
class StageModel:
    """A stage of a training, as a model that can be asked."""

    name: str
    model: str  # As `--model` names it
    label: str = ""  # What a report calls it, where its name does not tell

    @property
    def title(self) -> str:
        """What a report calls it."""
        return self.label or (
            "Base" if self.name == "base" else load_paper()["stages"].get(self.name, f"+ {self.name}")
        )


def read_stages(texts: Sequence[str], options: ModelOptions) -> tuple[StageModel, ...]:
    """Return the stages that a user gives as ``MODEL`` or ``NAME=MODEL``, the base first.

    Stages without a name are called as those of the paper, in their order.

    Raises:
        InputError: there are fewer than two, two have the same name, or a name is not that of a model.
    """
    usual = list(load_paper()["stages"])
    stages: list[StageModel] = []
    for number, text in enumerate(texts):
        named = _NAMED.fullmatch(text)
        name = usual[number] if number < len(usual) else f"stage-{number}"
        stages.append(StageModel(named[1], named[2]) if named else StageModel(name, text))
    names = [stage.name for stage in stages]
    if len(names) < 2 or len(set(names)) < len(names):
        few = "One stage alone adds nothing." if names else "There is nothing to ask."
        problem = "Two stages have the same name." if len(names) > 1 else few
        raise InputError(
            problem,
            where="STAGES",
            next=f"Give the base and the stages after it, in order, as MODEL or NAME=MODEL; or known_answers=True. "
            f"Usual names: {', '.join(usual)}.",
        )
    for stage in stages:
        open_model(stage.model, options)
    return tuple(stages)


def pair_stages(stages: Sequence[StageModel]) -> list[tuple[str, str]]:
    """Return the pairs of table 2: each stage with the stage before, and the last with the base."""
    names = [stage.name for stage in stages]
    pairs = list(pairwise(names))
    return pairs if len(names) == 2 else [*pairs, (names[0], names[-1])]


def build_stage_recipe(
    stages: Sequence[StageModel], question_set: str, questions: Sequence[str], max_tokens: int | None
) -> Recipe:
    """Return the recipe in which each stage answers each question, in at most ``max_tokens`` tokens.

    Raises:
        InputError: the weights of a local model cannot be read.
    """
    hashes = {stage.name: identify_weights(stage.model) for stage in stages}
    spec = Solutions(
        ways=tuple(stage.name for stage in stages),
        titles={stage.name: stage.title for stage in stages},
        weights={name: weights for name, weights in hashes.items() if weights} or None,
        question_set=question_set,
        task_label="question",
        max_tokens=max_tokens,
    )
    return build_solution_recipe(questions, spec)


# The report of table 2: stages of a training beside each other, on several sets of questions.


async def build_stage_report(sets: Mapping[str, ComparedRuns]) -> Json:
    """Return the report on the runs of each set of questions, by the set's name.

    Raises:
        BactrianError: no verdict was given yet on a set.
        StoreError: a run cannot be read.
    """
    reports = {name: await build_comparison_report(of) for name, of in sets.items()}
    titles: Mapping[str, str] = next(iter(reports.values()))["titles"]
    # The judged questions of all sets together, by judge and pair. A question keeps the name of its set.
    pooled: dict[str, dict[tuple[str, str], list[JudgedTask]]] = {}
    for name, runs in sets.items():
        for judge, verdicts in runs.verdicts.items():
            for pair, tasks in (await read_judged_tasks(runs.solutions, *verdicts)).items():
                together = pooled.setdefault(judge, {}).setdefault(pair, [])
                together.extend(replace(task, task=f"{name} {task.task}") for task in tasks)
    return {
        "rows": [
            _describe_row(name, comparison, titles)
            for name, report in reports.items()
            for comparison in report["comparisons"]
        ],
        "titles": titles,
        "strengths": estimate_strengths(pooled),
        "sets": reports,
        "warnings": [f"{name}: {warning}" for name, of in reports.items() for warning in of["warnings"]],
    }


def _describe_row(questions: str, of: Json, titles: Mapping[str, str]) -> Json:
    """Return one row of table 2: counts of questions, with the paper's where it has the same pair."""
    rate, counts = of["shares"]["win_rate"], of["counts"]
    paper = next(
        (row["sets"].get(questions) for row in load_paper()["pairs"] if row["pair"] == of["pair"]), None
    )
    # The rate is that of the second stage: its ends are swapped.
    second_rate = {
        key: None if rate[end] is None else 1 - rate[end]
        for key, end in (("value", "value"), ("low", "high"), ("high", "low"))
    }
    return {
        "questions": questions,
        "judge": of["judge"],
        "first": titles[of["pair"][0]],
        "second": titles[of["pair"][1]],
        "draw": counts["draw"],
        "first_wins": counts["win"],
        "second_wins": counts["loss"],
        "unreadable": counts["unreadable"],
        "draws": of["draws"],
        "verdict": of["verdict"],
        "second_rate": second_rate,
        "paper": paper and dict(zip(("draw", "first_wins", "second_wins"), paper, strict=True)),
    }
