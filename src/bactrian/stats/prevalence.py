"""How common something is, from a detector that errs and a sample that was checked.

All items are divided into those that the detector found and all others; a random sample of each part is checked. The
rate is the sum of both parts' shares (double sampling, Tenenbein 1970), which is unbiased however bad the detector is.
With the confusion matrix of the sample it equals the estimator of Rogan and Gladen (1978).
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

_DRAWS = 4000
_SEED = 20230331


@dataclass(frozen=True, slots=True)
class Stratum:
    """A part of the items."""

    items: int
    """Number of items in it."""
    checked: int
    """Number of items of the random sample."""
    held: int
    """Checked items that show what is looked for."""

    @property
    def rate(self) -> float:
        """Share of the checked items that were confirmed; 0 if none was checked."""
        return self.held / self.checked if self.checked else 0.0


@dataclass(frozen=True, slots=True)
class IntervalEstimate:
    """A value with the ends of its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Prevalence:
    """What a checked sample says of all items, and of the detector."""

    rate: IntervalEstimate
    """Share of all items that show it."""
    precision: IntervalEstimate
    """Share of the found items that show it."""
    recall: IntervalEstimate
    """Share of the items that show it which were found."""


def estimate_prevalence(found: Stratum, other: Stratum, *, draws: int = _DRAWS) -> Prevalence:
    """Estimate the rate in all items, and the precision and recall of the detector.

    Intervals are 95 %: the share of each part is drawn from its posterior under Jeffreys' prior, so that an interval is
    right, too, if no checked item shows it. A part that was checked completely has no uncertainty. With more ``draws``
    the ends of the intervals are more exact.
    """
    draw = Random(_SEED)  # noqa: S311
    drawn = [_combine(found, other, _draw_rate(draw, found), _draw_rate(draw, other)) for _ in range(draws)]
    values = _combine(found, other, found.rate, other.rate)
    estimates: list[IntervalEstimate] = []
    for value, column in zip(values, zip(*drawn, strict=True), strict=True):
        ordered = sorted(column)
        estimates.append(IntervalEstimate(value, ordered[draws // 40], ordered[-1 - draws // 40]))
    return Prevalence(*estimates)


def _combine(
    found: Stratum, other: Stratum, found_rate: float, other_rate: float
) -> tuple[float, float, float]:
    """Return rate, precision and recall."""
    right, missed = found.items * found_rate, other.items * other_rate
    return (
        (right + missed) / max(1, found.items + other.items),
        found_rate,
        right / (right + missed) if right + missed else 0.0,
    )


def _draw_rate(draw: Random, stratum: Stratum) -> float:
    if stratum.checked >= stratum.items:
        return stratum.rate
    return draw.betavariate(stratum.held + 0.5, stratum.checked - stratum.held + 0.5)
