"""Lengths are estimated rightly while most of what is measured goes on."""

from __future__ import annotations

import pytest

from bactrian.stats.streaming import LengthCounts, SurvivalCurve

NOTHING_ASSUMED = 1e-9


def count(lengths: list[int], seen: int) -> LengthCounts:
    """What is known of ``lengths`` when each was followed for ``seen`` steps."""
    counts = LengthCounts()
    counts.reserve(max(lengths))
    for length in lengths:
        for step in range(min(length, seen)):
            counts.continued[step] += 1
        if length < seen:
            counts.end(length)
    return counts


def test_the_mean_of_all_is_found_when_all_have_ended() -> None:
    curve = count([4, 6, 8], 99).estimate(lambda _: 0.5, NOTHING_ASSUMED, 12)
    assert curve.find_remaining(float)[0].mean == pytest.approx(6, abs=1e-3)
    assert curve.find_remaining(float)[0].variance == pytest.approx(8 / 3, abs=1e-2)


def test_what_goes_on_counts_although_only_the_shortest_has_ended() -> None:
    curve = count([4, 20, 20, 20], 10).estimate(lambda _: 0.0, NOTHING_ASSUMED, 20)
    assert curve.find_remaining(float)[0].mean == pytest.approx((4 + 3 * 20) / 4, abs=1e-3)


def test_what_is_left_depends_on_the_length_so_far() -> None:
    remaining = SurvivalCurve((1.0, 0.5, 0.5, 0.0)).find_remaining(float)
    assert [rest.mean for rest in remaining] == [2.0, 2.0, 1.0, 0.0]


def test_the_longest_of_many_is_longer_than_the_mean() -> None:
    curve = SurvivalCurve((1.0, 0.5, 0.5, 0.0))
    assert curve.find_longest(1, (1.0,) * len(curve.beyond)) == 2.0
    assert 2.9 < curve.find_longest(10, (1.0,) * len(curve.beyond)) <= 3.0
