"""pass@k: the estimator, and its interval."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from bactrian.evaluate.code_scoring import estimate_pass, summarize_pass


@pytest.mark.parametrize("samples", [1, 2, 5, 7])
def test_the_estimate_is_the_share_of_all_draws_with_a_pass(samples: int) -> None:
    for passed in range(samples + 1):
        marks = [number < passed for number in range(samples)]
        for k in range(1, samples + 1):
            draws = list(combinations(marks, k))
            share = sum(any(draw) for draw in draws) / len(draws)
            assert estimate_pass(samples, passed, k) == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize(("samples", "passed", "k"), [(5, 6, 1), (5, -1, 1), (5, 1, 6), (5, 1, 0)])
def test_what_cannot_be_estimated_is_refused(samples: int, passed: int, k: int) -> None:
    with pytest.raises(ValueError, match="cannot be estimated"):
        estimate_pass(samples, passed, k)
    assert k < 1 or passed not in range(samples + 1) or summarize_pass([(samples, passed)], k) is None


def test_intervals_cover_the_truth() -> None:
    """Problems with chances from a known distribution, whose mean is 0.5."""
    random, covered, studies = Random(7), 0, 200
    for _ in range(studies):
        counts = [
            (4, sum(random.random() < chance for _ in range(4)))
            for chance in (random.random() for _ in range(80))
        ]
        estimate = summarize_pass(counts, 1)
        assert estimate is not None and estimate.low is not None and estimate.high is not None
        covered += estimate.low <= 0.5 <= estimate.high
    assert 0.89 <= covered / studies <= 0.99


def test_nothing_passed_does_not_mean_that_nothing_ever_passes() -> None:
    estimate = summarize_pass([(1, 0)] * 164, 1)
    assert estimate is not None and estimate.high is not None
    assert (estimate.value, estimate.low) == (0.0, 0.0)
    assert 0.01 < estimate.high < 0.03
