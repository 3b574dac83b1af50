"""Streaming statistics: quantiles, means, trends and lengths of values that are not stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import ceil, exp, floor, lgamma, log, log1p, modf, sqrt
from statistics import NormalDist

from bactrian.stats.intervals import FEW, Interval, find_freedom, find_t_quantile

_STEP = log(1.02)  # width of a bin in the logarithm: values that differ by less than 2 % may share one
_Z, _TAIL = 1.959964, 0.025
# From this standard deviation on, the normal curve gives the ranks of a quantile to one in thirty.
_LARGE = 30.0


@dataclass(slots=True)
class StreamingQuantiles:
    """A histogram of non-negative values with bins of 2 %."""

    # Counts by bin (the value's logarithm divided by the width); None is the bin of 0.
    counts: Counter[int | None] = field(default_factory=Counter["int | None"])

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

    def quantile(
        self, share: float, observations: int | None = None
    ) -> tuple[float, float | None, float | None]:
        """Return the quantile at ``share``, and the ends of its 95 % interval by interpolated order statistics.

        The ends are those of so many independent ``observations``, or of all values if None. The values are exact to
        1 %. An end is None if even the smallest or the largest value does not bound the quantile: 30 values say nothing
        of how large the 99th percentile can be. The other end is then that of 95 % alone. There must be at least one
        value.

        Source: A. D. Hutson, Calculating nonparametric confidence intervals for quantiles using fractional order
        statistics, 1999; the fraction is interpolated on the normal scale.
        """
        known = min(self.total, observations or self.total)
        bounded = [known >= FEW and rest**known <= _TAIL for rest in (1 - share, share)]
        tail = _TAIL if all(bounded) else 2 * _TAIL
        low = self._find_end(known, share, tail, 1) if bounded[0] else None
        high = self._find_end(known, 1 - share, tail, -1) if bounded[1] else None
        return self._find_value(self.total * share), low, high

    def _find_end(self, known: int, share: float, tail: float, step: int) -> float:
        """Return the end of an interval, for so many values ``known``; a ``step`` of -1 counts from the largest."""
        rank, part = _find_rank(known, share, tail)
        ranks = (rank, rank + 1) if step > 0 else (known + 1 - rank, known - rank)
        near, far = (self._find_value(self.total / known * at) for at in ranks)
        return near * (far / near) ** part if near else 0.0

    def _find_value(self, rank: float) -> float:
        """Return the ``rank``-th smallest value; ranks out of range are clipped."""
        left = min(max(ceil(rank), 1), self.total)
        for step in sorted(self.counts, key=lambda step: -float("inf") if step is None else step):
            left -= self.counts[step]
            if left <= 0:
                return 0.0 if step is None else 1.01 * exp(step * _STEP)
        return 0.0


def _find_rank(total: int, share: float, tail: float) -> tuple[int, float]:
    """Return the rank of the largest value that exceeds a quantile with a probability of at most ``tail``.

    Also returns how far towards the next value that probability is reached.
    """
    spread = sqrt(total * share * (1 - share))
    if spread > _LARGE:
        part, rank = modf(total * share + 0.5 - _Z * spread)
        return int(rank), part
    # The logarithms keep small chances from becoming zero; those that are left out are zero.
    below, log_share, log_rest = 0.0, log(share), log1p(-share)
    for count in range(max(0, int(total * share - _LARGE * spread)), total):
        ways = lgamma(total + 1) - lgamma(count + 1) - lgamma(total - count + 1)
        chance = exp(ways + count * log_share + (total - count) * log_rest)
        if below + chance > tail:
            near, end, far = map(NormalDist().inv_cdf, (max(below, 1e-300), tail, below + chance))
            return count, (end - near) / (far - near)
        below += chance
    return total, 0.0


@dataclass(slots=True)
class StreamingMean:
    """The mean of independent positive values, by the sums of their powers."""

    count: int = 0
    powers: list[float] = field(default_factory=lambda: [0.0] * 4)  # sums of the first to the fourth power

    def add(self, value: float) -> None:
        """Add ``value``."""
        self.count += 1
        power = 1.0
        for degree in range(4):
            power *= value
            self.powers[degree] += power

    def merge(self, other: StreamingMean) -> None:
        """Add the values of ``other``."""
        self.count += other.count
        self.powers = [mine + theirs for mine, theirs in zip(self.powers, other.powers, strict=True)]

    @property
    def value(self) -> float:
        """The mean; 0 if there are no values."""
        return self.powers[0] / self.count if self.count else 0.0

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval, as that of :func:`estimate_ratio`; None for fewer than 10 values, or equal ones."""
        if self.count < FEW or self.value <= 0:
            return None
        count, mean = self.count, self.value
        second, third, fourth = (power / self.count for power in self.powers[1:])
        variance = second - mean**2
        fourths = fourth - 4 * mean * third + 6 * mean**2 * second - 3 * mean**4
        if variance <= 1e-12 * second:  # the rest is rounding
            return None
        freedom = find_freedom(count, count * variance, count * max(fourths, variance**2))
        reach = find_t_quantile(freedom) * sqrt(variance / (self.count - 1)) / mean
        return mean * exp(-reach), mean * exp(min(reach, 700.0))


# Distribution of lengths, estimated while most of what is measured is still going on.
#
# The mean of what has ended is biased at first: the shortest end first. The estimate of Kaplan and Meier
# (1958) also uses that the others have gone on so far.


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean and variance of a quantity."""

    mean: float = 0.0
    variance: float = 0.0

    def add(self, other: Moments, count: float = 1) -> Moments:
        """Add ``count`` independent quantities with the moments ``other``."""
        return Moments(self.mean + count * other.mean, self.variance + count * other.variance)


STEADY = 100.0
"""Weight of the assumption that turns do not take longer and longer: that of a hundred turns next to the mean one."""


@dataclass(slots=True)
class Trend:
    """How a value grows with a position: the sums of least squares."""

    count: int = 0
    positions: int = 0
    squares: int = 0
    total: float = 0.0
    moment: float = 0.0

    def add(self, position: int, value: float) -> None:
        """Add a value at a position."""
        self.count += 1
        self.positions += position
        self.squares += position * position
        self.total += value
        self.moment += position * value

    def estimate_growth(self, assumed: float, weight: float) -> float:
        """Return the growth with each position; ``assumed`` counts for ``weight``, in squares of positions."""
        middle = self.positions / max(1, self.count)
        spread = self.squares - self.positions * middle
        return (self.moment - middle * self.total + weight * assumed) / (spread + weight)


@dataclass(slots=True)
class LengthCounts:
    """Counts of what ended at a length, and of what went on beyond it."""

    ended: list[int] = field(default_factory=list[int])
    continued: list[int] = field(default_factory=list[int])

    def end(self, length: int, count: int = 1) -> None:
        """Count ``count`` endings at ``length``."""
        self.reserve(length)
        self.ended[length] += count

    def reserve(self, length: int) -> None:
        """Make room for ``length``."""
        missing = length + 1 - len(self.ended)
        if missing > 0:
            self.ended += [0] * missing
            self.continued += [0] * missing

    def estimate(self, assume: Callable[[int], float], weight: float, longest: int) -> SurvivalCurve:
        """Return the distribution of lengths up to ``longest``.

        Args:
            assume: The assumed probability of an ending at a length that was reached.
            weight: The number of observations that the assumption counts for, at each length.
            longest: Nothing is longer.
        """
        alive, survival = 1.0, list[float]()
        known = len(self.ended)
        for length in range(longest):
            ended, continued = (self.ended[length], self.continued[length]) if length < known else (0, 0)
            alive *= 1 - (ended + weight * assume(length)) / (ended + continued + weight)
            survival.append(alive)
        return SurvivalCurve((*survival, 0.0))


@dataclass(frozen=True, slots=True)
class SurvivalCurve:
    """The distribution of a length."""

    beyond: tuple[float, ...]  # Probability of more than so much, from 0 on; the last one is 0

    def find_remaining(self, measure: Callable[[int], float]) -> tuple[Moments, ...]:
        """Return, for each length reached so far from 0 on, how much ``measure`` will still grow up to the end."""
        chances = [before - after for before, after in zip((1.0, *self.beyond), self.beyond, strict=False)]
        sizes = [measure(length) for length in range(len(chances))]
        weighted = [chance * size for chance, size in zip(chances, sizes, strict=True)]
        first = _sum_from_end(weighted)
        second = _sum_from_end(part * size for part, size in zip(weighted, sizes, strict=True))
        remaining: list[Moments] = []
        for length, left in enumerate(self.beyond):
            if left <= 0:
                remaining.append(Moments())
                continue
            mean = first[length + 1] / left
            remaining.append(Moments(mean - sizes[length], max(0.0, second[length + 1] / left - mean * mean)))
        return tuple(remaining)

    def find_longest(self, count: float, steps: Sequence[float]) -> float:
        """Return how long the longest of ``count`` takes, on average; ``steps`` is what each unit of length takes."""
        return sum(step * (1 - (1 - left) ** count) for left, step in zip(self.beyond, steps, strict=True))


def _sum_from_end(values: Iterable[float]) -> list[float]:
    return list(accumulate(reversed(list(values))))[::-1]
