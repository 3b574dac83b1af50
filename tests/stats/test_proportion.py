"""Shares and how sure they are."""

from __future__ import annotations

import pytest

from bactrian.stats.clusters import ClusterEstimate, estimate_difference, estimate_ratio
from bactrian.stats.intervals import Proportion


def estimate_share(count: int, total: int) -> ClusterEstimate:
    return estimate_ratio([(float(number < count), 1.0) for number in range(total)])


def test_the_interval_of_a_share_is_wilsons() -> None:
    assert Proportion(5, 10).interval == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert Proportion(0, 10).interval == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert Proportion(5, 9).interval is None
    assert Proportion(0, 0).rate == 0.0


def test_the_interval_of_a_difference_is_newcombes() -> None:
    # The first example of Newcombe 1998: 56 of 70 against 48 of 80.
    difference = estimate_difference(estimate_share(56, 70), estimate_share(48, 80))
    assert difference.interval == pytest.approx((0.0524, 0.3339), abs=1e-4)


def test_a_difference_from_few_observations_has_no_interval() -> None:
    assert estimate_difference(estimate_share(3, 9), estimate_share(48, 80)).interval is None
