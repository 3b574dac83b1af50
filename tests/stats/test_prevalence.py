from __future__ import annotations

import numpy as np
import pytest

from bactrian.stats.intervals import IntervalEstimate, Stratum, estimate_prevalence


def read_ends(estimate: IntervalEstimate) -> tuple[float, float]:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low, estimate.high


def test_the_rate_adds_what_was_found_rightly_and_what_was_missed() -> None:
    got = estimate_prevalence(Stratum(100, 50, 40), Stratum(900, 90, 9))
    assert got.rate.value == pytest.approx((100 * 0.8 + 900 * 0.1) / 1000)
    assert got.precision.value == pytest.approx(0.8)
    assert got.recall.value == pytest.approx(80 / 170)
    assert read_ends(got.rate)[0] < (100 * 0.8 + 900 * 0.1) / 1000 < read_ends(got.rate)[1]


def test_it_is_the_estimator_of_rogan_and_gladen() -> None:
    """Their formula, with sensitivity and specificity from the same strata."""
    got = estimate_prevalence(Stratum(100, 50, 40), Stratum(900, 90, 9))
    true, missed, false, right = 80, 90, 20, 810
    sensitivity, specificity = true / (true + missed), right / (right + false)
    apparent = 100 / 1000
    assert got.rate.value == pytest.approx((apparent + specificity - 1) / (sensitivity + specificity - 1))


def test_where_nothing_checked_holds_the_interval_still_has_a_width() -> None:
    got = estimate_prevalence(Stratum(10, 10, 10), Stratum(990, 60, 0))
    assert got.rate.value == pytest.approx(0.01)
    assert got.rate.low == pytest.approx(0.01, abs=1e-3)
    assert 0.02 < read_ends(got.rate)[1] < 0.08


def test_nothing_is_uncertain_once_everything_was_checked() -> None:
    got = estimate_prevalence(Stratum(4, 4, 3), Stratum(6, 6, 1))
    assert got.rate.low == got.rate.value == got.rate.high == pytest.approx(0.4)


def test_an_interval_holds_its_value_where_all_that_was_checked_shows_it() -> None:
    got = estimate_prevalence(Stratum(40, 20, 20), Stratum(60, 30, 30))
    assert got.rate.value == got.rate.high == got.precision.value == got.precision.high == 1
    assert got.rate.low is not None
    assert 0.8 < got.rate.low < 1


def test_precision_of_nothing_found_and_recall_of_nothing_shown_are_not_defined() -> None:
    found = estimate_prevalence(Stratum(0, 0, 0), Stratum(60, 30, 3))
    assert found.precision == IntervalEstimate(None, None, None)
    assert found.recall.value == 0
    shown = estimate_prevalence(Stratum(10, 10, 0), Stratum(60, 30, 0))
    assert shown.recall == IntervalEstimate(None, None, None)
    assert shown.precision.value == 0


def test_fewer_than_ten_answers_of_a_part_have_no_interval_unless_they_are_all() -> None:
    few = estimate_prevalence(Stratum(100, 50, 40), Stratum(900, 9, 1))
    assert few.rate.value == pytest.approx(0.18)
    assert (few.rate.low, few.rate.high) == (None, None)
    assert estimate_prevalence(Stratum(100, 50, 40), Stratum(9, 9, 1)).rate.low is not None


def test_answers_that_cannot_be_read_widen_an_interval_to_the_worst_case() -> None:
    read = estimate_prevalence(Stratum(100, 40, 30), Stratum(900, 90, 9))
    some = estimate_prevalence(Stratum(100, 40, 30, unread=10), Stratum(900, 90, 9, unread=10))
    assert some.rate.value == read.rate.value
    for name in ("rate", "precision", "recall"):
        narrow, wide = getattr(read, name), getattr(some, name)
        assert wide.low < narrow.low < narrow.high < wide.high
    # All unread items of what was found and none of the others show it: the highest recall.
    best = estimate_prevalence(Stratum(100, 50, 40), Stratum(900, 100, 9))
    assert some.recall.high == best.recall.high


@pytest.mark.soak
@pytest.mark.parametrize(("recall", "false"), [(0.9, 0.01), (0.3, 0.05), (0.0, 0.1)])
def test_the_interval_holds_the_truth_nineteen_times_in_twenty(recall: float, false: float) -> None:
    """A detector of known errors on runs of 3,000 turns, one in ten of which shows the behaviour."""
    draw = np.random.default_rng(5)
    held = 0
    for _ in range(200):
        # Only counts matter, so these are drawn: turns that show it, what is found of each kind, what is checked.
        shown = int(draw.binomial(3000, 0.1))
        right, wrong = int(draw.binomial(shown, recall)), int(draw.binomial(3000 - shown, false))
        strata = []
        for holds, holds_not in ((right, wrong), (shown - right, 3000 - shown - wrong)):
            checked = min(holds + holds_not, 150)
            hit = int(draw.hypergeometric(holds, holds_not, checked))
            strata.append(Stratum(holds + holds_not, checked, hit))
        got = estimate_prevalence(*strata, draws=400)
        low, high = read_ends(got.rate)
        held += low <= shown / 3000 <= high
    assert held >= 180
