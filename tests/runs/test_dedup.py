"""What is said twice is told from what only sounds alike."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bactrian.runs.lists import remove_duplicates
from tests.helpers.texts import ITEMS


def test_doubles_are_told_by_words_and_not_by_letters() -> None:
    assert remove_duplicates(["Actor", "actor", "ACTOR!", "Baker"], ["baker."]) == ["Actor"]
    tasks = [
        "Write a trading bot for the stock market in Python",
        "Write the trading bot for the stock market in Python",
        "Write a trading bot for the bond market in Java",
    ]
    assert remove_duplicates(tasks) == [tasks[0], tasks[2]]


@pytest.mark.parametrize(
    "items",
    [
        ["C", "C#", "C++"],
        ["What is 2 + 3?", "What is 2 - 3?", "What is 2 + 4?"],
        ["Find the sum of the first 10 odd numbers", "Find the sum of the first 20 odd numbers"],
        ["\u2639", "\u263a"],
        ["Machine Learning", "Machine Learning I", "Machine Learning II"],
        ["Chemist", "Biochemist"],
        ["Java", "JavaScript"],
        ["Graph Theory", "Group Theory"],
        ["Vitamin", "Vitamin A", "Vitamin C"],
        ["Node", "Node.js"],
        ["+", "-", "*", "/"],
        ["Web 2.0", "Web 20"],
        ["Convert Celsius to Fahrenheit", "Convert Fahrenheit to Celsius"],
        ["Show that the map of this kind is one to one", "Show that the map of this kind is not one to one"],
        [
            "Write a program in Java that reads a file of customer records and prints a monthly report",
            "Write a program in Python that reads a file of customer records and prints a monthly report",
        ],
        [
            "Prove that the sum of two even numbers that are greater than some bound is always even",
            "Prove that the sum of two odd numbers that are greater than some bound is always even",
        ],
        [
            "Find the maximum of the function on the closed interval between the two points and explain",
            "Find the minimum of the function on the closed interval between the two points and explain",
        ],
    ],
)
def test_another_word_number_sign_or_order_makes_another_item(items: list[str]) -> None:
    assert remove_duplicates(items) == items


@settings(max_examples=40)
@given(st.lists(ITEMS, max_size=15))
def test_nothing_that_was_new_once_is_new_again(items: list[str]) -> None:
    new = remove_duplicates(items)
    assert remove_duplicates(items, new) == []
    assert remove_duplicates(new) == new


@pytest.mark.parametrize(
    "items",
    [
        ["Actor", "actor", "ACTOR!", "**Actor**", "The Actor", "an actor", "\u201cActor\u201d"],
        ["Sales person", "Salesperson", "Sales-person"],
        ["Help an actor memorize lines for a play", "Help the actor memorize their lines for the play"],
        ["Cook", "\uff23\uff4f\uff4f\uff4b"],
        [
            "Plan a week of meals for a family of five that does not eat meat",
            "Plan a whole week of meals for a family of five that does not eat meat",
        ],
    ],
)
def test_the_same_in_another_form_is_a_double(items: list[str]) -> None:
    assert remove_duplicates(items) == items[:1]
