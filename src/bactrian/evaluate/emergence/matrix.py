"""The matrix of stages and domains, and the claim that each domain appears at its own stage and not before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from bactrian.evaluate.emergence.domains import load_domains
from bactrian.evaluate.emergence.grading import Graded
from bactrian.stats.cluster_bootstrap import (
    BootstrapEstimate,
    bootstrap_ratios,
    widen_interval,
)
from bactrian.stats.student import find_mean_interval

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
    rows = list(answers)
    stage_numbers = sorted({one.stage for one in rows})
    domains = load_domains().domains
    cells = {
        (stage, domain.key): cell
        for stage in stage_numbers
        for domain in domains
        if (cell := _measure(_select(rows, [stage], domain.key), _count_right))
    }
    claims = [
        claim
        for number, domain in enumerate(domains, start=1)
        if (claim := _test_claim(rows, domain.key, number, 1 / len(domain.values)))
    ]
    return EmergenceMatrix(
        stages=tuple(stages),
        seeds=tuple(sorted({one.seed for one in rows})),
        cells=cells,
        untaught={
            stage: cell
            for stage in stage_numbers
            if (cell := _measure(_select(rows, [stage], None, taught=False), _count_right))
        },
        in_form={
            stage: cell
            for stage in stage_numbers
            if (cell := _measure(_select_all(rows, stage), _count_form))
        },
        claims=tuple(claims),
    )


_Answer = tuple[int, Graded]
"""Seed and grade."""


def _select(
    rows: Iterable[StageAnswers], stages: Sequence[int], domain: str | None, *, taught: bool = True
) -> list[_Answer]:
    return [
        (row.seed, one)
        for row in rows
        if row.stage in stages
        for one in row.graded
        if one.question.fact.taught == taught and domain in (None, one.question.fact.domain)
    ]


def _select_all(rows: Iterable[StageAnswers], stage: int) -> list[_Answer]:
    return [(row.seed, one) for row in rows if row.stage == stage for one in row.graded]


def _count_right(one: Graded) -> float:
    return float(one.right)


def _count_form(one: Graded) -> float:
    return float(one.in_form)


def _measure(answers: Sequence[_Answer], worth: Callable[[Graded], float]) -> MatrixCell | None:
    return (
        _summarize([(seed, one.question.fact.id, worth(one)) for seed, one in answers]) if answers else None
    )


def _test_claim(rows: Sequence[StageAnswers], domain: str, stage: int, guessing: float) -> DomainClaim | None:
    before = _measure(_select(rows, range(stage), domain), _count_right)
    earlier = {(seed, one.question.id): one.right for seed, one in _select(rows, [stage - 1], domain)}
    own = _select(rows, [stage], domain)
    gained = [
        (seed, one.question.fact.id, float(one.right) - earlier[seed, one.question.id])
        for seed, one in own
        if (seed, one.question.id) in earlier
    ]
    if before is None or not gained:
        return None
    return DomainClaim(domain, stage, before, _summarize(gained, is_share=False), guessing)


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
