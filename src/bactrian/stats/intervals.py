"""Proportions, means and prevalences with confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from random import Random
from statistics import NormalDist, fmean, stdev

FEW = 10  # observations below which no interval can be trusted: there, even Student's holds the truth too rarely
_Z = 1.959964  # 97.5 % quantile of the standard normal distribution

Interval = tuple[float, float]


def are_independent(sessions: int, roles: int, tasks: int) -> bool:
    """Return whether so many sessions have clusters of one session each.

    Args:
        sessions: Number of sessions.
        roles: Number of different pairs of roles among them.
        tasks: Number of different tasks, as they were before a specifier changed them.
    """
    # With one pair of roles for all, the conclusion is about that pair.
    return not (1 < roles < sessions or 1 < tasks < sessions)


def find_wilson_interval(rate: float, total: float, width: float = _Z) -> Interval:
    """Return the 95 % interval of a share of ``total`` independent observations (Wilson 1927).

    Its ends lie ``width`` standard errors away.
    """
    scale = 1 + width**2 / total
    middle = (rate + width**2 / (2 * total)) / scale
    half = width * sqrt(rate * (1 - rate) / total + width**2 / (4 * total**2)) / scale
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True, slots=True)
class Proportion:
    """``count`` of ``total`` observations."""

    count: int
    total: int
    independent: bool = True  # whether no observations depend on each other, as those of one cluster do

    @property
    def rate(self) -> float:
        """The proportion; 0 if ``total`` is 0."""
        return self.count / self.total if self.total else 0.0

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval (Wilson 1927); None for fewer than 10 observations, or dependent ones."""
        trusted = self.total >= FEW and self.independent
        return find_wilson_interval(self.rate, self.total) if trusted else None


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
    def interval(self) -> Interval | None:
        """The 95 % interval of :attr:`difference` (Newcombe 1998, improved intervals for paired data, method 10).

        None for fewer than 10 subjects.
        """
        if self.second.interval is None or self.first.interval is None:
            return None
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


# Student's interval of a mean, for few independent observations such as seeds.


# 97.5 % quantiles of Student's t with 1 to 10 degrees of freedom.
_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def find_mean_interval(values: Sequence[float]) -> Interval | None:
    """Return the 95 % interval of the mean of independent, nearly normal ``values``.

    None for fewer than two, and for equal ones: so few observations show no variation, not that there is none.
    """
    if len(set(values)) < 2:
        return None
    half = find_t_quantile(len(values) - 1) * stdev(values) / sqrt(len(values))
    return fmean(values) - half, fmean(values) + half


def find_freedom(count: int, squares: float, fourths: float) -> float:
    """Return the degrees of freedom of the variance of ``count`` values, from the sums of powers of their deviations.

    They are fewer where a few values make up most of the variance, because it is itself uncertain then.
    """
    return min(count - 1.0, max(2.0, 1.5 * squares**2 / fourths - 0.5))


def find_t_quantile(freedom: float) -> float:
    """Return the 97.5 % quantile of Student's t with ``freedom`` degrees of freedom: 1, or at least 2.

    It errs by less than 1.6 %, from 4 degrees on by less than 0.3 %.
    """
    below = int(freedom)
    if below < len(_QUANTILES):  # interpolated in the reciprocal, in which the quantile is nearly linear
        low, high = _QUANTILES[below - 1 : below + 1]
        return low + (high - low) * (1 / below - 1 / freedom) / (1 / below - 1 / (below + 1))
    normal = NormalDist().inv_cdf(0.975)
    # Cornish and Fisher's expansion; from 10 degrees on it errs by less than 0.001.
    return (
        normal
        + (normal**3 + normal) / (4 * freedom)
        + (5 * normal**5 + 16 * normal**3 + 3 * normal) / (96 * freedom**2)
    )


# How common something is, from a detector that errs and a sample that was checked.
#
# All items are divided into those that the detector names and all others; a random sample of each part is
# checked. The rate is the sum of both parts' shares (double sampling, Tenenbein 1970), which is unbiased
# however bad the detector is. With the confusion matrix of the sample it equals the estimator of Rogan and
# Gladen (1978).


_DRAWS = 4000
_SEED = 20230331


@dataclass(frozen=True, slots=True)
class Stratum:
    """A part of the items."""

    items: int  # number of items in it
    checked: int  # number of items of the random sample whose answer is known
    held: int  # Checked items that show what is looked for
    unread: int = 0  # Items of the sample whose answer cannot be read

    @property
    def rate(self) -> float:
        """Share of the checked items that were confirmed; 0 if none was checked."""
        return self.held / self.checked if self.checked else 0.0

    def settle(self, holds: bool) -> Stratum:
        """Return the part as it is if all unread items show what is looked for, or none does."""
        return Stratum(self.items, self.checked + self.unread, self.held + holds * self.unread)


@dataclass(frozen=True, slots=True)
class IntervalEstimate:
    """A value with the ends of its 95 % interval; None for a value that is not defined, or an interval withheld."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Prevalence:
    """What a checked sample says of all items, and of the detector."""

    rate: IntervalEstimate  # share of all items that show it
    precision: IntervalEstimate  # share of the found items that show it; None where nothing was found
    recall: IntervalEstimate  # share found of the items that show it; None if no checked item shows it


def estimate_prevalence(hits: Stratum, *others: Stratum, draws: int = _DRAWS) -> Prevalence:
    """Estimate the rate in all items, and the precision and recall of the detector, from samples of all parts.

    Intervals are 95 %: the share of each part is drawn from its posterior under Jeffreys' prior, so that an interval is
    right, too, if no checked item shows it. A part that was checked completely has no uncertainty. Where fewer than
    ten items of any other part could be read, there is no interval. Items that could not be read widen it to the worst
    case: to both ends as they are if all of these show it, or none does. With more ``draws`` the ends are more exact.
    """
    parts = (hits, *others)
    values = _combine(parts, [part.rate for part in parts])
    if any(part.checked < min(part.items, FEW) for part in parts):
        return Prevalence(*(IntervalEstimate(value, None, None) for value in values))
    cases = ((True, True), (True, False), (False, True), (False, False))
    ends: list[list[tuple[float, float]]] = []
    for hits_hold, others_hold in cases if any(part.unread for part in parts) else cases[:1]:
        draw = Random(_SEED)  # noqa: S311
        case = (hits.settle(hits_hold), *(part.settle(others_hold) for part in others))
        drawn = [_combine(case, [_draw_rate(draw, part) for part in case]) for _ in range(draws)]
        columns = (sorted(value or 0.0 for value in column) for column in zip(*drawn, strict=True))
        ends.append([(ordered[draws // 40], ordered[-1 - draws // 40]) for ordered in columns])
    estimates: list[IntervalEstimate] = []
    for value, pairs in zip(values, zip(*ends, strict=True), strict=True):
        if value is None:
            estimates.append(IntervalEstimate(None, None, None))
            continue
        # Draws of a posterior never reach a share of nothing or of all, which is what was seen.
        low, high = min(low for low, _ in pairs), max(high for _, high in pairs)
        estimates.append(IntervalEstimate(value, min(low, value), max(high, value)))
    return Prevalence(*estimates)


def _combine(parts: Sequence[Stratum], rates: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Return rate, precision and recall; the first part is what was found."""
    right, *rest = (part.items * rate for part, rate in zip(parts, rates, strict=True))
    missed = sum(rest)
    return (
        (right + missed) / max(1, sum(part.items for part in parts)),
        rates[0] if parts[0].items else None,
        right / (right + missed) if right + missed else None,
    )


def _draw_rate(draw: Random, stratum: Stratum) -> float:
    if stratum.checked >= stratum.items:
        return stratum.rate
    return draw.betavariate(stratum.held + 0.5, stratum.checked - stratum.held + 0.5)
