"""An editor that reads the published schema judges each key of a recipe as the program does."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest
from pydantic import ValidationError

from bactrian.recipes.load import list_recipes, load_recipe
from bactrian.recipes.schema import find_recipe_model

PUBLISHED = json.loads((Path(__file__).parents[2] / "docs" / "recipe.schema.json").read_text("utf-8"))
MODEL = find_recipe_model()
JUDGE: Any = jsonschema.Draft202012Validator(PUBLISHED)

AXIS = {"name": "role", "count": 2, "given": ["Chef", "Pilot"]}
ASKED = {"name": "task", "count": 3, "per": ["role"], "ask": "List {{ count }} tasks.", "temperature": 0.2}
PLAY = {"assistant": "{{ role }}", "user": "Student", "idea": "{{ task }}", "max_messages": 6, "plan": True}
GOOD: dict[str, dict[str, Any]] = {
    "role-play": {"name": "own", "axes": [AXIS, ASKED], "role_play": PLAY},
    "critic": {
        "name": "own",
        "axes": [AXIS],
        "role_play": PLAY,
        "critic": {"role": "Editor", "search": "beam:2x2"},
    },
    "tools": {"name": "own", "axes": [AXIS], "role_play": PLAY, "tools": {"python": "calculator.py"}},
    "answer": {
        "name": "own",
        "axes": [AXIS, {**ASKED, "each": True, "fresh": True, "max_tokens": 50}],
        "answer": {"role": "Chemist", "system": "You solve.", "question": "{{ task }}", "temperature": 1},
    },
    "red team": {"name": "own", "red_team": True, "axes": [AXIS], "role_play": {**PLAY, "preamble": "x"}},
    "translate": {
        "name": "own",
        "axes": [{"name": "language", "count": 1, "given": ["de"]}],
        "translate": {"languages": {"de": "German"}, "system": "Into {{ language_name }}."},
    },
    "society": {"name": "own", "axes": [AXIS], "society": {"file": "panel", "task": "{{ role }}"}},
}
WRONG: tuple[Any, ...] = (0, -1, 1.5, True, "", " ", "x", "\0", [], ["x"], [""], [1], {}, {"x": 1}, 10**9)
OF_SEVERAL_KEYS = {"placed", "value_error"}
"""Kinds of faults that lie between keys, of which the schema says nothing."""


def whole(recipe: dict[str, Any]) -> dict[str, Any]:
    return {"description": "Mine.", **recipe}


def list_paths(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    if isinstance(value, dict):
        for key, each in cast("dict[str, object]", value).items():
            yield from list_paths(each, (*path, key))
    elif isinstance(value, list):
        for number, each in enumerate(cast("list[object]", value)):
            yield from list_paths(each, (*path, number))


def altered(recipe: dict[str, Any], path: tuple[str | int, ...], *value: Any) -> dict[str, Any]:
    """The recipe with another value at ``path``, or with none."""
    changed = copy.deepcopy(recipe)
    table: Any = changed
    for part in path[:-1]:
        table = table[part]
    key: Any = path[-1]
    if isinstance(key, int):
        table[key : key + 1] = value
    elif value:
        table[key] = value[0]
    else:
        del table[key]
    return changed


def fault(recipe: dict[str, Any]) -> str | None:
    """The kind of the first fault; the others follow from it."""
    try:
        MODEL.model_validate(recipe)
    except ValidationError as error:
        return error.errors()[0]["type"]
    return None


def alike(recipe: dict[str, Any]) -> bool:
    reason = fault(recipe)
    return reason in OF_SEVERAL_KEYS or JUDGE.is_valid(recipe) == (reason is None)


def test_the_published_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(PUBLISHED)


@pytest.mark.parametrize("recipe", GOOD.values(), ids=GOOD)
def test_good_recipes_please_both(recipe: dict[str, Any]) -> None:
    assert fault(whole(recipe)) is None
    assert list(JUDGE.iter_errors(whole(recipe))) == []


@pytest.mark.parametrize("name", list_recipes())
def test_the_built_in_recipes_please_the_schema(name: str) -> None:
    assert list(JUDGE.iter_errors(load_recipe(name).content())) == []


@pytest.mark.system
@pytest.mark.parametrize("recipe", GOOD.values(), ids=GOOD)
def test_a_key_less_a_key_more_or_a_wrong_value_is_judged_alike(recipe: dict[str, Any]) -> None:
    recipe = whole(recipe)
    refused = 0
    for path in list_paths(recipe):
        changes = [altered(recipe, path), *(altered(recipe, path, value) for value in WRONG)]
        if isinstance(path[-1], str):
            changes.append(altered(altered(recipe, path, 1), (*path[:-1], f"{path[-1]}x"), 1))
        for change in changes:
            assert alike(change), (path, change)
            refused += fault(change) is not None
    assert refused > 50
