"""Comparisons of systems and of raters: agreement, strengths from pairs, win rates at equal length, sign test.

Cohen's kappa (1960) is for two raters of the same items; Krippendorff's alpha (1970) is for any number of raters, and
allows missing labels. Both correct for chance: 1 is perfect agreement, 0 is chance level, less is worse than chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, comb, exp, fsum, nan, sqrt, tanh
from statistics import NormalDist
from typing import TYPE_CHECKING, cast

from bactrian.stats.clusters import estimate_ratio
from bactrian.stats.intervals import Interval, find_t_quantile, find_wilson_interval

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_FEW_RARE = 5  # other labels than the commonest one, by a rater, below which chance agreement is hardly known


@dataclass(frozen=True, slots=True)
class Agreement:
    """A coefficient with its 95 % interval over items."""

    value: float  # ``nan`` if all labels are equal: agreement cannot be told from chance
    interval: Interval | None
    items: int  # number of items with at least two labels
    withheld: str | None = None  # why there is no interval


def measure_kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> Agreement:
    """Compute Cohen's kappa of two raters of the same items, in the same order.

    Source: J. Cohen, A coefficient of agreement for nominal scales, 1960.

    Raises:
        ValueError: the raters labelled different numbers of items.
    """
    pairs = list(zip(first, second, strict=True))
    left, right = Counter(label for label, _ in pairs), Counter(label for _, label in pairs)

    def expect(without: Sequence[Hashable]) -> float:
        left.subtract(without[:1])
        right.subtract(without[1:])
        same, total = sum(count * right[label] for label, count in left.items()), left.total()
        left.update(without[:1])
        right.update(without[1:])
        return 1 - same / total**2 if total else 0.0

    return _correct_for_chance(pairs, [(float(a != b), 1.0) for a, b in pairs], expect)


def measure_alpha(units: Sequence[Sequence[Hashable | None]]) -> Agreement:
    """Compute Krippendorff's alpha for any number of labels per item.

    Source: K. Krippendorff, Computing Krippendorff's alpha-reliability, 2011.

    Args:
        units: The labels of each item, None for a missing label. Items with fewer than two labels
            are left out.
    """
    known = [[label for label in unit if label is not None] for unit in units]
    items = [tuple(unit) for unit in known if len(unit) > 1]
    labels = Counter(label for item in items for label in item)

    def expect(without: Sequence[Hashable]) -> float:
        labels.subtract(without)
        unequal, total = _count_unequal(labels), labels.total()
        labels.update(without)
        return unequal / (total * (total - 1)) if total > 1 else 0.0

    observed = [(_count_unequal(Counter(item)) / (len(item) - 1), float(len(item))) for item in items]
    return _correct_for_chance(items, observed, expect)


def _correct_for_chance(
    items: Sequence[tuple[Hashable, ...]],
    observed: Sequence[tuple[float, float]],
    expect: Callable[[Sequence[Hashable]], float],
) -> Agreement:
    """Return 1 minus the observed disagreement divided by the expected one, which ``expect`` gives without an item.

    The interval is that of the observed disagreement, but with the variance of both by the jackknife.
    """
    expected, seen = expect(()), estimate_ratio(observed, name="item")
    if seen.value is None or not expected:
        return Agreement(nan, None, len(items), seen.withheld or "all labels are equal")
    value = 1 - seen.value / expected
    labels = Counter(label for item in items for label in item)
    rare = (labels.total() - labels.most_common(1)[0][1]) * len(items) / labels.total()
    if seen.interval is None or rare < _FEW_RARE:
        few = f"only {rare:.0f} of {len(items)} items have another label than the commonest"
        return Agreement(value, None, len(items), seen.withheld or few)
    top, bottom = map(fsum, zip(*observed, strict=True))
    without = [
        ((top - above) / (bottom - below) * expected / expect(item), times)
        for (item, (above, below)), times in Counter(zip(items, observed, strict=True)).items()
    ]
    mean = fsum(times * left_out for left_out, times in without) / len(items)
    squares = fsum(times * (left_out - mean) ** 2 for left_out, times in without)
    # Wilson's interval for as many items as vary so much.
    effective = seen.value * (1 - seen.value) / squares if squares else len(items)
    low, high = find_wilson_interval(seen.value, effective, find_t_quantile(len(items) - 1))
    return Agreement(value, (max(-1.0, 1 - high / expected), 1 - low / expected), len(items))


def _count_unequal(count: Counter[Hashable]) -> int:
    """Return the number of ordered pairs of labels that differ."""
    return count.total() ** 2 - sum(times**2 for times in count.values())


# The strengths of several systems from comparisons in pairs (Bradley and Terry, 1952).


_STEPS = 100
_CLOSE = 1e-10
# Draws that are added to each pair that was compared, so that a system that never lost has a finite
# strength.
_PRIOR = 0.1


def fit_bradley_terry(wins: Mapping[tuple[str, str], float]) -> dict[str, float]:
    """Return the strength of each system, as natural logarithms with mean 0.

    The odds that one system beats another are ``exp`` of the difference of their strengths. The likelihood has
    one maximum (Hunter 2004, MM algorithms for generalized Bradley-Terry models), which Newton's method finds.

    Args:
        wins: How often the first system of a pair beat the second. Count a draw as half a win for each.

    Raises:
        ValueError: there are no comparisons, or they do not connect all systems.
    """
    import numpy as np

    names = sorted({name for pair in wins for name in pair})
    if not names:
        raise ValueError("nothing was compared")
    positions = {name: position for position, name in enumerate(names)}
    won: NDArray[np.float64] = np.zeros(len(names))
    games: NDArray[np.float64] = np.zeros((len(names), len(names)))
    for (winner, loser), count in wins.items():
        first, second = positions[winner], positions[loser]
        if not games[first, second]:
            games[first, second] = games[second, first] = 2 * _PRIOR
            won[[first, second]] += _PRIOR
        games[first, second] += count
        games[second, first] += count
        won[first] += count
    _check_connected(names, games > 0)
    strength: NDArray[np.float64] = np.zeros(len(names))
    for _ in range(_STEPS):
        chance: NDArray[np.float64] = 1 / (1 + np.exp(strength - strength[:, None]))
        curve: NDArray[np.float64] = games * chance * (1 - chance)
        # The likelihood does not change if all strengths grow alike; the last term keeps their mean at 0.
        slope: NDArray[np.float64] = np.diag(curve.sum(axis=1)) - curve + 1 / len(names)
        lacking: NDArray[np.float64] = won - (games * chance).sum(axis=1)
        step = cast("NDArray[np.float64]", np.linalg.solve(slope, lacking))
        largest = float(np.abs(step).max())
        strength = strength + step / max(1.0, largest)
        if largest < _CLOSE:
            break
    middle = float(strength.mean())
    return {name: float(strength[position]) - middle for name, position in positions.items()}


def _check_connected(names: list[str], met: NDArray[np.bool_]) -> None:
    reached = {0}
    while more := {int(opponent) for system in reached for opponent in met[system].nonzero()[0]} - reached:
        reached |= more
    if len(reached) < len(names):
        left = ", ".join(name for position, name in enumerate(names) if position not in reached)
        raise ValueError(f"{left} was never compared with {names[0]}")


# A win rate that is controlled for length: what it would be if both answers were equally long.
#
# Judges and people prefer longer answers (Dubois et al. 2024, Length-controlled AlpacaEval). A logistic
# regression explains the wins by the difference in length; the controlled rate is its prediction at a
# difference of zero.


# Precision of the prior on the effect of length, with a standard deviation of 2.5: without it, the fit of a
# judge that decides by length alone does not converge.
_RIDGE = 1 / 2.5**2
_RIDGE_LEVEL = 0.01
_STEPS_FOR_LENGTH, _CLOSE_FOR_LENGTH = 30, 1e-8


def scale_lengths(differences: Sequence[float]) -> list[float]:
    """Return tanh of each difference divided by the root mean square of all; a difference of zero stays zero."""
    spread = sqrt(sum(difference**2 for difference in differences) / max(1, len(differences)))
    return [tanh(difference / spread) if spread else 0.0 for difference in differences]


def fit_length_controlled_rate(wins: Sequence[float], scaled: Sequence[float]) -> float | None:
    """Return the win rate at equal lengths, from 0 to 1.

    Args:
        wins: For each task, 1 for a win of the first answer, 0 for a loss and 0.5 for a draw.
        scaled: For each task, the difference in length, first minus second, by :func:`scale_lengths`.

    Returns:
        None if all outcomes are equal: length and quality cannot be told apart then.
    """
    if len(set(wins)) < 2:
        return None
    if not any(scaled):
        return sum(wins) / len(wins)
    import numpy as np

    table = np.column_stack((np.ones(len(scaled)), scaled))
    ridge, effects = np.array((_RIDGE_LEVEL, _RIDGE)), np.zeros(2)
    for _ in range(_STEPS_FOR_LENGTH):
        # Newton's method on the penalized likelihood, in the level and in the effect of length.
        rates = 1 / (1 + np.exp(-np.clip(table @ effects, -700, 700)))
        slope = table.T @ (np.asarray(wins) - rates) - ridge * effects
        curve = (table.T * (rates * (1 - rates))) @ table + np.diag(ridge)
        step = cast("NDArray[np.float64]", np.linalg.solve(curve, slope))
        largest = float(np.abs(step).max())
        effects += step / max(1.0, largest / 2)
        if largest < _CLOSE_FOR_LENGTH:
            break
    return 1 / (1 + exp(-float(effects[0])))


# The sign test for pairs, and the number of pairs that it needs.


def compute_sign_test(wins: int, losses: int) -> float:
    """Return the two-sided p-value of so many wins and losses if both were equally likely. Draws do not count."""
    total, more = wins + losses, max(wins, losses)
    tail = sum(comb(total, count) for count in range(more, total + 1)) / 2**total
    return min(1.0, 2 * tail)


def count_tasks_needed(win: float, loss: float) -> int | None:
    """Return how many tasks the sign test needs to tell a win rate from a loss rate; None if they are equal.

    It finds the difference with a probability of 0.8, at a two-sided level of 0.05.
    Source: R. J. Connor, Sample size for testing differences in proportions for the paired-sample design, 1987.

    Args:
        win: Share of tasks won, from 0 to 1.
        loss: Share of tasks lost; the rest are draws.
    """
    difference, either = abs(win - loss), win + loss
    if not difference:
        return None
    normal = NormalDist()
    spread = max(0.0, either - difference**2)
    reach = normal.inv_cdf(0.975) * sqrt(either) + normal.inv_cdf(0.8) * sqrt(spread)
    tasks = (reach / difference) ** 2
    # The test counts whole wins, so it finds less than the normal curve says: Fleiss's correction for continuity.
    return ceil(tasks / 4 * (1 + sqrt(1 + 4 / (tasks * difference))) ** 2)


def find_smallest_difference(tasks: int, decided: float) -> float | None:
    """Return the smallest difference of wins and losses that the sign test finds with power 0.8; None if there is none.

    It depends on the number of tasks and on how many are no draws, and not on the difference that was observed.

    Args:
        tasks: Number of tasks.
        decided: Share of them that are no draws.
    """
    for step in range(1, 1001):
        difference = decided * step / 1000
        needed = count_tasks_needed((decided + difference) / 2, (decided - difference) / 2)
        if needed is not None and needed <= tasks:
            return difference
    return None
