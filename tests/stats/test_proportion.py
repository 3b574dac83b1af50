"""Shares and how sure they are."""

from __future__ import annotations

import pytest

from bactrian.stats.intervals import Proportion


def test_the_interval_of_a_share_is_wilsons() -> None:
    assert Proportion(5, 10).interval == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert Proportion(0, 10).interval == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert Proportion(5, 9).interval is None
    assert Proportion(0, 0).rate == 0.0


def test_the_interval_of_a_difference_is_newcombes() -> None:
    # The first example of Newcombe 1998: 56 of 70 against 48 of 80.
    assert Proportion(56, 70).difference_interval(Proportion(48, 80)) == pytest.approx(
        (0.0524, 0.3339), abs=1e-4
    )


def test_a_difference_from_few_observations_has_no_interval() -> None:
    assert Proportion(3, 9).difference_interval(Proportion(48, 80)) is None
