"""Estimates from observations that depend on each other within a cluster."""

from __future__ import annotations

from math import exp, inf
from random import Random

import pytest

from bactrian.stats.clusters import ClusterTotals, estimate_difference, estimate_ratio, estimate_statistics
from bactrian.stats.intervals import Proportion, find_t_quantile


def test_the_interval_of_independent_shares_is_wilsons() -> None:
    rows = [(1.0, 1.0)] * 12 + [(0.0, 1.0)] * 28
    assert estimate_ratio(rows).interval == Proportion(12, 40).interval
    of_tenfold_turns = estimate_ratio([(10 * above, 10 * below) for above, below in rows])
    assert of_tenfold_turns.interval == Proportion(12, 40).interval  # ten equal turns say no more than one


def test_clusters_of_like_observations_make_an_interval_wider() -> None:
    draw = Random(4)
    rates = [draw.betavariate(0.7, 1.6) for _ in range(50)]
    rows = [(float(sum(draw.random() < rate for _ in range(10))), 10.0) for rate in rates]
    clustered = estimate_ratio(rows)
    alone = Proportion(int(sum(above for above, _ in rows)), 500).interval
    assert clustered.interval is not None and alone is not None
    assert clustered.interval[1] - clustered.interval[0] > 1.5 * (alone[1] - alone[0])


def test_an_event_that_was_seen_once_is_hardly_less_certain_than_one_that_was_not() -> None:
    # 200 conversations, sixteen of which share their roles: the jackknife alone would say 0.0 to 27.5 %.
    rows = [(1.0, 1.0)] + [(0.0, 1.0)] * 183 + [(0.0, 2.0)] * 8
    seen, unseen = estimate_ratio(rows), estimate_ratio([(0.0, below) for _, below in rows])
    assert seen.interval is not None and unseen.interval is not None
    assert unseen.interval[1] < seen.interval[1] < 0.03
    assert 0 < seen.interval[0] < 0.005 < seen.interval[1]


def test_an_interval_of_few_skewed_values_holds_the_truth_as_often_as_it_says() -> None:
    # Samples of ten often lack the rare long conversations that make up much of the mean.
    draw, held = Random("skewed"), 0
    for _ in range(2000):
        values = [(draw.lognormvariate(0, 1), 1.0) for _ in range(10)]
        low, high = estimate_ratio(values, "positive").interval or (0.0, 0.0)
        held += low <= exp(0.5) <= high
    assert held >= 0.925 * 2000


def test_the_interval_of_a_difference_reaches_as_far_whichever_side_is_first() -> None:
    draw = Random(8)
    values = [draw.expovariate(1) for _ in range(12)]
    forth, back = (
        estimate_ratio([(sign * value, 1.0) for value in values], "difference").interval for sign in (1, -1)
    )
    assert forth is not None and back is not None
    assert forth == pytest.approx((-back[1], -back[0]))
    assert forth[1] - sum(values) / 12 > sum(values) / 12 - forth[0]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([(1.0, 2.0)] * 9, "only 9 conversations, and an interval needs 10"),
        ([(1.0, 2.0)], "only 1 conversation, and"),
        ([(0.0, 0.0)] * 20, "no conversation counts"),
        ([(7.0, 1.0)] * 20, "all 20 conversations are equal"),
    ],
)
def test_an_interval_that_cannot_be_trusted_is_withheld_with_the_reason(
    rows: list[tuple[float, float]], reason: str
) -> None:
    estimate = estimate_ratio(rows)
    assert estimate.interval is None
    assert reason in (estimate.withheld or "")
    assert reason in estimate.to_json()["withheld"]


@pytest.mark.parametrize("scale", ["share", "positive", "difference"])
def test_no_interval_has_zero_width(scale: str) -> None:
    draw = Random(6)
    for _ in range(300):
        count, rare = draw.randint(1, 40), draw.choice((0.0, 0.02, 0.5, 1.0))
        rows = [
            (float(draw.random() < rare) * (draw.choice((1, 3)) if scale != "share" else 1), 1.0)
            for _ in range(count)
        ]
        if scale == "difference":
            rows = [(above - 1, below) for above, below in rows]
        estimate = estimate_ratio(rows)
        if estimate.interval is not None:
            assert -inf < estimate.interval[0] < estimate.interval[1] < inf


def test_totals_give_the_estimates_of_their_observations() -> None:
    draw = Random(7)
    labels = [draw.randrange(30) for _ in range(200)]
    shown = [float(draw.random() < 0.2) for _ in range(200)]
    sums: dict[int, list[float]] = {}
    for label, value in zip(labels, shown, strict=True):
        pair = sums.setdefault(label, [0.0, 0.0])
        pair[0] += value
        pair[1] += 1.0
    expected = estimate_ratio([(above, below) for above, below in sums.values()])
    assert (
        ClusterTotals(labels).estimate({label: above for label, (above, _) in sums.items() if above})
        == expected
    )


def test_statistics_that_are_no_ratios_have_the_interval_of_the_ratio_where_they_are_one() -> None:
    draw = Random(8)
    values = [draw.lognormvariate(2, 0.6) for _ in range(60)]
    (fitted,) = estimate_statistics(values, lambda of: [sum(of) / len(of)], "positive")
    expected = estimate_ratio([(value, 1.0) for value in values], "positive")
    assert fitted.interval == pytest.approx(expected.interval)
    (few,) = estimate_statistics(values[:9], lambda of: [sum(of) / len(of)], "positive")
    assert few.withheld == "only 9 tasks, and an interval needs 10"


def test_a_difference_from_itself_is_not_taken_for_exact() -> None:
    draw = Random(3)
    mean = estimate_ratio([(float(draw.randint(2, 40)), 1.0) for _ in range(200)])
    change = estimate_difference(mean, mean)
    assert change.low is not None and change.high is not None
    assert change.low < -1 < 1 < change.high
    assert estimate_difference(mean, estimate_ratio([(1.0, 2.0)])).withheld is not None


@pytest.mark.parametrize(("freedom", "quantile"), [(1, 12.706), (2.5, 3.575), (9.5, 2.244), (30, 2.042)])
def test_students_quantile_is_that_of_its_table(freedom: float, quantile: float) -> None:
    assert find_t_quantile(freedom) == pytest.approx(quantile, rel=0.016)
