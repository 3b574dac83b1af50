"""Lists asked of a model are complete and without doubles, or say what they lack."""

from __future__ import annotations

import pytest

from bactrian.models.local.local_model import LocalModel
from bactrian.models.model import RunSeeds
from bactrian.models.scripted import Scripted, ScriptedReply
from bactrian.recipes.load import load_recipe
from bactrian.recipes.schema import Axis
from bactrian.records.turn import Usage
from bactrian.runs.lists import ModelSource
from bactrian.runs.parse_lists import read_list
from bactrian.runs.runner import ListProgress
from bactrian.runs.scheduler import ListRequest
from tests.helpers.scenes import Counting

THREE = Axis(name="task", count=3, ask="List {{ count }} tasks for {{ role }}.", per=("role",))


async def listings(
    *replies: str | ScriptedReply, axis: Axis = THREE, begun: ListProgress | None = None
) -> tuple[list[ListProgress], list[str]]:
    model = Counting(Scripted(list(replies)))
    request = ListRequest("task@001", axis.name, {"role": "Chef"}, axis.count, axis.count)
    found = [listing async for listing in ModelSource([axis], model).list_items(request, begun)]
    return found, [request.messages[0].text for request in model.requests]


async def test_a_whole_list_takes_one_call() -> None:
    found, asked = await listings("1. Bake\n2. Cook\n3. Serve")
    assert found[-1].items == ("Bake", "Cook", "Serve")
    assert found[-1].finished
    assert asked == ["List 3 tasks for Chef."]


async def test_what_is_missing_is_asked_for_again_and_named_as_taken() -> None:
    found, asked = await listings("1. Bake\n2. bake!", "1. Bake\n2. Cook", "Serve")
    assert [listing.items for listing in found] == [("Bake",), ("Bake", "Cook"), ("Bake", "Cook", "Serve")]
    assert asked[1].startswith("List 2 tasks")
    assert "- Bake" in asked[1]
    assert [listing.finished for listing in found] == [False, False, True]


async def test_three_replies_that_bring_nothing_leave_the_list_short() -> None:
    found, asked = await listings("1. Bake", "Bake", "Bake", "Bake", "Cook")
    assert found[-1].items == ("Bake",)
    assert found[-1].finished
    assert len(asked) == 4


async def test_more_items_than_wanted_are_cut() -> None:
    found, _ = await listings("1. a\n2. b\n3. c\n4. d")
    assert found[-1].items == ("a", "b", "c")


async def test_a_list_that_was_begun_goes_on_where_it_was() -> None:
    begun = ListProgress(("Bake", "Cook"), finished=False, usage=Usage(5, 5), calls=1)
    found, asked = await listings("unused", "Serve", begun=begun)
    assert found[-1].items == ("Bake", "Cook", "Serve")
    assert found[-1].calls == 2
    assert found[-1].usage.prompt > 5
    assert len(asked) == 1


async def test_items_can_be_asked_for_one_at_a_time_and_keep_their_lines() -> None:
    each = THREE.model_copy(update={"each": True, "earlier": 0, "count": 2})
    found, asked = await listings("What is\n1. this?", "And that?", axis=each)
    assert found[-1].items == ("What is\n1. this?", "And that?")
    assert len(asked) == 2


async def test_of_an_item_that_was_asked_for_alone_neither_thoughts_nor_a_refusal_are_kept() -> None:
    each = THREE.model_copy(update={"each": True, "earlier": 0, "count": 2})
    replies = (
        "<think>\nLet me see.\n</think>\nWhat is this?",
        "I'm sorry, but I can't do that.",
        "And that?",
    )
    found, asked = await listings(*replies, axis=each)
    assert found[-1].items == ("What is this?", "And that?")
    assert len(asked) == 3


async def test_a_list_begins_with_the_items_that_are_given() -> None:
    axis = THREE.model_copy(update={"given": ("Bake", "Cook")})
    found, asked = await listings("1. cook\n2. Serve", axis=axis)
    assert [listing.items for listing in found] == [("Bake", "Cook"), ("Bake", "Cook", "Serve")]
    assert asked[0].startswith("List 1 tasks")


async def test_the_item_in_which_a_reply_was_cut_off_is_none() -> None:
    found, _ = await listings(ScriptedReply("1. Bake\n2. Cook\n3. Ser", finish="length"), "3. Serve")
    assert [listing.items for listing in found] == [("Bake", "Cook"), ("Bake", "Cook", "Serve")]


async def test_a_model_that_declines_has_given_no_item() -> None:
    found, _ = await listings("I'm sorry, but I cannot help with that.", "1. Bake\n2. Cook\n3. Serve")
    assert found[-1].items == ("Bake", "Cook", "Serve")


async def test_a_single_item_is_not_divided_at_its_commas() -> None:
    one = THREE.model_copy(update={"count": 1})
    found, _ = await listings("Visit Rome, Paris, and London", axis=one)
    assert found[-1].items == ("Visit Rome, Paris, and London",)


@pytest.mark.soak
async def test_the_built_in_model_fills_a_list_without_repeating_itself() -> None:
    local = LocalModel(window=1024)
    try:
        for recipe in ("ai-society", "math"):
            asked = next(axis for axis in load_recipe(recipe, ["fresh=true"]).axes if not axis.per)
            axis = asked.model_copy(update={"count": 11})
            request = ListRequest(f"{axis.name}@", axis.name, {}, axis.count, axis.count)
            source = ModelSource([axis], local, seeds=RunSeeds(1))
            items = [listing async for listing in source.list_items(request)][-1].items
            assert len(items) == 11, recipe
            assert len({item[0] for item in items[:10]}) == 10, (
                "each of a row of ten begins with a letter of its own"
            )
            assert not any(character.isdigit() for item in items for character in item), recipe
            assert max(len(item.split()) for item in items) <= 12, recipe
    finally:
        await local.close()


def test_a_reply_of_separators_is_read_in_a_moment() -> None:
    """Each reader of lists is linear in the reply's length; a square of it would not end within the test's limit."""
    for separator in (",", ";", "|", "\n", "- ", "1. ", "* ", "**", "[", "{", '"', "`", "\u3001", "&"):
        reply = f"1. Tea\n{separator * 5_000}\n2. Cake"
        assert len(read_list(reply)) <= 5_002
        assert len(read_list(reply, single=True)) <= 3
        read_list(separator * 5_000)
