"""Bootstrap over sessions, for statistics of turns: turns of one session depend on each other, sessions do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import sqrt
from random import Random
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, TypeVar

from bactrian.stats.intervals import Proportion, find_percentiles

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_DRAWS = 1000
_SEED = 20230331
# Rows that are picked at once, so that a few hundred sessions take one step and a million little memory.
_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class BootstrapSums:
    """Sums over sessions, and the same sums over a thousand resamples of the sessions with replacement."""

    sums: Mapping[str, float]
    drawn: Mapping[str, NDArray[np.float64]]  # the sums of the resamples, by name

    def ratio(self, top: str, bottom: str) -> float:
        """Return one sum divided by another; 0 if the divisor is 0."""
        return self.sums[top] / self.sums[bottom] if self.sums[bottom] else 0.0

    def interval(self, top: str, bottom: str) -> tuple[float, float] | None:
        """Return the 95 % interval of :meth:`ratio`: from the 2.5th to the 97.5th percentile of the draws.

        None if there are too few sessions, or too many resamples whose divisor is 0.
        """
        return _compute_interval(self._ratios(top, bottom))

    def difference_interval(self, other: BootstrapSums, top: str, bottom: str) -> tuple[float, float] | None:
        """Return the 95 % interval of this ratio minus that of ``other``."""
        # Both used the same seed: reversing one sequence makes the draws independent.
        return _compute_interval(self._ratios(top, bottom) - other._ratios(top, bottom)[::-1])

    def _ratios(self, top: str, bottom: str) -> NDArray[np.float64]:
        import numpy as np

        divisor = self.drawn[bottom]
        return np.divide(self.drawn[top], divisor, out=np.full_like(divisor, np.nan), where=divisor > 0)


def resample(rows: Sequence[Sequence[float]], names: Sequence[str]) -> BootstrapSums:
    """Resample ``rows`` with replacement: one row per session, one column per name."""
    import numpy as np

    table = np.asarray(rows, dtype=np.float64).reshape(len(rows), len(names))
    generator = np.random.default_rng(_SEED)
    drawn = np.full((_DRAWS, len(names)), np.nan)
    if len(rows) > 1:
        pick = partial(generator.integers, 0, len(rows))
        for part, weights in _draw_weights(drawn, len(rows), pick):
            part[:] = weights @ table
    sums = table.sum(axis=0)
    return BootstrapSums(
        {name: float(sums[column]) for column, name in enumerate(names)},
        {name: drawn[:, column] for column, name in enumerate(names)},
    )


def _draw_weights(
    drawn: NDArray[np.float64], count: int, pick: Callable[[tuple[int, int]], NDArray[np.intp]]
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.intp]]]:
    """Yield some rows of ``drawn`` at a time, with how often each of ``count`` items is in each of these resamples."""
    import numpy as np

    step = max(1, _AT_ONCE // count)
    for first in range(0, len(drawn), step):
        part = drawn[first : first + step]
        # Numbered through all resamples of the part, they are counted in one call.
        picked = pick((len(part), count)) + count * np.arange(len(part))[:, np.newaxis]
        yield part, np.bincount(picked.ravel(), minlength=picked.size).reshape(picked.shape)


def _compute_interval(values: NDArray[np.float64]) -> tuple[float, float] | None:
    import numpy as np

    known = np.sort(values[~np.isnan(values)])
    if len(known) < _DRAWS // 2:
        return None
    return find_percentiles(known, 0.025)


# Percentile bootstrap over clusters, for statistics whose observations depend on each other within a cluster.
#
# The verdicts on one task, in both orders and by several judges, are one cluster: they are drawn together.


RESAMPLES = 2000
SEED = 20230331  # of all resamples: the same data give the same interval
_FEW = 30
_Cluster = TypeVar("_Cluster")


@dataclass(frozen=True, slots=True)
class BootstrapEstimate:
    """A statistic with its 95 % interval."""

    value: float | None  # None if it is not defined, for example a share of nothing
    # A low percentile of the resamples; None for fewer than two clusters, or if it is rarely defined.
    low: float | None
    high: float | None  # the high percentile of the same distance to 100
    clusters: int

    def to_json(self) -> dict[str, Any]:
        """Return the estimate as JSON content."""
        return asdict(self)


def bootstrap_clusters(
    clusters: Sequence[_Cluster],
    measure: Callable[[Sequence[_Cluster]], Sequence[float | None]],
    *,
    resamples: int = RESAMPLES,
) -> list[BootstrapEstimate]:
    """Estimate statistics of ``clusters`` with 95 % percentile intervals.

    All statistics share the same resamples. ``measure`` returns None for a statistic that is not defined.
    """
    values = measure(clusters)
    draw = Random(SEED)  # noqa: S311
    count = len(clusters)
    drawn = [measure(draw.choices(clusters, k=count)) for _ in range(resamples if count > 1 else 0)]
    return [
        _estimate(
            value,
            sorted(of for row in drawn if (of := row[position]) is not None),
            count,
            resamples,
        )
        for position, value in enumerate(values)
    ]


def bootstrap_ratios(
    rows: Sequence[Sequence[tuple[float, float]]], *, resamples: int = RESAMPLES
) -> list[BootstrapEstimate]:
    """Estimate ratios of sums over clusters, as :func:`bootstrap_clusters` does with :func:`measure_ratios`.

    The resamples are the same ones, and all are summed at once.

    Args:
        rows: For each cluster, a numerator and a denominator for each statistic.
        resamples: Number of resamples.
    """
    import numpy as np

    values, count = measure_ratios(rows), len(rows)
    tops, bottoms = np.moveaxis(np.asarray(rows, dtype=np.float64).reshape(count, len(values), 2), 2, 0)
    draw = np.random.RandomState([SEED])  # gives the numbers of Random(SEED)
    drawn = np.full((resamples if count > 1 else 0, len(values)), np.nan)

    def pick(shape: tuple[int, int]) -> NDArray[np.intp]:
        return (draw.random_sample(shape) * count).astype(np.intp)

    for part, weights in _draw_weights(drawn, max(count, 1), pick):
        divisor = weights @ bottoms
        np.divide(weights @ tops, divisor, out=part, where=divisor != 0)
    return [
        _estimate(value, np.sort(column[~np.isnan(column)]), count, resamples)
        for value, column in zip(values, drawn.T, strict=True)
    ]


def _estimate(
    value: float | None, known: Sequence[float] | NDArray[np.float64], clusters: int, resamples: int
) -> BootstrapEstimate:
    """Return ``value`` with the interval of the sorted values of the resamples in which it is ``known``."""
    enough = len(known) > 0 and len(known) >= resamples / 2
    low, high = find_percentiles(known, find_level(clusters)) if enough else (None, None)
    return BootstrapEstimate(value, low, high, clusters)


def find_level(clusters: int) -> float:
    """Return the share of the resamples below a 95 % interval: 0.025 for many clusters, less for few.

    A sample varies less than the population, and its spread is itself uncertain: without this, intervals of few
    clusters are too narrow. Source: T. Hesterberg, What teachers should know about the bootstrap (2015), section 5.2.
    """
    normal = NormalDist()
    z, freedom = normal.inv_cdf(0.975), clusters - 1
    quantile = z + (z**3 + z) / (4 * freedom)  # Of Student's distribution, to the first order.
    return normal.cdf(-sqrt(clusters / freedom) * quantile)


def measure_ratios(rows: Sequence[Sequence[tuple[float, float]]]) -> list[float | None]:
    """Return the sum of the numerators divided by that of the denominators, column by column; None for 0 / 0.

    Args:
        rows: For each cluster, a numerator and a denominator for each statistic.
    """
    ratios: list[float | None] = []
    for column in zip(*rows, strict=True):
        tops, bottoms = zip(*column, strict=True)
        bottom = sum(bottoms)
        ratios.append(sum(tops) / bottom if bottom else None)
    return ratios


def widen_interval(estimate: BootstrapEstimate, count: int, total: int) -> BootstrapEstimate:
    """Return a share with Wilson's interval for ``count`` of ``total`` where it is better than the bootstrap's.

    That is so if each cluster is one observation, for fewer than 30 clusters, and for a share of 0 or 1, whose
    resamples are all equal.
    """
    if not total or (total > estimate.clusters >= _FEW and 0 < count < total):
        return estimate
    low, high = Proportion(count, total).interval
    return BootstrapEstimate(estimate.value, low, high, estimate.clusters)
