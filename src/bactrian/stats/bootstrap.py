"""How sure a number is that is made of turns: turns of one session are not independent of each other, sessions are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_DRAWS = 1000
_SEED = 20230331


@dataclass(frozen=True, slots=True)
class BootstrapSums:
    """Sums over sessions, and the same sums over sessions drawn anew with replacement, a thousand times."""

    sums: Mapping[str, float]
    drawn: Mapping[str, NDArray[np.float64]]
    """By name, the thousand sums."""

    def ratio(self, top: str, bottom: str) -> float:
        """One sum over another; 0 if there is nothing to divide by."""
        return self.sums[top] / self.sums[bottom] if self.sums[bottom] else 0.0

    def interval(self, top: str, bottom: str) -> tuple[float, float] | None:
        """The 95 % interval of :meth:`ratio`: from the 2.5th to the 97.5th percentile of the draws.

        None where sessions are too few, or too many have nothing to divide by, to say.
        """
        return _percentiles(self._ratios(top, bottom))

    def difference_interval(self, other: BootstrapSums, top: str, bottom: str) -> tuple[float, float] | None:
        """The 95 % interval of this ratio less that of ``other``."""
        # Both were drawn with the same seed: turned round, one says nothing of the other.
        return _percentiles(self._ratios(top, bottom) - other._ratios(top, bottom)[::-1])

    def _ratios(self, top: str, bottom: str) -> NDArray[np.float64]:
        import numpy as np

        below = self.drawn[bottom]
        return np.divide(self.drawn[top], below, out=np.full_like(below, np.nan), where=below > 0)


def resample(rows: Sequence[Sequence[float]], names: Sequence[str]) -> BootstrapSums:
    """Draw ``rows`` anew: a row for each session, a column for each of ``names``."""
    import numpy as np

    table = np.asarray(rows, dtype=np.float64).reshape(len(rows), len(names))
    draw = np.random.default_rng(_SEED)
    drawn = np.full((_DRAWS, len(names)), np.nan)
    if len(rows) > 1:
        for number in range(_DRAWS):
            times = np.bincount(draw.integers(0, len(rows), len(rows)), minlength=len(rows))
            drawn[number] = times @ table
    sums = table.sum(axis=0)
    return BootstrapSums(
        {name: float(sums[column]) for column, name in enumerate(names)},
        {name: drawn[:, column] for column, name in enumerate(names)},
    )


def _percentiles(values: NDArray[np.float64]) -> tuple[float, float] | None:
    import numpy as np

    known = values[~np.isnan(values)]
    if len(known) < _DRAWS // 2:
        return None
    low, high = np.percentile(known, (2.5, 97.5))
    return float(low), float(high)
