"""What docs/recipes.md says is true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from bactrian.recipes.load import built_in_recipes, load_recipe

PAGE = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text("utf-8")


def test_the_recipe_of_ones_own_is_one(tmp_path: Path) -> None:
    (example,) = re.findall(r"<!-- example -->\n```toml\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "kitchen.toml"
    path.write_text(example)
    recipe = load_recipe(str(path))
    assert (recipe.name, recipe.size) == ("kitchen", 6)


def test_every_setting_in_the_examples_fits_its_recipe() -> None:
    commands = [line for line in PAGE.splitlines() if line.startswith("bactrian generate ")]
    assert len(commands) >= 4
    for command in commands:
        settings = [quoted or plain for quoted, plain in re.findall(r"--set (?:'([^']*)'|(\S+))", command)]
        load_recipe(command.split()[2], settings)


def test_every_option_on_the_page_exists() -> None:
    known = "".join(
        subprocess.run(
            [sys.executable, "-m", "bactrian", verb, "--help"], capture_output=True, text=True, check=True
        ).stdout
        for verb in ("generate", "recipes", "recover")
    )
    assert set(re.findall(r"--[a-z][a-z-]+", PAGE)) <= set(re.findall(r"--[a-z][a-z-]+", known))


def test_every_built_in_recipe_is_on_the_page() -> None:
    assert all(f"`{name}`" in PAGE for name in built_in_recipes())
