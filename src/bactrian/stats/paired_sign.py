"""The sign test for pairs, and the number of pairs that it needs."""

from __future__ import annotations

from math import ceil, comb, sqrt
from statistics import NormalDist


def compute_sign_test(wins: int, losses: int) -> float:
    """Return the two-sided p-value of so many wins and losses if both were equally likely. Draws do not count."""
    total, more = wins + losses, max(wins, losses)
    tail = sum(comb(total, count) for count in range(more, total + 1)) / 2**total
    return min(1.0, 2 * tail)


def count_tasks_needed(win: float, loss: float, *, power: float = 0.8, level: float = 0.05) -> int | None:
    """Return how many tasks the sign test needs to tell a win rate from a loss rate; None if they are equal.

    Source: R. J. Connor, Sample size for testing differences in proportions for the paired-sample design, 1987.

    Args:
        win: Share of tasks won, from 0 to 1.
        loss: Share of tasks lost; the rest are draws.
        power: Probability that the test finds the difference.
        level: Its level of significance, two-sided.
    """
    difference, either = abs(win - loss), win + loss
    if not difference:
        return None
    normal = NormalDist()
    spread = max(0.0, either - difference**2)
    reach = normal.inv_cdf(1 - level / 2) * sqrt(either) + normal.inv_cdf(power) * sqrt(spread)
    tasks = (reach / difference) ** 2
    # The test counts whole wins, so it finds less than the normal curve says: Fleiss's correction for continuity.
    return ceil(tasks / 4 * (1 + sqrt(1 + 4 / (tasks * difference))) ** 2)
