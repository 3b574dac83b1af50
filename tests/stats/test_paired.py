"""Intervals for paired proportions are those that their author published."""

from __future__ import annotations

import pytest

from bactrian.stats.intervals import PairedProportions


@pytest.mark.parametrize(
    ("counts", "interval"),
    [
        ((36, 2, 12, 0), (0.0569, 0.3404)),
        ((36, 12, 2, 0), (-0.3404, -0.0569)),
        ((43, 0, 0, 7), (-0.0638, 0.0638)),
    ],
)
def test_the_interval_is_newcombes(counts: tuple[int, int, int, int], interval: tuple[float, float]) -> None:
    paired = PairedProportions(*counts)
    assert paired.interval is not None
    assert paired.interval == pytest.approx(interval, abs=1e-4)
    assert paired.interval[0] <= paired.difference <= paired.interval[1]
