"""Streaming statistics: quantiles and means of values that are not stored."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import ceil, exp, floor, log, sqrt

_STEP = log(1.02)
"""Width of a bin in the logarithm: values that differ by less than 2 % may share one."""
_Z = 1.959964


@dataclass(slots=True)
class StreamingQuantiles:
    """A histogram of non-negative values with bins of 2 %."""

    counts: Counter[int | None] = field(default_factory=Counter["int | None"])
    """Counts by bin (the value's logarithm divided by the width); None is the bin of 0."""

    @property
    def total(self) -> int:
        """Number of values."""
        return self.counts.total()

    def add(self, value: float) -> None:
        """Add ``value``."""
        self.counts[None if value <= 0 else floor(log(value) / _STEP)] += 1

    def merge(self, other: StreamingQuantiles) -> None:
        """Add the counts of ``other``."""
        self.counts.update(other.counts)

    def quantile(self, share: float) -> tuple[float, float, float]:
        """Return the quantile at ``share``, and the bounds of its 95 % interval by order statistics.

        All three are exact to 1 %. There must be at least one value.
        """
        total = self.total
        half = _Z * sqrt(total * share * (1 - share))
        middle = total * share
        value, low, high = (self._find_value(rank) for rank in (middle, middle - half, middle + half))
        return value, low, high

    def _find_value(self, rank: float) -> float:
        """Return the ``rank``-th smallest value; ranks out of range are clipped."""
        left = min(max(ceil(rank), 1), self.total)
        steps = sorted(self.counts, key=lambda step: -float("inf") if step is None else step)
        for step in steps:
            left -= self.counts[step]
            if left <= 0:
                return 0.0 if step is None else 1.01 * exp(step * _STEP)
        return 0.0


@dataclass(slots=True)
class StreamingMean:
    """The mean of independent values."""

    count: int = 0
    sum: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        """Add ``value``."""
        self.count += 1
        self.sum += value
        self.squares += value * value

    def merge(self, other: StreamingMean) -> None:
        """Add the values of ``other``."""
        self.count += other.count
        self.sum += other.sum
        self.squares += other.squares

    @property
    def value(self) -> float:
        """The mean; 0 if there are no values."""
        return self.sum / self.count if self.count else 0.0

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval by the normal approximation; None for fewer than two values."""
        if self.count < 2:
            return None
        variance = max(0.0, self.squares - self.count * self.value**2) / (self.count - 1)
        half = _Z * sqrt(variance / self.count)
        return self.value - half, self.value + half
