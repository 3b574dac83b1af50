"""Agreement, on examples whose coefficients were published."""

from __future__ import annotations

from math import isnan

import pytest

from bactrian.stats.comparisons import measure_alpha, measure_kappa

KRIPPENDORFF = [
    [1, 1, None, 1],
    [2, 2, 3, 2],
    [3, 3, 3, 3],
    [3, 3, 3, 3],
    [2, 2, 2, 2],
    [1, 2, 3, 4],
    [4, 4, 4, 4],
    [1, 1, 2, 1],
    [2, 2, 2, 2],
    [None, 5, 5, 5],
    [None, None, 1, 1],
    [None, None, 3, None],
]
"""Example C of Krippendorff, Computing Krippendorff's alpha-reliability (2011): four observers, twelve units."""


def test_alpha_is_that_of_krippendorffs_own_example() -> None:
    nominal = measure_alpha(KRIPPENDORFF)
    assert round(nominal.value, 3) == 0.743
    assert nominal.items == 11
    assert nominal.interval is not None
    assert nominal.interval[0] < nominal.value <= nominal.interval[1]


def test_alpha_of_two_observers_is_that_of_krippendorffs_example_without_gaps() -> None:
    # Example B: two observers, twelve units, five categories.
    published = [["a", "b"], ["a", "a"], ["b", "b"], ["b", "b"], ["d", "b"], ["c", "c"]]
    published += [["c", "c"], ["c", "c"], ["e", "e"], ["d", "d"], ["d", "d"], ["a", "d"]]
    assert round(measure_alpha(published).value, 3) == 0.692


def test_kappa_is_that_of_the_textbook_table() -> None:
    # 50 proposals: 20 both yes, 15 both no, 5 and 10 apart; kappa 0.4 (observed 0.7, by chance 0.5).
    first = ["yes"] * 25 + ["no"] * 25
    other = ["yes"] * 20 + ["no"] * 5 + ["yes"] * 10 + ["no"] * 15
    agreement = measure_kappa(first, other)
    assert agreement.value == pytest.approx(0.4)
    assert agreement.interval is not None
    low, high = agreement.interval
    # The asymptotic standard error is 0.127.
    assert low == pytest.approx(0.4 - 1.96 * 0.127, abs=0.06)
    assert high == pytest.approx(0.4 + 1.96 * 0.127, abs=0.06)


def test_kappa_of_cohens_own_table() -> None:
    # Cohen 1960, table 1: proportions of 200 cases in three categories; kappa 0.492.
    table = [[88, 14, 18], [10, 40, 10], [2, 6, 12]]
    pairs = [(i, j) for i, row in enumerate(table) for j, count in enumerate(row) for _ in range(count)]
    agreement = measure_kappa([left for left, _ in pairs], [other for _, other in pairs])
    assert round(agreement.value, 3) == 0.492


def test_perfect_agreement_is_one_and_opposite_labels_are_below_zero() -> None:
    assert measure_kappa("abab", "abab").value == 1
    assert measure_alpha([["a", "a"], ["b", "b"]]).value == 1
    assert measure_kappa("abab", "baba").value == -1


def test_without_variation_or_items_nothing_is_claimed() -> None:
    assert isnan(measure_kappa("aaaa", "aaaa").value)
    assert measure_kappa("aaaa", "aaaa").interval is None
    assert isnan(measure_alpha([["a", "a"], ["a", "a"]]).value)
    assert isnan(measure_alpha([["a"], [None]]).value)


def test_wrong_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter|longer"):
        measure_kappa("ab", "abc")
