"""The head of a report: the command makes the run that it stands over, and the verdict names runs by what they show."""

from __future__ import annotations

import pytest

from bactrian.analyze.report import COOPERATION
from bactrian.analyze.report_page import write_verdict
from bactrian.api.run_report import list_settings
from bactrian.recipes.load import load_recipe


@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["language=German"],
        ["task.count=3", "max_messages=12"],
        ["assistant_role.count=4", "language=German"],
    ],
)
def test_the_settings_of_a_recipe_are_found_again(settings: list[str]) -> None:
    made = load_recipe("ai-society", settings)
    found = list_settings(made.content())
    assert set(settings) <= set(found)
    assert load_recipe("ai-society", found).content() == made.content()


def test_a_recipe_of_a_persons_own_has_no_settings() -> None:
    content = load_recipe("ai-society", ["language=German"]).content() | {"name": "mine"}
    assert list_settings(content) == []


@pytest.mark.parametrize(
    ("sure", "told"),
    [
        ((), "From one, no run differs by"),
        (("two",), "From one, only two differs by"),
        (("two", "three"), "From one, two and three differ by"),
    ],
)
def test_the_verdict_on_three_runs_names_those_that_differ(sure: tuple[str, ...], told: str) -> None:
    names = ("one", "two", "three")
    reports = [{"run": name, COOPERATION: {"rate": 0.1}} for name in names]
    changes = [
        {"paired": None, COOPERATION: {"low": 0.1 if name in sure else -0.1, "high": 0.3}}
        for name in names[1:]
    ]
    assert told in write_verdict(reports, changes)
