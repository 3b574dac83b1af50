"""Amounts: progress, status, reports and pages write them alike."""

from __future__ import annotations

import pytest

from bactrian.amounts import (
    write_compared,
    write_cost,
    write_dollar_change,
    write_dollars,
    write_ends,
    write_percent,
    write_percents,
    write_points,
    write_seconds,
    write_tokens,
)
from bactrian.records.turn import Usage


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (None, "unknown"),
        (0, "$0.00"),
        (0.000123, "$0.00012"),
        (0.0134, "$0.013"),
        (0.05, "$0.050"),
        (0.0996, "$0.10"),
        (0.1834, "$0.18"),
        (1234.5, "$1,234.50"),
    ],
)
def test_an_amount_has_cents_and_at_least_two_digits(amount: float | None, text: str) -> None:
    assert write_dollars(amount) == text


def test_amounts_that_stand_together_have_the_same_decimals() -> None:
    assert write_cost(0.0994, budget=0.1) == "$0.099 of $0.100"
    assert write_compared(0.44, 0.0071, 0, 0.32) == ("$0.4400", "$0.0071", "$0.0000", "$0.3200")


def test_differences_of_money_have_a_sign_and_short_times_have_no_exponent() -> None:
    assert [write_dollar_change(of) for of in (-0.012, 2.5, None)] == ["\N{MINUS SIGN}$0.012", "+$2.50", "–"]
    assert [write_seconds(of) for of in (2.1e-05, 0.444, 123.4)] == ["under 1 ms", "0.44 s", "123 s"]


def test_shares_differences_and_tokens_have_one_form() -> None:
    assert [write_percent(share) for share in (0.0, 0.3421, 1 - 1e-16, 0.9996, None)] == [
        "0 %",
        "34.2 %",
        "100 %",
        "100.0 %",
        "–",
    ]
    assert (write_percents(0.301, 1.0, 0), write_ends(0.301, 1.0)) == ("30–100 %", "30.1–100")
    assert [write_points(points) for points in (-0.123, 0.004, 0.0)] == ["\N{MINUS SIGN}12", "+0.4", "+0"]
    assert (
        write_tokens(Usage(1000, 200, 500, estimated=True))
        == "about 1,000 prompt (50 % cached) and 200 completion"
    )
    assert write_tokens(Usage()) == "unknown"
