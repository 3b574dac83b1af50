"""``bactrian recipes``: the built-in recipes."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from bactrian.cli.options import declare_option
from bactrian.language.escape import to_line, to_printable
from bactrian.recipes.load import list_recipes, load_recipe, read_recipe_text
from bactrian.recipes.registry import find_recipe_model

app = typer.Typer(help="List the recipes, or show one.", rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def recipes(
    context: typer.Context,
    schema: Annotated[bool, declare_option("--schema", "Write the JSON schema of a recipe.")] = False,
) -> None:
    """List the built-in recipes, with the number of their jobs."""
    if context.invoked_subcommand:
        return

    if schema:
        print(json.dumps(find_recipe_model().model_json_schema(), indent=2))
        return
    for name in list_recipes():
        recipe = load_recipe(name)
        size = f"{recipe.size:,}{' each' if recipe.job.later_axes else ''}"
        print(f"{name:<14}{size:>10}  {to_line(recipe.description)}")


@app.command()
def show(
    recipe: Annotated[str, typer.Argument(help="Name of a built-in recipe, or a .toml file.")],
) -> None:
    """Print the file of a recipe, to read or to copy."""

    load_recipe(recipe)
    print(to_printable(read_recipe_text(recipe)), end="")
