"""Judges with a known bias: the reported shares, leanings and intervals must show it, and cover the truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from bactrian.evaluate.comparison import compare_pair, write_winner
from bactrian.evaluate.verdicts import JudgedTask, Judgement

PAIR = ("extraction", "single_shot")
Judge = Callable[[int, int, bool], tuple[float, float]]
"""Scores of the first and second solution, by their lengths and whether the second is shown first."""


def judge_tasks(judge: Judge, lengths: Sequence[tuple[int, int]]) -> list[JudgedTask]:
    return [
        JudgedTask(
            f"{number:03}",
            f"{number:03}",
            tuple(Judgement(swapped, judge(*both, swapped)) for swapped in (False, True)),
            both,
        )
        for number, both in enumerate(lengths)
    ]


def draw_lengths(count: int, seed: int = 7) -> list[tuple[int, int]]:
    """The first solution is longer in about four of five tasks, as extracted ones are."""
    draw = Random(seed)
    return [(round(draw.gauss(1400, 300)), round(draw.gauss(1000, 300))) for _ in range(count)]


def make_tasks(outcomes: str) -> list[JudgedTask]:
    """One task for each letter: w, d, l, or u for one that cannot be read."""
    scores = {"w": (9.0, 2.0), "d": (8.0, 8.0), "l": (2.0, 9.0), "u": None}
    return [
        JudgedTask(
            str(number),
            str(number),
            (Judgement(False, scores[outcome]), Judgement(True, scores[outcome])),
            (5, 5),
        )
        for number, outcome in enumerate(outcomes)
    ]


def compare(tasks: Sequence[JudgedTask]) -> dict[str, Any]:
    return compare_pair(PAIR, "judge", tasks)


def test_a_judge_that_always_prefers_the_first_seat_decides_nothing() -> None:
    report = compare(judge_tasks(lambda *seen: (2, 9) if seen[2] else (9, 2), draw_lengths(60)))
    assert report["counts"] == {"draw": 60, "loss": 0, "win": 0, "unreadable": 0}
    assert report["first_seat"]["value"] == 1.0
    assert (report["flips"]["value"], report["consistent"]["value"]) == (1.0, 0.0)
    assert report["each_order"]["first_shown_first"]["win"] == 60
    assert report["each_order"]["second_shown_first"]["loss"] == 60
    assert report["p_value"] == 1.0
    assert report["smallest_difference"] is None


def test_a_judge_of_lengths_wins_raw_and_not_at_equal_lengths() -> None:
    report = compare(judge_tasks(lambda first, other, _: (first, other), draw_lengths(100)))
    win = report["shares"]["win"]
    assert win["low"] > 0.6
    assert report["longer_wins"]["value"] == 1.0
    assert report["prefers_longer"]
    low, high = report["length_controlled"]["low"], report["length_controlled"]["high"]
    assert low <= 0.5 <= high


def test_a_judge_of_quality_wins_at_equal_lengths_too() -> None:
    draw = Random(3)
    won = [draw.random() < 0.8 for _ in range(150)]
    tasks = [
        JudgedTask(
            str(number),
            str(number),
            tuple(Judgement(s, (9, 2) if win else (2, 9)) for s in (False, True)),
            both,
        )
        for number, (win, both) in enumerate(zip(won, draw_lengths(150), strict=True))
    ]
    controlled = compare(tasks)["length_controlled"]
    assert controlled["low"] > 0.55


def test_planted_shares_are_recovered_with_intervals_around_them() -> None:
    # The paper's people: 345, 60 and 47 of 452 votes give its 76.3, 13.3 and 10.4 percent.
    report = compare(make_tasks("w" * 345 + "d" * 60 + "l" * 47))
    for name, share in (("win", 0.763), ("draw", 0.133), ("loss", 0.104)):
        estimate = report["shares"][name]
        assert estimate["value"] == pytest.approx(share, abs=0.0005)
        assert estimate["low"] < share < estimate["high"] < estimate["low"] + 0.09
    assert report["p_value"] < 1e-9
    assert report["draws"] == {"good": 60, "middling": 0, "bad": 0}


@pytest.mark.soak
def test_intervals_cover_the_truth_in_95_of_100_studies() -> None:
    draw, studies, covered, seats = Random(11), 200, 0, 0
    for _ in range(studies):
        # A coin for each order: a quarter of the tasks are won, a quarter lost.
        tasks = judge_tasks(lambda *_: draw.choice([(9.0, 2.0), (2.0, 9.0)]), [(5, 5)] * 60)
        report = compare(tasks)
        win, seat = report["shares"]["win"], report["first_seat"]
        covered += win["low"] <= 0.25 <= win["high"]
        seats += seat["low"] <= 0.5 <= seat["high"]
    assert 0.92 <= covered / studies <= 0.98
    assert 0.92 <= seats / studies <= 0.98


def test_unreadable_replies_are_counted_and_not_guessed() -> None:
    report = compare(make_tasks("wwlu"))
    assert report["counts"] == {"draw": 0, "loss": 1, "win": 2, "unreadable": 1}
    assert (report["unreadable"], report["replies"]) == (2, 8)
    assert report["shares"]["win"]["value"] == pytest.approx(2 / 3)
    assert report["bounds"] == {"low": 0.5, "high": 0.75}
    assert report["shares"]["win"]["withheld"] == "only 3 tasks, and an interval needs 10"


def test_tasks_of_one_pair_of_roles_are_resampled_together() -> None:
    tasks = make_tasks("wl" * 100)
    joined = [
        JudgedTask(
            task.task,
            f"{task.judgements[0].scores} {number // 40}",
            task.judgements,
            (5, 5),
        )
        for number, task in enumerate(tasks)
    ]
    alone, together = compare(tasks)["shares"]["win_rate"], compare(joined)["shares"]["win_rate"]
    assert together["low"] < 0.3
    assert alone["low"] > 0.4


def test_repetitions_show_how_far_a_judge_agrees_with_itself() -> None:
    replies = [(9.0, 2.0), (9.0, 2.0), (2.0, 9.0)]
    judgements = tuple(Judgement(swapped, scores) for swapped in (False, True) for scores in replies)
    report = compare([JudgedTask("1", "1", judgements, (5, 5))])
    assert report["repeated"]["value"] == 0.5
    assert report["counts"]["win"] == 1


@pytest.mark.parametrize(
    ("outcomes", "begin", "end"),
    [
        ("w" * 30 + "l" * 4, "mini wins, with a win rate of 88.2 %", " %)."),
        ("l" * 30 + "w" * 4, "large wins, with a win rate of 88.2 %", " %)."),
        ("w" * 12 + "l" * 8, "No winner yet: mini has a win rate of 60.0 %", "and more."),
        ("w" * 12 + "l" * 8 + "dd", "No winner yet: mini has a win rate of 59.1 %", "and more."),
        ("wl" * 5, "No winner: both have a win rate of 50.0 %", " %)."),
        ("uu", "No winner: no verdict can be read.", "read."),
        ("dd", "No result: judge gave both the same score in each of its 4 replies.", "about them."),
    ],
)
def test_the_winner_is_named_only_if_the_interval_leaves_out_one_half(
    outcomes: str, begin: str, end: str
) -> None:
    told = write_winner(compare(make_tasks(outcomes)), "mini", "large")
    assert told.startswith(begin)
    assert told.endswith(end)
    assert ("with so many draws" in told) == ("ld" in outcomes)


def test_a_hundred_copies_of_a_task_are_one_observation() -> None:
    copies = [replace(task, cluster="the same") for task in make_tasks("w" * 100)]
    report = compare(copies)
    assert (report["p_value"], report["independent"], report["smallest_difference"]) == (1.0, 1, None)
    assert report["shares"]["win_rate"]["low"] is None
