"""What docs/recipes.md says is true."""

from __future__ import annotations

import re
import shlex
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
from pydantic import BaseModel

from bactrian.recipes.load import list_recipes, load_recipe
from bactrian.recipes.schema import Axis, CriticSpec, Recipe, RolePlay, RolePlayTools, find_recipe_model

PAGE = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text("utf-8")


EXAMPLES = re.findall(r"<!-- example -->\n```toml\n(.*?)```", PAGE, re.DOTALL)
SIZES = {"kitchen": 6, "estimates": 8, "lowlands": 2}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the page's recipes lie, under their names."""
    for example in EXAMPLES:
        (tmp_path / f"{tomllib.loads(example)['name']}.toml").write_text(example)
    (tmp_path / "things.txt").write_text("rain\na piano\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_recipe_on_the_page_is_one(folder: Path) -> None:
    assert {path.stem: load_recipe(str(path)).size for path in folder.glob("*.toml")} == SIZES


def test_every_command_on_the_page_fits_its_recipe(folder: Path) -> None:
    commands = [line for line in PAGE.splitlines() if line.startswith("bactrian generate ")]
    assert len(commands) >= 12
    for command in commands:
        words = shlex.split(command)
        settings = [value for option, value in pairwise(words) if option == "--set"]
        load_recipe(words[2], settings)


def test_every_recipe_has_a_command_for_the_built_in_model() -> None:
    section = PAGE.partition("## On the built-in model")[2]
    assert set(re.findall(r"^bactrian generate (\S+)", section, re.MULTILINE)) == set(list_recipes())


@pytest.mark.parametrize(
    "part",
    [find_recipe_model(), Axis, *find_recipe_model().specs.values(), CriticSpec, RolePlayTools],
)
def test_every_key_is_on_the_page(part: type[BaseModel]) -> None:
    section = PAGE.partition("## Every key")[2]
    for key in part.model_fields:
        assert re.search(rf"`\[{{0,2}}{key}\]{{0,2}}`", section), key


def test_the_defaults_on_the_page_are_those_of_the_program() -> None:
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\| ([^|]+) \|", PAGE, re.MULTILINE)
    fields = {**Recipe.model_fields, **RolePlay.model_fields, **Axis.model_fields}
    documented = {key: default for key, default in rows if key in fields and default.isdigit()}
    assert documented == {"max_tokens": "4096", "word_limit": "50"}
    assert all(fields[key].default == int(default) for key, default in documented.items())
    needed = {key for key, default in rows if default == "needed"}
    assert needed == {"name", "idea"}


def test_every_built_in_recipe_is_on_the_page() -> None:
    assert all(f"`{name}`" in PAGE for name in list_recipes())
