"""Bradley-Terry strengths, the sign test, its power, and the control of length."""

from __future__ import annotations

from math import comb, exp, log
from random import Random

import pytest

from bactrian.stats.comparisons import (
    compute_sign_test,
    count_tasks_needed,
    fit_bradley_terry,
    fit_length_controlled_rate,
    scale_lengths,
)


def test_strengths_of_two_systems_are_the_odds_between_them() -> None:
    strengths = fit_bradley_terry({("a", "b"): 75.0, ("b", "a"): 25.0})
    assert strengths["a"] - strengths["b"] == pytest.approx(log(75.1 / 25.1))
    assert sum(strengths.values()) == pytest.approx(0)


def test_planted_strengths_are_recovered() -> None:
    planted, draw = {"a": 1.0, "b": 0.0, "c": -1.0}, Random(5)
    wins: dict[tuple[str, str], float] = {}
    for first, other in (("a", "b"), ("b", "c"), ("a", "c")):
        chance = 1 / (1 + exp(planted[other] - planted[first]))
        won = sum(draw.random() < chance for _ in range(4000))
        wins |= {(first, other): won, (other, first): 4000 - won}
    strengths = fit_bradley_terry(wins)
    assert strengths == pytest.approx(planted, abs=0.06)
    # The likelihood's slope is zero there: each system won as often as its strength says, the prior included.
    for name in planted:
        expected = sum(
            4000.2 / (1 + exp(strengths[other] - strengths[name])) for other in planted if other != name
        )
        assert expected == pytest.approx(
            sum(v + 0.1 for (first, _), v in wins.items() if first == name), rel=1e-6
        )


def test_systems_that_were_never_compared_have_no_strengths() -> None:
    with pytest.raises(ValueError, match="c, d was never compared with a"):
        fit_bradley_terry({("a", "b"): 1.0, ("c", "d"): 1.0})


def test_without_a_comparison_there_are_no_strengths() -> None:
    with pytest.raises(ValueError, match="nothing was compared"):
        fit_bradley_terry({})


def test_the_sign_test_is_the_binomial_tail_on_both_sides() -> None:
    assert compute_sign_test(9, 1) == pytest.approx(2 * (comb(10, 9) + 1) / 2**10)
    assert compute_sign_test(5, 5) == 1.0
    assert compute_sign_test(0, 0) == 1.0


def test_so_few_tasks_as_are_said_to_tell_a_difference_do_tell_it() -> None:
    needed = count_tasks_needed(0.65, 0.35)
    assert needed is not None
    telling = [wins for wins in range(needed + 1) if compute_sign_test(wins, needed - wins) < 0.05]
    power = sum(comb(needed, wins) * 0.65**wins * 0.35 ** (needed - wins) for wins in telling)
    assert power == pytest.approx(0.8, abs=0.04)


def test_as_many_tasks_as_are_said_find_the_difference_in_four_of_five_studies() -> None:
    needed = count_tasks_needed(0.5, 0.3)
    assert needed is not None
    draw, differing = Random(9), 0
    for _ in range(400):
        outcomes = draw.choices("wld", (0.5, 0.3, 0.2), k=needed)
        differing += compute_sign_test(outcomes.count("w"), outcomes.count("l")) < 0.05
    assert 0.7 < differing / 400 < 0.88
    assert count_tasks_needed(0.4, 0.4) is None


def test_length_explains_what_it_caused_and_nothing_else() -> None:
    draw = Random(2)
    lengths = [draw.gauss(0.5, 1) for _ in range(4000)]
    scaled = scale_lengths(lengths)
    wins = [float(draw.random() < 1 / (1 + exp(-(0.4 + 2 * length)))) for length in scaled]
    rate = fit_length_controlled_rate(wins, scaled)
    assert rate == pytest.approx(1 / (1 + exp(-0.4)), abs=0.03)
    assert sum(wins) / len(wins) > 0.65
    assert fit_length_controlled_rate([1.0, 1.0], [0.1, 0.2]) is None
    assert fit_length_controlled_rate([1.0, 0.0, 0.5, 1.0], [0.0] * 4) == 0.625
