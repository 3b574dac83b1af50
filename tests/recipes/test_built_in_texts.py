"""What the built-in recipes and societies say of roles is true for both agents who read it."""

from __future__ import annotations

import re

import pytest

from bactrian.recipes.load import list_recipes, load_recipe
from bactrian.recipes.schema import RolePlay
from bactrian.recipes.society_file import list_societies, load_society

_SECOND_PERSON = re.compile(r"\b(?:you|your|yours|yourself|I|me|my|mine|we|us|our)\b", re.IGNORECASE)


@pytest.mark.parametrize("name", list_recipes())
def test_a_description_in_a_built_in_recipe_speaks_of_the_role_and_not_to_it(name: str) -> None:
    job = load_recipe(name).job
    for key in ("assistant_description", "user_description"):
        assert not _SECOND_PERSON.search(getattr(job, key, "")), key


@pytest.mark.parametrize("name", list_societies())
def test_a_description_in_a_built_in_society_speaks_of_the_role_and_not_to_it(name: str) -> None:
    society, _ = load_society(name)
    assert not [agent.name for agent in society.agents if _SECOND_PERSON.search(agent.description)]


def test_the_language_of_code_stands_in_its_prompts_and_not_at_the_task() -> None:
    job = load_recipe("code").job
    assert isinstance(job, RolePlay)
    assert (job.idea, job.prompts) == ("{{ task }}", "code")
    assert "programming_language" not in job.assistant_description + job.user_description
