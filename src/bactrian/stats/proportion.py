"""Proportions with confidence intervals."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

_Z = 1.959964
"""97.5 % quantile of the standard normal distribution."""


@dataclass(frozen=True, slots=True)
class Proportion:
    """``count`` of ``total`` independent observations."""

    count: int
    total: int

    @property
    def rate(self) -> float:
        """The proportion; 0 if ``total`` is 0."""
        return self.count / self.total if self.total else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval (Wilson 1927); (0, 1) if ``total`` is 0."""
        if self.total == 0:
            return 0.0, 1.0
        scale = 1 + _Z**2 / self.total
        middle = (self.rate + _Z**2 / (2 * self.total)) / scale
        half = _Z * sqrt(self.rate * (1 - self.rate) / self.total + _Z**2 / (4 * self.total**2)) / scale
        return max(0.0, middle - half), min(1.0, middle + half)

    def difference_interval(self, other: Proportion) -> tuple[float, float]:
        """Return the 95 % interval of this rate minus that of ``other`` (Newcombe 1998, method 10)."""
        low, high = self.interval
        other_low, other_high = other.interval
        difference = self.rate - other.rate
        down = sqrt((self.rate - low) ** 2 + (other_high - other.rate) ** 2)
        up = sqrt((high - self.rate) ** 2 + (other.rate - other_low) ** 2)
        return max(-1.0, difference - down), min(1.0, difference + up)


@dataclass(frozen=True, slots=True)
class PairedProportions:
    """Two yes-or-no observations on each of several subjects, such as two models on the same tasks."""

    both: int
    only_first: int
    only_second: int
    neither: int

    @property
    def total(self) -> int:
        """Number of subjects."""
        return self.both + self.only_first + self.only_second + self.neither

    @property
    def first(self) -> Proportion:
        """The first observation alone."""
        return Proportion(self.both + self.only_first, self.total)

    @property
    def second(self) -> Proportion:
        """The second observation alone."""
        return Proportion(self.both + self.only_second, self.total)

    @property
    def difference(self) -> float:
        """The second rate minus the first."""
        return self.second.rate - self.first.rate

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of :attr:`difference` (Newcombe 1998, improved intervals for paired data, method 10)."""
        (low_b, high_b), (low_a, high_a) = self.second.interval, self.first.interval
        down_b, up_b = self.second.rate - low_b, high_b - self.second.rate
        down_a, up_a = self.first.rate - low_a, high_a - self.first.rate
        phi = self._correlation
        down = sqrt(max(0.0, down_b**2 - 2 * phi * down_b * up_a + up_a**2))
        up = sqrt(max(0.0, up_b**2 - 2 * phi * up_b * down_a + down_a**2))
        return max(-1.0, self.difference - down), min(1.0, self.difference + up)

    @property
    def _correlation(self) -> float:
        """Correlation of the observations, corrected for continuity if it is positive; 0 if one never varies."""
        yes_a, yes_b, total = self.first.count, self.second.count, self.total
        margins = yes_a * (total - yes_a) * yes_b * (total - yes_b)
        if not margins:
            return 0.0
        top = self.both * self.neither - self.only_first * self.only_second
        if top > 0:
            top = max(top - total / 2, 0.0)
        return top / sqrt(margins)
