"""How the report counts, and how sure it is."""

from __future__ import annotations

import random

import pytest

from bactrian.analyze.aggregate import HashSample, measure_diversity
from bactrian.figures.chart import HEIGHT, WIDTH, draw_plot
from bactrian.stats.streaming import StreamingMean, StreamingQuantiles


def test_a_quantile_is_right_to_one_per_cent_and_its_interval_holds_it() -> None:
    spread = StreamingQuantiles()
    for value in range(1, 1001):
        spread.add(value / 100)
    value, low, high = spread.quantile(0.5)
    assert value == pytest.approx(5.0, rel=0.011)
    assert low == pytest.approx(5.0 - 0.31, rel=0.011)
    assert high == pytest.approx(5.0 + 0.31, rel=0.011)


def test_a_quantile_of_nothing_but_zeros_is_zero() -> None:
    spread = StreamingQuantiles()
    spread.add(0)
    assert spread.quantile(0.9) == (0.0, None, None)


def test_a_quantile_that_no_value_bounds_has_no_end_there() -> None:
    spread = StreamingQuantiles()
    for value in range(1, 31):
        spread.add(float(value))
    assert spread.quantile(0.99)[2] is None
    low, high = spread.quantile(0.5)[1:]
    assert low is not None and high is not None and low < 15 < high


def test_spreads_and_means_of_parts_add_up_to_those_of_the_whole() -> None:
    values = [random.Random(4).lognormvariate(0, 1) for _ in range(500)]
    whole, halves = (
        (StreamingQuantiles(), StreamingMean()),
        [(StreamingQuantiles(), StreamingMean()), (StreamingQuantiles(), StreamingMean())],
    )
    for number, value in enumerate(values):
        for spread in (*whole, *halves[number % 2]):
            spread.add(value)
    halves[0][0].merge(halves[1][0])
    halves[0][1].merge(halves[1][1])
    assert halves[0][0].quantile(0.9) == whole[0].quantile(0.9)
    assert halves[0][1].interval == pytest.approx(whole[1].interval)


def test_a_mean_of_one_value_has_no_interval() -> None:
    mean = StreamingMean()
    mean.add(3.0)
    assert (mean.value, mean.interval) == (3.0, None)


def test_a_sample_is_the_same_in_whatever_order_and_parts_it_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bactrian.analyze.aggregate.LARGEST", 100)
    texts = [(f"s {number}", f"text {number}") for number in range(300)]
    one, other, rest = HashSample(), HashSample(), HashSample()
    for key, text in texts:
        one.add(key, text)
    random.Random(1).shuffle(texts)
    for number, (key, text) in enumerate(texts):
        (other if number % 3 else rest).add(key, text)
    other.merge(rest)
    assert one.seen == other.seen == 300
    assert len(one.list_chosen()) == 100
    assert one.list_chosen() == other.list_chosen()


def test_near_duplicates_are_found_among_many_texts() -> None:
    draw = random.Random(5)
    words = [f"word{number}" for number in range(2000)]
    texts = [" ".join(draw.choices(words, k=30)) for _ in range(1000)]
    texts[10] = texts[500] + " indeed"
    texts[20] = texts[600]
    assert measure_diversity(texts).near_duplicates == 4


def test_texts_that_are_all_the_same_are_all_duplicates_and_hardly_distinct() -> None:
    measured = measure_diversity(["Build a tea timer for green tea."] * 300)
    assert measured.near_duplicates == 300
    assert measured.distinct[1].count == 3
    assert measured.distinct[2].value == pytest.approx(0.01)


def test_languages_without_spaces_are_compared_by_characters() -> None:
    measured = measure_diversity(["为绿茶做一个计时器吧", "为绿茶做一个计时器呢", "写一首关于秋天的诗"])
    assert measured.near_duplicates == 2


def test_distinct_n_does_not_fall_with_the_number_of_texts() -> None:
    draw = random.Random(6)
    words = [f"word{number}" for number in range(200)]
    texts = [" ".join(draw.choices(words, k=20)) for _ in range(2000)]
    few, many = measure_diversity(texts[:200]).distinct[1], measure_diversity(texts).distinct[1]
    assert few.value == pytest.approx(many.value, rel=0.03)


def test_no_texts_have_no_diversity() -> None:
    measured = measure_diversity([])
    assert (measured.texts, measured.distinct[1].value, measured.near_duplicates) == (0, 0.0, 0)


def test_a_curve_fills_its_field_and_has_whole_ticks_below() -> None:
    line = [(1.0, 10.0), (20.0, 40.0)]
    drawn = draw_plot(
        "growth", {("run", "run0"): [line]}, bands=[[(1, 10.0, None, None), (20, 40.0, 30.0, 50.0)]]
    )
    assert drawn is not None
    assert list(drawn.lines[0].parts) == [f"0,{HEIGHT * 0.8:g} {WIDTH:g},{HEIGHT * 0.2:g}"]
    assert drawn.bands[0].split()[1:3] == [f"{WIDTH:g},0", f"{WIDTH:g},{HEIGHT * 0.4:g}"]
    assert [value for _, value in drawn.across] == list(range(2, 21, 2))
    assert drawn.up[0][1] == 0
    assert draw_plot("growth", {("run", "run0"): []}) is None
