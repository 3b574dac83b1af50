"""What the lists of a run still take: guessed before the first one, then as those that are there."""

from __future__ import annotations

from dataclasses import replace

from bactrian.models.budget import Price, UsageMeter
from bactrian.recipes.load import load_recipe
from bactrian.recipes.schema import Axis
from bactrian.records.run import ItemList
from bactrian.records.turn import Usage
from bactrian.runs.admission import Admission
from bactrian.runs.cost import Estimate, ListCosts, Outlook, SessionPrior, estimate_lists
from bactrian.runs.progress import RunProgress

PRICE = Price(1.0, 2.0, None)


def expect(jobs: int) -> ListCosts:
    return estimate_lists(load_recipe("ai-society").axes, jobs, spread=True, price=PRICE)


def make_list(number: int, calls: int = 1) -> ItemList:
    return ItemList(
        f"task@{number:03}_001", ("Sew.",) * 10, True, Usage(1000, 600) if calls else Usage(), calls
    )


def test_each_job_of_a_sample_needs_a_list_of_its_own() -> None:
    assert expect(100).count_calls() == 100
    depth = estimate_lists(load_recipe("ai-society").axes, 100, spread=False)
    assert depth.count_calls() == 10


def test_the_lists_that_are_there_show_what_the_others_take() -> None:
    lists = expect(100)
    guess = lists.estimate()
    for number in range(4):
        lists.finish(make_list(number))
    assert lists.estimate() == Usage(96_000, 57_600) != guess


def test_a_list_that_was_copied_is_no_measurement() -> None:
    lists = expect(100)
    guess = lists.estimate()
    lists.finish(make_list(1, calls=0))
    assert lists.estimate().total == guess.total * 99 // 100


def test_items_that_are_asked_for_one_by_one_are_counted_one_by_one() -> None:
    axes = load_recipe("ai-society").axes
    tasks: Axis = axes[2].model_copy(update={"each": True})
    lists = estimate_lists((*axes[:2], tasks), 100, spread=True)
    assert lists.count_calls() == 100
    lists.finish(replace(make_list(1), items=("Sew.", "Cut.")))
    assert lists.count_calls() == 98


def test_the_cost_in_the_end_contains_the_lists_that_are_still_to_be_asked_for() -> None:
    def expect_cost(lists: ListCosts) -> float:
        size = Estimate(4, 2, 6)
        meter = UsageMeter(prices={"m": PRICE})
        outlook = Outlook(SessionPrior(turns=size, prompt=size, completion=size, price=PRICE))
        progress = RunProgress(meter, 100, admission=Admission(meter, outlook), lists=lists)
        found = progress.snapshot().usd_expected
        assert found is not None
        return found.value

    more = expect_cost(expect(100)) - expect_cost(ListCosts())
    assert abs(more - PRICE.cost(expect(100).estimate())) < 1e-9
