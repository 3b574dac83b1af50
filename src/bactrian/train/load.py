"""Loads a training recipe: reads a built-in one, a file or a text, applies settings, and checks the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from bactrian.errors import InputError, RecipeError
from bactrian.files.toml import FileKind, TomlSource, check_table, find_file, list_built_in, suggest_name
from bactrian.files.validation_errors import Place, explain_validation_error
from bactrian.recipes.overrides import list_tables, parse_value
from bactrian.train.recipe import BUILT_IN_BASE, Stage, TrainRecipe

_KIND = FileKind("training recipe", RecipeError, "docs/train.md", "training recipes")


def list_train_recipes() -> tuple[str, ...]:
    """Return the names of the built-in training recipes."""
    return list_built_in(_find_folder())


def read_train_recipe_text(name_or_path: str) -> str:
    """Return the recipe as it is written. Raises RecipeError if it cannot be read."""
    return find_file(name_or_path, _find_folder(), _KIND).text


def load_train_recipe(name_or_path: str, settings: Sequence[str] = ()) -> TrainRecipe:
    """Read a built-in recipe or a file, change it by ``settings`` (``training.epochs=1``), and check it.

    Raises:
        RecipeError: it cannot be read, or is not a training recipe; the place is named.
        InputError: a setting names nothing, or its value does not fit.
    """
    source = find_file(name_or_path, _find_folder(), _KIND)
    folder = None if name_or_path in list_train_recipes() else Path(name_or_path).parent
    return _read(source, settings, folder)


def parse_train_recipe(
    text: str, where: str = "recipe", settings: Sequence[str] = (), folder: Path | None = None
) -> TrainRecipe:
    """Check a recipe given as text; its paths are relative to ``folder``. Raises the same errors."""
    return _read(TomlSource(where, text, _KIND), settings, folder)


def add_data(recipe: TrainRecipe, data: Mapping[str, Sequence[Path]]) -> TrainRecipe:
    """Return ``recipe`` with the data of some stages replaced, by the stage's name; an empty name is the only stage.

    Raises:
        InputError: there is no such stage.
    """
    names = [stage.name for stage in recipe.stages]
    given = dict(data)
    if "" in given:
        if len(names) > 1:
            raise InputError(
                f"The recipe has {len(names)} stages; name the one that this data is for.",
                where=str(given[""][0]),
                next=f"Write STAGE=PATH, with one of {', '.join(names)}.",
            )
        given[names[0]] = given.pop("")
    for name in given:
        if name not in names:
            raise InputError(
                f"There is no stage {name!r}.{suggest_name(name, names)}",
                where="--run",
                next=f"Stages of {recipe.name}: {', '.join(names)}.",
            )
    stages = [
        Stage.model_validate({**stage.model_dump(), "data": [str(path) for path in given[stage.name]]})
        if stage.name in given
        else stage
        for stage in recipe.stages
    ]
    return recipe.model_copy(update={"stages": tuple(stages)})


def _find_folder() -> Traversable:
    return resources.files("bactrian.train").joinpath("built_in")


def _read(source: TomlSource, settings: Sequence[str], folder: Path | None) -> TrainRecipe:
    data = source.table()
    changed: set[Place] = set()
    for setting in settings:
        changed.add(_apply_setting(setting, data))
    if folder is not None:
        _resolve_paths(data, folder)
    try:
        return TrainRecipe.model_validate(data)
    except ValidationError as error:
        raise explain_validation_error(error, source, TrainRecipe, changed) from error


def _apply_setting(setting: str, data: dict[str, Any]) -> Place:
    """Change ``data`` by ``key=value``; ``epochs`` alone is the training's. Return the changed place."""
    key, equals, written = setting.partition("=")
    key = key.strip()
    if not equals or not key:
        raise InputError(f"{setting!r} is not key=value.", where="--set", next="For example: epochs=1")
    parts = key.split(".")
    if len(parts) == 1 and parts[0] not in ("from", "name", "description", "held_out_files", "gguf"):
        parts = ["training", *parts]
    table = data
    for part in parts[:-1]:
        found: object = table.setdefault(part, {})
        if not isinstance(found, dict):
            raise InputError(f"{key!r} cannot be set.", where="--set", next="For example: training.epochs=1")
        table = cast("dict[str, Any]", found)
    table[parts[-1]] = parse_value(written.strip())
    if parts[0] == "base" and parts[1] in ("model", "new"):  # one replaces the other
        check_table(data.get("base")).pop("new" if parts[1] == "model" else "model", None)
    return tuple(parts)


def _resolve_paths(data: dict[str, Any], folder: Path) -> None:
    """Make paths of a recipe in a file relative to its folder."""
    base = check_table(data.get("base"))
    model = base.get("model")
    if isinstance(model, str) and model != BUILT_IN_BASE and (folder / model).exists():
        base["model"] = str(folder / model)
    for stage in list_tables(data, "stages"):
        given: object = stage.get("data", [])
        sources = cast("list[object]", given) if isinstance(given, list) else [given]
        stage["data"] = [_resolve_source(one, folder) for one in sources]
    files: object = data.get("held_out_files")
    if isinstance(files, list):
        paths = cast("list[object]", files)
        data["held_out_files"] = [str(folder / one) if isinstance(one, str) else one for one in paths]


def _resolve_source(source: object, folder: Path) -> object:
    if isinstance(source, str):
        return str(folder / source)
    table = check_table(source)
    path = table.get("path")
    return {**table, "path": str(folder / path)} if isinstance(path, str) else source
