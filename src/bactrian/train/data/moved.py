"""Lets a training continue whose folder, data or base model was moved: what counts is the content, not the place."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bactrian.errors import InputError
from bactrian.train.data.prepare import prepare_data
from bactrian.train.folder import list_stage_folders
from bactrian.train.recipe import TrainRecipe

_PARTS = ("train", "held_out")


def strip_places(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe whose paths are names of files only."""
    base = {
        key: _take_name(value) if key in ("model", "template") else value
        for key, value in content["base"].items()
    }
    stages = [
        {**stage, "data": [{**source, "path": _take_name(source["path"])} for source in stage["data"]]}
        for stage in content["stages"]
    ]
    held_out = [_take_name(path) for path in content.get("held_out_files", ())]
    return {**content, "base": base, "stages": stages, "held_out_files": held_out}


def find_base_place(content: Mapping[str, Any]) -> tuple[object, object]:
    """Return where a recipe finds its base model, and the template."""
    return content["base"].get("model"), content["base"].get("template")


def find_data_places(content: Mapping[str, Any]) -> list[str]:
    """Return where a recipe finds its data."""
    data = [source["path"] for stage in content["stages"] for source in stage["data"]]
    return [*data, *content.get("held_out_files", ())]


async def check_moved_data(recipe: TrainRecipe, before: Sequence[Mapping[str, Any]], out: Path) -> None:
    """Check that the data of ``recipe``, at its new place, is that which the plan of ``out`` describes.

    Raises:
        InputError: it is other data, or cannot be read.
    """
    with tempfile.TemporaryDirectory(dir=out, prefix=".moved-") as aside:
        folders = list_stage_folders(Path(aside), [stage.name for stage in recipe.stages])
        now = await prepare_data(recipe, folders[1:])
    for old, new in zip(before, now, strict=True):
        if any(old[part]["sha256"] != new[part]["sha256"] for part in _PARTS):
            raise InputError(
                f"The data of the stage {new['stage']} is not that which this training was begun with.",
                where=", ".join(source["path"] for source in new["sources"]),
                next="Use another --out, or the data that it was begun with.",
            )


def _take_name(path: object) -> object:
    return Path(path).name if isinstance(path, str) else path
