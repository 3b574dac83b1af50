"""Shares and how sure they are."""

from __future__ import annotations

import pytest

from bactrian.stats.proportion import Share


def test_the_interval_of_a_share_is_wilsons() -> None:
    assert Share(5, 10).interval == pytest.approx((0.2366, 0.7634), abs=1e-4)
    low, high = Share(0, 10).interval
    assert (low, round(high, 4)) == (0.0, 0.2775)
    assert Share(0, 0).interval == (0.0, 1.0)
    assert Share(0, 0).rate == 0.0


def test_the_interval_of_a_difference_is_newcombes() -> None:
    # The first example of Newcombe 1998: 56 of 70 against 48 of 80.
    assert Share(56, 70).less(Share(48, 80)) == pytest.approx((0.0524, 0.3339), abs=1e-4)


def test_a_difference_of_nothing_says_nothing() -> None:
    assert Share(0, 0).less(Share(0, 0)) == (-1.0, 1.0)
