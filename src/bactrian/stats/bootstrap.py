"""Bootstrap over sessions, for statistics of turns: turns of one session depend on each other, sessions do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bactrian.stats.percentiles import find_percentiles

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_DRAWS = 1000
_SEED = 20230331
_AT_ONCE = 1 << 16
"""Rows that are picked at once, so that a few hundred sessions take one step and a million little memory."""


@dataclass(frozen=True, slots=True)
class BootstrapSums:
    """Sums over sessions, and the same sums over a thousand resamples of the sessions with replacement."""

    sums: Mapping[str, float]
    drawn: Mapping[str, NDArray[np.float64]]
    """The sums of the resamples, by name."""

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
        step = max(1, _AT_ONCE // len(rows))
        for first in range(0, _DRAWS, step):
            part = drawn[first : first + step]
            picked = generator.integers(0, len(rows), (len(part), len(rows)))
            # Numbered through all resamples of the part, they are counted in one call.
            picked += len(rows) * np.arange(len(part))[:, np.newaxis]
            weights = np.bincount(picked.ravel(), minlength=picked.size).reshape(picked.shape)
            part[:] = weights @ table
    sums = table.sum(axis=0)
    return BootstrapSums(
        {name: float(sums[column]) for column, name in enumerate(names)},
        {name: drawn[:, column] for column, name in enumerate(names)},
    )


def _compute_interval(values: NDArray[np.float64]) -> tuple[float, float] | None:
    import numpy as np

    known = np.sort(values[~np.isnan(values)])
    if len(known) < _DRAWS // 2:
        return None
    return find_percentiles(known, 0.025)
