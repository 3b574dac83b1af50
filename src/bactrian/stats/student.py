"""Student's interval of a mean, for few independent observations such as seeds."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist, fmean, stdev

_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""97.5 % quantiles of Student's t with 1 to 10 degrees of freedom."""


def find_mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean of independent ``values``; None for fewer than two.

    The interval of equal values is one point: so few observations show no variation, not that there is none.
    """
    if len(values) < 2:
        return None
    half = _find_quantile(len(values) - 1) * stdev(values) / sqrt(len(values))
    return fmean(values) - half, fmean(values) + half


def _find_quantile(degrees: int) -> float:
    if degrees <= len(_QUANTILES):
        return _QUANTILES[degrees - 1]
    normal = NormalDist().inv_cdf(0.975)
    # Cornish and Fisher's expansion; from 11 degrees on it errs by less than 0.001.
    return (
        normal
        + (normal**3 + normal) / (4 * degrees)
        + (5 * normal**5 + 16 * normal**3 + 3 * normal) / (96 * degrees**2)
    )
