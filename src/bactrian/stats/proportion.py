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
