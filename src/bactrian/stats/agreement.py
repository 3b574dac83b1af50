"""Inter-rater agreement of people, or of a person and a program, on the same items.

Cohen's kappa (1960) is for two raters of the same items; Krippendorff's alpha (1970) is for any number of raters, and
allows missing labels. Both correct for chance: 1 is perfect agreement, 0 is chance level, less is worse than chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import nan
from random import Random
from typing import Literal, TypeVar

Scale = Literal["nominal", "interval"]
"""How two labels differ: ``nominal`` labels are equal or not, ``interval`` labels are numbers some distance apart."""
_DRAWS = 1000
_SEED = 20230331
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Agreement:
    """A coefficient with its 95 % interval by bootstrap over items."""

    value: float
    """``nan`` if all labels are equal: agreement cannot be told from chance."""
    interval: tuple[float, float] | None
    """From the 2.5th to the 97.5th percentile of the draws; None for fewer than two items or without variation."""
    items: int
    """Number of items with at least two labels."""


def measure_kappa(one: Sequence[Hashable], other: Sequence[Hashable]) -> Agreement:
    """Compute Cohen's kappa of two raters of the same items, in the same order.

    Source: J. Cohen, A coefficient of agreement for nominal scales, 1960.

    Raises:
        ValueError: the raters labelled different numbers of items.
    """
    pairs = list(zip(one, other, strict=True))
    return _bootstrap(pairs, _compute_kappa)


def measure_alpha(units: Sequence[Sequence[Hashable | None]], scale: Scale = "nominal") -> Agreement:
    """Compute Krippendorff's alpha for any number of labels per item.

    Source: K. Krippendorff, Computing Krippendorff's alpha-reliability, 2011.

    Args:
        units: The labels of each item, None for a missing label. Items with fewer than two labels
            are left out.
        scale: ``nominal`` for categories, ``interval`` for numbers.

    Raises:
        TypeError: ``scale`` is ``interval`` and a label is not a number.
    """
    known = [[label for label in unit if label is not None] for unit in units]
    pairable = [unit for unit in known if len(unit) > 1]
    if scale == "interval" and not all(isinstance(one, int | float) for unit in pairable for one in unit):
        raise TypeError("labels on an interval scale must be numbers")
    distance = _compare if scale == "nominal" else _square
    counts = [Counter(unit) for unit in pairable]
    weighed = [(count, _sum_distances(count, distance) / (count.total() - 1)) for count in counts]
    return _bootstrap(weighed, lambda units: _compute_alpha(units, distance))


def _bootstrap(items: Sequence[_Item], compute: Callable[[Sequence[_Item]], float]) -> Agreement:
    draw = Random(_SEED)  # noqa: S311
    drawn = sorted(
        value
        for _ in range(_DRAWS if len(items) > 1 else 0)
        if (value := compute(draw.choices(items, k=len(items)))) == value
    )
    enough = len(drawn) >= _DRAWS // 2
    interval = (drawn[int(0.025 * len(drawn))], drawn[int(0.975 * len(drawn))]) if enough else None
    return Agreement(compute(items) if items else nan, interval, len(items))


def _compute_kappa(pairs: Sequence[tuple[Hashable, Hashable]]) -> float:
    total = len(pairs)
    observed = sum(one == other for one, other in pairs) / total
    left, right = Counter(one for one, _ in pairs), Counter(other for _, other in pairs)
    expected = sum(count * right[label] for label, count in left.items()) / total**2
    return nan if expected == 1 else (observed - expected) / (1 - expected)


def _compute_alpha(
    units: Sequence[tuple[Counter[Hashable], float]], distance: Callable[[Hashable, Hashable], float]
) -> float:
    """Return alpha of units, each with the counts of its labels and the sum of their mean distances to the others."""
    labels = Counter[Hashable]()
    for count, _ in units:
        labels.update(count)
    total = labels.total()
    observed = sum(distances for _, distances in units) / total
    expected = _sum_distances(labels, distance) / (total * (total - 1))
    return nan if expected == 0 else 1 - observed / expected


def _sum_distances(count: Counter[Hashable], distance: Callable[[Hashable, Hashable], float]) -> float:
    """Return the sum of the distances over all ordered pairs of labels."""
    return sum(
        times * more * distance(one, other) for one, times in count.items() for other, more in count.items()
    )


def _compare(one: Hashable, other: Hashable) -> float:
    return float(one != other)


def _square(one: Hashable, other: Hashable) -> float:
    assert isinstance(one, int | float) and isinstance(other, int | float)
    return float(one - other) ** 2
