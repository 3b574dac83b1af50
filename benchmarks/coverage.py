"""How often the 95 % intervals of reports hold the truth: ``python -m benchmarks.coverage [STUDIES]``.

Each cell simulates studies of a known truth, with fixed seeds, and computes the intervals as reports do. It shows the
share of the intervals that hold the truth, and in brackets the share of studies whose interval is withheld. The table
is that of docs/statistics.md; with 1,000 studies its figures err by up to 1.4 points.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from math import exp
from random import Random
from statistics import NormalDist

from bactrian.evaluate.code_scoring import estimate_pass
from bactrian.stats.clusters import ClusterEstimate, estimate_difference, estimate_ratio
from bactrian.stats.comparisons import Agreement, measure_alpha, measure_kappa
from bactrian.stats.intervals import Interval, PairedProportions, Proportion, Stratum, estimate_prevalence
from bactrian.stats.streaming import StreamingQuantiles

SIZES = (5, 10, 30, 100)
STUDIES = 1000
Ends = tuple[float | None, float | None]
Study = Callable[[Random, int], "Ends | Interval | ClusterEstimate | Agreement | None"]
"""Draws a study of a size and returns its interval."""


def rows() -> Iterator[tuple[str, float, Study]]:
    """Yield what is estimated, the truth, and a study."""
    for rate in (0.1, 0.5):
        yield (
            f"share of conversations, {100 * rate:.0f} %",
            rate,
            lambda draw, n, p=rate: draw_share(draw, n, p).interval,
        )
    yield (
        "difference of shares, 30 % and 50 %",
        0.2,
        study_two_shares,
    )
    yield "difference of shares on the same jobs", 0.0, study_pairs
    for rate, alike in ((0.02, 0.3), (0.1, 0.0), (0.1, 0.3), (0.5, 0.3)):
        name = f"share of turns, {100 * rate:.0f} %, turns of a conversation alike by {alike}"
        yield name, rate, lambda draw, n, p=rate, c=alike: estimate_ratio(draw_turns(draw, n, p, c))
    yield "mean messages, geometric", 20.0, lambda draw, n: mean(draw_geometric(draw, 0.05) for _ in range(n))
    for spread in (0.5, 1.0, 1.3):
        name, truth = f"mean tokens, lognormal, sigma {spread}", exp(spread**2 / 2)
        yield name, truth, lambda draw, n, s=spread: mean(draw.lognormvariate(0, s) for _ in range(n))
    others: tuple[tuple[str, float, Callable[[Random], float]], ...] = (
        ("exponential", 1.0, lambda draw: draw.expovariate(1)),
        ("gamma, shape 0.5", 1.0, lambda draw: draw.gammavariate(0.5, 2)),
        ("uniform", 20.5, lambda draw: draw.uniform(1, 40)),
        ("6, or 40 in one of five", 12.8, lambda draw: 6.0 if draw.random() < 0.8 else 40.0),
        (
            "exponential, one of ten with a tenfold mean",
            1.9,
            lambda draw: draw.expovariate(1 if draw.random() < 0.9 else 0.1),
        ),
        (
            "zero in four of five, else exponential",
            1.0,
            lambda draw: draw.expovariate(0.2) if draw.random() < 0.2 else 0.0,
        ),
    )
    for name, truth, value in others:
        yield (
            f"mean, {name}",
            truth,
            lambda draw, n, of=value: estimate_ratio(((of(draw), 1.0) for _ in range(n)), "positive"),
        )
    yield "difference of mean messages of two runs", 5.0, study_two_runs
    yield (
        "mean difference on the same jobs, normal",
        2.0,
        lambda draw, n: estimate_ratio(((draw.gauss(2, 5), 1.0) for _ in range(n)), "difference"),
    )
    for share in (0.5, 0.9, 0.99):
        truth = exp(NormalDist().inv_cdf(share))
        yield f"seconds, p{100 * share:.0f}", truth, lambda draw, n, q=share: study_quantile(draw, n, q)
    for name, a, b in (("hard problems", 0.1, 1.7), ("mixed problems", 0.5, 0.5)):
        yield (
            f"pass@1 of 10 samples, {name}",
            a / (a + b),
            lambda draw, n, a=a, b=b: study_pass(draw, n, a, b),
        )
    for name, win, draw_ in (("coin", 0.25, 0.5), ("quality", 0.6, 0.25), ("one-sided", 0.9, 0.08)):
        yield (
            f"a judge's win rate, {name}",
            win + draw_ / 2,
            lambda draw, n, w=win, d=draw_: mean(
                draw.choices((1.0, 0.5, 0.0), (w, d, 1 - w - d))[0] for _ in range(n)
            ),
        )
    yield "longer wins, 97 %", 0.97, lambda draw, n: mean(float(draw.random() < 0.97) for _ in range(n))
    for rare, error in ((0.5, 0.1), (0.5, 0.0152), (0.05, 0.01)):
        truth = find_kappa(rare, error)
        name = f"{{}} {truth:.2f}{', rare label 5 %' if rare < 0.5 else ''}"
        yield name.format("kappa"), truth, lambda draw, n, p=rare, e=error: study_kappa(draw, n, p, e)
        yield name.format("alpha"), truth, lambda draw, n, p=rare, e=error: study_alpha(draw, n, p, e)
    for alike in (0.1, 0.3):
        name = f"share of conversations, ten of each role pair, alike by {alike} (role pairs)"
        yield name, 0.3, lambda draw, n, c=alike: estimate_ratio(draw_turns(draw, n, 0.3, c, fixed=10))
    yield "rate by a judge's sample, recall 70 %", 0.1, study_prevalence


def mean(values: Iterator[float]) -> ClusterEstimate:
    return estimate_ratio((value, 1.0) for value in values)


def draw_share(draw: Random, n: int, rate: float) -> Proportion:
    return Proportion(sum(draw.random() < rate for _ in range(n)), n)


def draw_geometric(draw: Random, rate: float) -> float:
    count = 1
    while draw.random() >= rate:
        count += 1
    return float(count)


def draw_turns(
    draw: Random, n: int, rate: float, alike: float, *, fixed: int = 0
) -> Iterator[tuple[float, float]]:
    """Yield turns that show something and all turns of each conversation, whose correlation is ``alike``."""
    weight = (1 - alike) / alike if alike else 0.0
    for _ in range(n):
        turns = fixed or 1 + int(draw_geometric(draw, 1 / 9))
        chance = draw.betavariate(rate * weight, (1 - rate) * weight) if alike else rate
        yield float(sum(draw.random() < chance for _ in range(turns))), float(turns)


def study_pairs(draw: Random, n: int) -> Interval | None:
    cells = draw.choices(range(4), (0.3, 0.15, 0.15, 0.4), k=n)
    return PairedProportions(*(cells.count(cell) for cell in range(4))).interval


def study_two_shares(draw: Random, n: int) -> ClusterEstimate:
    first, second = (mean(float(draw.random() < rate) for _ in range(n)) for rate in (0.5, 0.3))
    return estimate_difference(first, second)


def study_two_runs(draw: Random, n: int) -> ClusterEstimate:
    first, second = (mean(draw_geometric(draw, rate) for _ in range(n)) for rate in (0.05, 1 / 15))
    return estimate_difference(first, second)


def study_quantile(draw: Random, n: int, share: float) -> Ends:
    spread = StreamingQuantiles()
    for _ in range(n):
        spread.add(draw.lognormvariate(0, 1))
    return spread.quantile(share)[1:]


def study_pass(draw: Random, n: int, a: float, b: float) -> ClusterEstimate:
    chances = [draw.betavariate(a, b) for _ in range(n)]
    counts = [sum(draw.random() < chance for _ in range(10)) for chance in chances]
    return mean(estimate_pass(10, passed, 1) for passed in counts)


def find_kappa(rare: float, error: float) -> float:
    shown = rare * (1 - error) + (1 - rare) * error
    return 1 - 2 * error * (1 - error) / (2 * shown * (1 - shown))


def draw_labels(draw: Random, n: int, rare: float, error: float) -> list[tuple[bool, bool]]:
    truths = [draw.random() < rare for _ in range(n)]
    return [(truth != (draw.random() < error), truth != (draw.random() < error)) for truth in truths]


def study_kappa(draw: Random, n: int, rare: float, error: float) -> Agreement:
    return measure_kappa(*zip(*draw_labels(draw, n, rare, error), strict=True))


def study_alpha(draw: Random, n: int, rare: float, error: float) -> Agreement:
    return measure_alpha(draw_labels(draw, n, rare, error))


def study_prevalence(draw: Random, n: int) -> Ends:
    """A detector of recall 70 % with 2 % false alarms; ``n`` of its findings and of the other turns are read."""
    shown = sum(draw.random() < 0.1 for _ in range(3000))
    right = sum(draw.random() < 0.7 for _ in range(shown))
    wrong = sum(draw.random() < 0.02 for _ in range(3000 - shown))
    hits = [True] * right + [False] * wrong
    others = [True] * (shown - right) + [False] * (3000 - shown - wrong)
    strata = [
        Stratum(len(of), min(n, len(of)), sum(draw.sample(of, min(n, len(of))))) for of in (hits, others)
    ]
    rate = estimate_prevalence(*strata, draws=400).rate
    # The truth of this run, which differs from study to study.
    shift = shown / 3000 - 0.1
    return (None, None) if rate.low is None or rate.high is None else (rate.low - shift, rate.high - shift)


def read_ends(study: Ends | Interval | ClusterEstimate | Agreement | None) -> Ends:
    interval = study.interval if isinstance(study, ClusterEstimate | Agreement) else study
    return interval or (None, None)


def main(studies: int) -> None:
    """Print the table."""
    print(
        f"| intervals that hold the truth, of {studies:,} studies | {' | '.join(f'n = {n}' for n in SIZES)} |"
    )
    print("|---" * (1 + len(SIZES)) + "|")
    for name, truth, study in rows():
        cells: list[str] = []
        for n in SIZES:
            draw = Random(f"{name} {n}")
            ends = [read_ends(study(draw, n)) for _ in range(studies)]
            given = [(low, high) for low, high in ends if low is not None or high is not None]
            held = sum(
                (low is None or low <= truth) and (high is None or truth <= high) for low, high in given
            )
            left_out = 1 - len(given) / studies
            withheld = f" ({100 * left_out:.0f} % withheld)" if 0 < left_out < 1 else ""
            cells.append(f"{100 * held / len(given):.1f} %{withheld}" if given else "withheld")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else STUDIES)
