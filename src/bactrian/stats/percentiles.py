"""Percentiles of what was drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def find_percentiles(ordered: Sequence[float] | NDArray[np.float64], level: float) -> tuple[float, float]:
    """Return the values below which the shares ``level`` and 1 - ``level`` of sorted values lie.

    Values between two of them are interpolated linearly, as ``numpy.percentile`` does; that imports for 40 ms.
    """
    return _interpolate(ordered, level), _interpolate(ordered, 1 - level)


def _interpolate(ordered: Sequence[float] | NDArray[np.float64], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (place - below) * (ordered[above] - ordered[below]))
