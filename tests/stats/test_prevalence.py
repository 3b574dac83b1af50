from __future__ import annotations

import numpy as np
import pytest

from bactrian.stats.intervals import Stratum, estimate_prevalence


def test_the_rate_adds_what_was_found_rightly_and_what_was_missed() -> None:
    got = estimate_prevalence(Stratum(100, 50, 40), Stratum(900, 90, 9))
    assert got.rate.value == pytest.approx((100 * 0.8 + 900 * 0.1) / 1000)
    assert got.precision.value == pytest.approx(0.8)
    assert got.recall.value == pytest.approx(80 / 170)
    assert got.rate.low < got.rate.value < got.rate.high


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
    assert 0.02 < got.rate.high < 0.08


def test_nothing_is_uncertain_once_everything_was_checked() -> None:
    got = estimate_prevalence(Stratum(4, 4, 3), Stratum(6, 6, 1))
    assert got.rate.low == got.rate.value == got.rate.high == pytest.approx(0.4)


@pytest.mark.slow
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
        held += got.rate.low <= shown / 3000 <= got.rate.high
    assert held >= 180
