"""The command at the head of a report makes the run that it stands over."""

from __future__ import annotations

import pytest

from bactrian.api.reading.provenance import list_settings
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
