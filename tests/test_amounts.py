"""Amounts of money: progress, status, reports and pages write them alike."""

from __future__ import annotations

import pytest

from bactrian.amounts import write_dollars


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (None, "unknown"),
        (0, "$0.00"),
        (0.000123, "$0.00012"),
        (0.0134, "$0.013"),
        (0.05, "$0.050"),
        (0.1834, "$0.18"),
        (1234.5, "$1,234.50"),
    ],
)
def test_an_amount_has_cents_and_at_least_two_digits(amount: float | None, text: str) -> None:
    assert write_dollars(amount) == text
