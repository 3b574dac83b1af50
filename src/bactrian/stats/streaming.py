"""How values are spread, without keeping them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import ceil, exp, floor, log, sqrt

_STEP = log(1.02)
"""Values that differ by less than 2 % may count as one."""
_Z = 1.959964


@dataclass(slots=True)
class StreamingQuantiles:
    """Values of 0 or more, counted in steps of 2 %."""

    counts: Counter[int | None] = field(default_factory=Counter["int | None"])
    """By the value's logarithm in steps; None counts those of 0."""

    @property
    def total(self) -> int:
        """How many values there are."""
        return self.counts.total()

    def add(self, value: float) -> None:
        """Count ``value``."""
        self.counts[None if value <= 0 else floor(log(value) / _STEP)] += 1

    def merge(self, other: StreamingQuantiles) -> None:
        """Count what ``other`` has counted."""
        self.counts.update(other.counts)

    def quantile(self, share: float) -> tuple[float, float, float]:
        """The value that ``share`` of all do not pass, and its 95 % interval by the order of the values.

        All three are right to 1 %. There must be values.
        """
        total = self.total
        half = _Z * sqrt(total * share * (1 - share))
        middle = total * share
        value, low, high = (self._at(rank) for rank in (middle, middle - half, middle + half))
        return value, low, high

    def _at(self, rank: float) -> float:
        """The value of the ``rank``-th smallest, or of the smallest or largest if there is no such."""
        left = min(max(ceil(rank), 1), self.total)
        steps = sorted(self.counts, key=lambda step: -float("inf") if step is None else step)
        for step in steps:
            left -= self.counts[step]
            if left <= 0:
                return 0.0 if step is None else 1.01 * exp(step * _STEP)
        return 0.0


@dataclass(slots=True)
class StreamingMean:
    """The mean of values that are independent of each other."""

    count: int = 0
    sum: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        """Count ``value``."""
        self.count += 1
        self.sum += value
        self.squares += value * value

    def merge(self, other: StreamingMean) -> None:
        """Count what ``other`` has counted."""
        self.count += other.count
        self.sum += other.sum
        self.squares += other.squares

    @property
    def value(self) -> float:
        """The mean; 0 if there are no values."""
        return self.sum / self.count if self.count else 0.0

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its 95 % interval by the normal distribution; None for fewer than two values."""
        if self.count < 2:
            return None
        variance = max(0.0, self.squares - self.count * self.value**2) / (self.count - 1)
        half = _Z * sqrt(variance / self.count)
        return self.value - half, self.value + half
