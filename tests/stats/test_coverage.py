"""How often intervals hold the truth in simulated studies, with fixed seeds: too often is a fault, too."""

from __future__ import annotations

from random import Random

import pytest

from benchmarks.coverage import read_ends, rows

WERE_TOO_WIDE = (
    ("seconds, p90", 30),
    ("seconds, p99", 10),
    ("seconds, p99", 30),
    ("difference of mean messages of two runs", 10),
    ("pass@1 of 10 samples, hard problems", 30),
    ("share of turns, 10 %, turns of a conversation alike by 0.3", 10),
)


@pytest.mark.parametrize(("name", "size"), WERE_TOO_WIDE)
def test_an_interval_holds_the_truth_no_more_often_than_it_says(name: str, size: int) -> None:
    truth, study = next((truth, study) for row, truth, study in rows() if row == name)
    draw, held = Random(f"{name} {size}"), 0
    for _ in range(1000):
        low, high = read_ends(study(draw, size))
        held += (low is None or low <= truth) and (high is None or truth <= high)
    assert 930 <= held <= 970
