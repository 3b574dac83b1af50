"""A list is read as a person would read it."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from bactrian.runs.parse_lists import read_list
from tests.helpers.texts import ITEMS
from tests.helpers.written_lists import OTHERS, THREE_ROLES

SHAPES = (
    "{n}. {x}",
    "{n}) {x}",
    "({n}) {x}",
    "{n}: {x}",
    "**{n}.** {x}",
    "{n} - {x}",
    "Task {n}: {x}",
)
BULLETS = ("- {x}", "* {x}", "• {x}")


@settings(max_examples=40)
@given(
    st.lists(ITEMS, min_size=2, max_size=12), st.sampled_from(SHAPES + BULLETS), st.booleans(), st.booleans()
)
def test_every_common_shape_is_read_back(items: list[str], shape: str, chatty: bool, spaced: bool) -> None:
    lines = [shape.format(n=number, x=item) for number, item in enumerate(items, start=1)]
    text = ("\n\n" if spaced else "\n").join(lines)
    if chatty:
        text = f"Here is the list:\n\n{text}\n\nI hope that it helps."
    assert read_list(text) == items


@settings(max_examples=30)
@given(st.lists(ITEMS, min_size=1, max_size=12))
def test_json_is_read_back(items: list[str]) -> None:
    assert read_list(json.dumps(items)) == items
    assert read_list(f"Sure.\n```json\n{json.dumps({'items': items})}\n```\nDone.") == items


HARD_CASES = (
    ("1. 3. Liga table\n2. Other", ["3. Liga table", "Other"]),
    ("1. Do 1. thing\n2. Other", ["Do 1. thing", "Other"]),
    ("1. A line\n   that goes on\n2. Other", ["A line that goes on", "Other"]),
    ("1. It takes\n20 pages\n2. Other", ["It takes 20 pages", "Other"]),
    ("**1. Bold**\n**2. Too**", ["Bold", "Too"]),
    ('1. "Quoted"\n2. **Bold**', ["Quoted", "Bold"]),
    ("Actor\nBaker\n\nCook", ["Actor", "Baker", "Cook"]),
    ("These are they:\nActor\nBaker", ["Actor", "Baker"]),
    ("1\u3001Actor\n2\u3001Baker", ["Actor", "Baker"]),
    ("1 \u2013 Actor\n2 \u2013 Baker", ["Actor", "Baker"]),
    ("1. Sort [3, 1, 2]\n2. Find {a} in a set", ["Sort [3, 1, 2]", "Find {a} in a set"]),
    ('["Actor", "Baker", "Coo', ["Actor", "Baker"]),
    ('{"items": ["Actor", "Ba', ["Actor"]),
    ('{"count": 2, "items": ["Actor", "Baker"]}', ["Actor", "Baker"]),
    ('[{"name": "Actor"}, {"name": "Baker"}]', ["Actor", "Baker"]),
    ("Sure, gladly.\n\nActor\nBaker\n\nShall I go on?", ["Actor", "Baker"]),
    ("", []),
    ("1.\n2.", []),
)


def test_hard_cases() -> None:
    assert [read_list(text) for text, _ in HARD_CASES] == [items for _, items in HARD_CASES]


def test_an_item_is_what_a_person_would_take_for_it() -> None:
    written = [*((text, ["Actor", "Baker", "Cook"]) for text in THREE_ROLES), *OTHERS]
    wrong = {text: items for text, expected in written if (items := read_list(text)) != expected}
    assert not wrong


def test_a_single_item_keeps_its_commas() -> None:
    text = "Visit Rome, Paris, and London"
    assert read_list(text, single=True) == [text]
    assert read_list(text) == ["Visit Rome", "Paris", "London"]


@settings(max_examples=60)
@given(st.text(alphabet=" \n\t-*#1.23)a,;|[]{}\"'`<li>/:thinkABC\u2460\u4e00", max_size=300))
def test_whatever_a_model_writes_gives_items_that_are_not_blank(text: str) -> None:
    assert all(item.strip() for item in read_list(text))
