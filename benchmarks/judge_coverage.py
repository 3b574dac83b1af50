"""How often the 95 % intervals of ``bactrian evaluate agents`` hold the truth: ``python -m benchmarks.judge_coverage``.

Each study has 100 tasks with effects of their own and a judge that may lean to the first seat and to the longer
solution. The truth is the mean of a million tasks of the same world.

The intervals are computed with numpy. They are those of ``compare_pair``: the first studies of each world go through
it, too, and must give the same limits.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from bactrian.evaluate.comparison import compare_pair
from bactrian.evaluate.verdicts import JudgedTask, Judgement
from bactrian.stats.bootstrap import RESAMPLES, SEED, find_level
from bactrian.stats.intervals import Proportion

STUDIES, TASKS, CHECKED = 1000, 100, 5
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class World:
    """How tasks and verdicts come about: odds of a win in one order are logistic in the sum of all effects."""

    quality: float = 0.0
    """Mean effect of the first solution."""
    spread: float = 0.0
    """Standard deviation of that effect over tasks."""
    seat: float = 0.0
    """Leaning to the solution that is shown first."""
    tied: float = 0.0
    """Share of verdicts with equal scores."""


WORLDS = {
    "coin": World(),
    "quality": World(0.5, 1.2),
    "first seat": World(0.3, 1.2, 0.8),
    "ties": World(0.5, 1.2, 0.3, 0.2),
    "clear winner": World(1.5, 0.8, 0.2),
}
OF_TASKS = (0, 1, 2, 5, 6)
"""Shares of the tasks, with Wilson's interval."""
SHARES = ("win", "draw", "loss", "win rate", "first seat", "the same verdict", "the winner changes", "ties")


def draw_signs(world: World, shape: tuple[int, ...], draw: np.random.Generator) -> NDArray[np.int8]:
    """Return the verdicts of tasks in both orders: 1 for the first solution, -1 for the second, 0 for equal scores.

    The last axis of the result is the order: as given, swapped.
    """
    effect = draw.normal(world.quality, world.spread, shape)[..., None]
    seats = np.array([world.seat, -world.seat])
    wins = draw.random((*shape, 2)) < 1 / (1 + np.exp(-(effect + seats)))
    signs = np.where(wins, 1, -1)
    return np.where(draw.random((*shape, 2)) < world.tied, 0, signs).astype(np.int8)


def measure_tasks(signs: NDArray[np.int8]) -> tuple[Floats, Floats]:
    """Return numerator and denominator of each share for each task, in the order of the names."""
    straight, swapped = signs[..., 0], signs[..., 1]
    win, loss = (straight == 1) & (swapped == 1), (straight == -1) & (swapped == -1)
    one = np.ones(straight.shape)
    above = [
        win, ~win & ~loss, loss, win + 0.5 * (~win & ~loss), (straight == 1) * 1.0 + (swapped == -1),
        straight == swapped, straight * swapped == -1, (straight == 0) * 1.0 + (swapped == 0),
    ]  # fmt: skip
    decided = (straight != 0) * 1.0 + (swapped != 0)
    below = [one, one, one, one, decided, one, one, 2 * one]
    return np.stack(above, -1).astype(float), np.stack(below, -1)


def count_draws(resamples: int) -> Floats:
    """Return how often each resample draws each task: the same draws as those of the program."""
    draw = Random(SEED)
    drawn = [draw.choices(range(TASKS), k=TASKS) for _ in range(resamples)]
    return np.array([np.bincount(tasks, minlength=TASKS) for tasks in drawn], dtype=float)


def make_tasks(signs: NDArray[np.int8]) -> list[JudgedTask]:
    """Return the tasks of one study as the program reads them."""
    scores = {1: (9.0, 2.0), -1: (2.0, 9.0), 0: (5.0, 5.0)}
    return [
        JudgedTask(
            str(number),
            str(number),
            tuple(Judgement(swapped, scores[int(pair[int(swapped)])]) for swapped in (False, True)),
            (5, 5),
        )
        for number, pair in enumerate(signs)
    ]


def check_studies(signs: NDArray[np.int8], low: Floats, high: Floats) -> None:
    """Compare the limits of the first studies with those of the program."""
    for study in range(CHECKED):
        report = compare_pair(("one", "other"), "judge", make_tasks(signs[study]))
        estimates: list[dict[str, float | None]] = [
            *(report["shares"][name] for name in ("win", "draw", "loss", "win_rate")),
            *(report[name] for name in ("first_seat", "consistent", "flips", "ties")),
        ]
        for number, estimate in enumerate(estimates):
            if 0 < (estimate["value"] or 0) < 1:
                ours = (low[study, number], high[study, number])
                limits = (estimate["low"] or 0.0, estimate["high"] or 0.0)
                assert np.allclose(ours, limits, atol=1e-9), (study, SHARES[number], ours)


def main(studies: int) -> None:
    """Print the coverage of each share in each world."""
    counts = count_draws(RESAMPLES)
    for name, world in WORLDS.items():
        draw = np.random.default_rng(1)
        above, below = measure_tasks(draw_signs(world, (1_000_000,), draw))
        truth = above.sum(0) / below.sum(0)
        signs = draw_signs(world, (studies, TASKS), draw)
        limits: list[Floats] = []
        for study in signs:
            above, below = measure_tasks(study)
            level = 100 * find_level(TASKS)
            found = np.percentile((counts @ above) / (counts @ below), [level, 100 - level], axis=0)
            for place in OF_TASKS:
                found[:, place] = Proportion(int(above[:, place].sum()), TASKS).interval
            limits.append(found)
        low, high = np.stack(limits).transpose(1, 0, 2)
        check_studies(signs, low, high)
        covered = ((low <= truth) & (truth <= high)).mean(0)
        print(f"{name}: {studies} studies of {TASKS} tasks, {RESAMPLES} resamples")
        for share, value, rate in zip(SHARES, truth, covered, strict=True):
            shown = "not defined in this world" if value in (0, 1) else f"covered {rate:.1%}"
            print(f"  {share:<20}truth {value:6.1%}   {shown}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else STUDIES)
