"""Estimates from observations that depend on each other within a cluster, such as the turns of a conversation.

All intervals are 95 %. They come from the delete-one jackknife over clusters, with Student's distribution: Wilson's for
a share, and on the logarithmic scale for a mean of positive values. The degrees of freedom fall where a few clusters
make up most of the variance, because such a variance is itself uncertain. ``python -m benchmarks.coverage``
measures how often these intervals hold the truth.

Sources: R. G. Miller, The jackknife: a review (1974); E. Miller, Adding error bars to evals (2024); N. Dean and M.
Pagano, Evaluating confidence interval methods for binomial proportions in clustered surveys (2015).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from math import exp, fsum, hypot, sqrt
from random import Random
from typing import Any, Literal, TypeVar

from bactrian.stats.intervals import (
    FEW,
    Interval,
    find_freedom,
    find_t_quantile,
    find_wilson_interval,
)

Scale = Literal["share", "positive", "difference"]
_Cluster = TypeVar("_Cluster")
_SEED = 20230331
_BLOCKS = 200  # at most so many fits of a statistic that is not a ratio
_FLAT = 1e-24  # a variance of the leave-outs, relative to the squared value, that is only rounding


@dataclass(frozen=True, slots=True)
class ClusterEstimate:
    """A statistic with its 95 % interval."""

    value: float | None  # None if it is not defined, for example a share of nothing
    low: float | None  # None if no interval can be trusted
    high: float | None
    clusters: int  # number of independent parts
    withheld: str | None = None  # why there is no interval
    freedom: float = 1e9  # degrees of freedom of the variance; many where it is known
    is_flat: bool = False  # whether all clusters are equal, which says nothing of how far others would differ

    @property
    def interval(self) -> Interval | None:
        """Both ends of the interval."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    def to_json(self) -> dict[str, Any]:
        """Return the estimate as JSON content; ``withheld`` is there only if there is no interval."""
        content = {"value": self.value, "low": self.low, "high": self.high, "clusters": self.clusters}
        return content | ({"withheld": self.withheld} if self.withheld else {})


def estimate_ratio(
    clusters: Iterable[tuple[float, float]] | Counter[tuple[float, float]],
    scale: Scale | None = None,
    *,
    name: str = "conversation",
) -> ClusterEstimate:
    """Estimate the sum of the numerators divided by the sum of the denominators.

    Args:
        clusters: The numerator and denominator of each cluster, or how many have which. Where the denominator is 0, the
            cluster does not count.
        scale: ``share`` for values from 0 to 1, ``positive`` for other means of values that are not negative, and
            ``difference`` for all others; from the numerators if None.
        name: What a cluster is, for the reason why an interval is withheld.
    """
    pairs = Counter(clusters)
    for pair in [pair for pair in pairs if pair[1] <= 0 or not pairs[pair]]:
        del pairs[pair]
    count = pairs.total()
    if not count:
        return ClusterEstimate(None, None, None, 0, f"no {name} counts")
    top = fsum(times * above for (above, _), times in pairs.items())
    bottom = fsum(times * below for (_, below), times in pairs.items())
    if scale is None:
        is_share = all(0 <= above <= below for above, below in pairs)
        scale = "share" if is_share else "positive" if all(above >= 0 for above, _ in pairs) else "difference"
    if count < FEW:
        return ClusterEstimate(top / bottom, None, None, count, _count_few(count, name))
    weights = {below for _, below in pairs}
    if scale == "share" and len(weights) == 1 and all(above in (0, below) for above, below in pairs):
        return ClusterEstimate(top / bottom, *find_wilson_interval(top / bottom, count), count)
    if max(weights) >= bottom:
        return ClusterEstimate(top / bottom, None, None, count, f"one {name} makes up everything")
    without = [((top - above) / (bottom - below), times) for (above, below), times in pairs.items()]
    estimate = estimate_from_leave_outs(top / bottom, without, scale, count, name)
    if scale != "share" or estimate.low is None or estimate.high is None:
        return estimate
    # No share varies more than one whose clusters are each all or nothing. The jackknife does not know that: with a
    # single event among hundreds of clusters, it has two degrees of freedom and nearly no upper end.
    equal_clusters = bottom**2 / fsum(times * below**2 for (_, below), times in pairs.items())
    low, high = find_wilson_interval(top / bottom, equal_clusters)
    return replace(estimate, low=max(low, estimate.low), high=min(high, estimate.high))


def estimate_statistics(
    clusters: Sequence[_Cluster],
    measure: Callable[[Sequence[_Cluster]], Sequence[float | None]],
    scale: Scale,
) -> list[ClusterEstimate]:
    """Estimate statistics of ``clusters``, which are tasks, that are not ratios of sums, such as fitted parameters.

    With more than 200 clusters, equal random blocks of them are left out, not single ones.

    Args:
        clusters: The independent observations.
        measure: Returns the statistics; None for one that is not defined.
        scale: Of all statistics.
    """
    values, count, name = measure(clusters), len(clusters), "task"
    if count < FEW:
        return [ClusterEstimate(value, None, None, count, _count_few(count, name)) for value in values]
    order = Random(_SEED).sample(range(count), count)  # noqa: S311
    blocks = min(count, _BLOCKS)
    rows = [
        measure([clusters[at] for position, at in enumerate(order) if position % blocks != block])
        for block in range(blocks)
    ]
    estimates: list[ClusterEstimate] = []
    for value, column in zip(values, zip(*rows, strict=True), strict=True):
        known = [left_out for left_out in column if left_out is not None]
        if value is None or len(known) < blocks:
            why = "not defined" if value is None else f"not defined without one {name}"
            estimates.append(ClusterEstimate(value, None, None, count, why))
        else:
            without = [(left_out, 1) for left_out in known]
            estimates.append(estimate_from_leave_outs(value, without, scale, blocks, name, clusters=count))
    return estimates


def estimate_from_leave_outs(
    value: float,
    without: Sequence[tuple[float, int]],
    scale: Scale,
    count: int,
    name: str,
    *,
    clusters: int | None = None,
) -> ClusterEstimate:
    """Return ``value`` with its interval by the jackknife.

    Args:
        value: The statistic of all observations.
        without: Its values without each part, with how often these occur.
        scale: The scale on which the interval is symmetric.
        count: Number of parts.
        name: What a cluster is, for the reason why an interval is withheld.
        clusters: Number of clusters, if a part has several.
    """
    clusters = clusters or count
    mean = fsum(times * left_out for left_out, times in without) / count
    squares = fsum(times * (left_out - mean) ** 2 for left_out, times in without)
    thirds = fsum(times * (left_out - mean) ** 3 for left_out, times in without)
    fourths = fsum(times * (left_out - mean) ** 4 for left_out, times in without)
    is_flat = squares <= _FLAT * max(value * value, mean * mean) or fourths == 0
    if scale == "share" and (is_flat or value in (0, 1)):
        return ClusterEstimate(value, *find_wilson_interval(value, clusters), clusters)
    if is_flat:
        why = f"all {clusters:,} {name}s are equal"
        return ClusterEstimate(value, None, None, clusters, why, is_flat=True)
    freedom = find_freedom(count, squares, fourths)
    variance = (count - 1) / count * squares
    if scale == "share":
        # Wilson's interval for as many independent observations as vary so much. Simulation chose the quarter.
        freedom, effective = min(count - 1.0, 1.25 * freedom), value * (1 - value) / variance
        ends = find_wilson_interval(value, effective, find_t_quantile(freedom))
        return ClusterEstimate(value, *ends, clusters, freedom=freedom)
    reach = find_t_quantile(freedom) * sqrt(variance)
    # A sample of a skewed quantity often lacks its rare large values: then mean and variance are both too small. So
    # the end on the side of the tail moves out by half the skewness (Fisher and Pearson's) over the root of the count.
    # Simulation chose the half. Leaving out a large part lowers the value, hence the sign.
    lean = -thirds / squares**1.5 / 2 * sqrt(count * (count - 1)) / max(1, count - 2)
    down, up = reach * (1 + max(0.0, -lean)), reach * (1 + max(0.0, lean))
    if scale == "difference":
        ends = value - down, value + up
    else:
        ends = value * exp(-reach / value), value * exp(min(up / value, 700.0))
    return ClusterEstimate(value, *ends, clusters, freedom=freedom)


def _count_few(count: int, name: str) -> str:
    return f"only {count} {name}{'' if count == 1 else 's'}, and an interval needs {FEW}"


def estimate_difference(first: ClusterEstimate, second: ClusterEstimate) -> ClusterEstimate:
    """Return ``first`` minus ``second``, which are independent.

    Its interval keeps the distances of both ends, so it is right for skewed intervals, too; for shares it is Newcombe's
    (1998, method 10). Its degrees of freedom are Welch's. Source: G. Y. Zou and A. Donner, Construction of confidence
    limits about effect measures (2008).
    """
    clusters, withheld = min(first.clusters, second.clusters), first.withheld or second.withheld
    if first.value is None or second.value is None:
        return ClusterEstimate(None, None, None, clusters, withheld)
    value = first.value - second.value
    # Where all clusters of one side are equal, the other side alone gives the width, as in Welch's interval.
    ends, others = (
        (side, side) if of.is_flat else of.interval
        for of, side in ((first, first.value), (second, second.value))
    )
    if ends is None or others is None or (first.is_flat and second.is_flat):
        return ClusterEstimate(value, None, None, clusters, withheld)

    def reach(one: float, other: float) -> float:
        errors = one / find_t_quantile(first.freedom), other / find_t_quantile(second.freedom)
        error, fourths = hypot(*errors), errors[0] ** 4 / first.freedom + errors[1] ** 4 / second.freedom
        return find_t_quantile(error**4 / fourths) * error if error else 0.0

    low = value - reach(first.value - ends[0], others[1] - second.value)
    high = value + reach(ends[1] - first.value, second.value - others[0])
    return ClusterEstimate(value, low, high, clusters)


class ClusterTotals:
    """The denominators of several ratios of the same observations, summed by cluster once."""

    def __init__(
        self, labels: Iterable[Hashable], totals: Iterable[float] = repeat(1.0), *, name: str = "conversation"
    ) -> None:
        """Sum the ``totals`` of observations, each of which belongs to the cluster of its label."""
        self.name = name
        self._totals = sum_by_label(zip(labels, totals, strict=False))
        self._counted = Counter(self._totals.values())

    def estimate(self, sums: Mapping[Hashable, float], scale: Scale | None = None) -> ClusterEstimate:
        """Estimate the ratio whose numerators are ``sums`` by label; a label that is missing has 0."""
        pairs = Counter({(0.0, total): times for total, times in self._counted.items()})
        for label, above in sums.items():
            total = self._totals.get(label, 0.0)
            pairs[0.0, total] -= 1
            pairs[above, total] += 1
        return estimate_ratio(pairs, scale, name=self.name)


def sum_by_label(values: Iterable[tuple[Hashable, float]]) -> dict[Hashable, float]:
    """Return the sum of the values of each label."""
    sums: defaultdict[Hashable, float] = defaultdict(float)
    for label, value in values:
        sums[label] += value
    return sums
