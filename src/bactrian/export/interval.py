"""How sure a share is."""

from __future__ import annotations

from math import sqrt

_Z = 1.959964
"""Of the normal distribution: 95 % lie within so many standard deviations."""


def wilson(count: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a share of ``count`` in ``total`` (Wilson 1927); (0, 1) if there is nothing to count."""
    if total == 0:
        return 0.0, 1.0
    share = count / total
    scale = 1 + _Z**2 / total
    middle = (share + _Z**2 / (2 * total)) / scale
    half = _Z * sqrt(share * (1 - share) / total + _Z**2 / (4 * total**2)) / scale
    return max(0.0, middle - half), min(1.0, middle + half)
