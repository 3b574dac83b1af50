"""``bactrian train``: train a model on conversations, in stages."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from bactrian.cli.flags import Argument
from bactrian.cli.run_async import run_async
from bactrian.cli.view.training_progress import TrainingView, show_forecast_of_training, show_trained
from bactrian.errors import InputError
from bactrian.options import FORECAST, JSON, OUT, QUIET, RUN, SET, Option
from bactrian.records.text import to_printable
from bactrian.store import is_run
from bactrian.train.training import OnEvent, TrainOrder, forecast_training, train_recipe
from bactrian.train.training_recipe import list_train_recipes, read_train_recipe_text

_SMALL = (
    "method=lora",
    "epochs=5",
    "learning_rate=1e-3",
    "batch=16",
    "per_device=1",
    "max_length=512",
    "devices=1",
    "checkpointing=false",
    "precision=auto",
)


def train(
    recipe: Annotated[
        str,
        Argument(metavar="RECIPE", help=f"{', '.join(list_train_recipes())}, or a path to a .toml file."),
    ],
    out: Annotated[
        Path | None,
        OUT,
        "Folder of the training; the same command resumes it. Default: the recipe's name.",
    ] = None,
    runs: Annotated[
        list[str] | None,
        RUN,
        "Data of a stage, instead of the recipe's: STAGE=PATH, or PATH if there is one stage. A run, or JSON "
        "lines with messages. Can be repeated.",
    ] = None,
    settings: Annotated[
        list[str] | None,
        SET,
        "Change the recipe: epochs=1 or base.model=built-in. Can be repeated.",
    ] = None,
    small: Annotated[
        bool, Option("--small", "Settings for two cores: adapters, and short examples.")
    ] = False,
    forecast: Annotated[
        bool,
        FORECAST,
        "Prepare the data and the base model, and estimate tokens, hours and memory.",
    ] = False,
    show: Annotated[bool, Option("--show", "Write the recipe, and do nothing.")] = False,
    quiet: Annotated[bool, QUIET] = False,
    as_json: Annotated[bool, JSON, "Write the manifests, or the forecast, as JSON."] = False,
) -> None:
    """Train a model on conversations, in stages, and write each stage in the format that `play` reads."""
    if show:
        print(to_printable(read_train_recipe_text(recipe)), end="")
        return
    if is_run(Path(recipe)):
        next = f"For example: bactrian train small --run {shlex.quote(recipe)}"
        raise InputError("This is a run, and not a training recipe.", where=recipe, next=next)
    order = TrainOrder(
        recipe,
        out or Path(Path(recipe).stem),
        _read_data(runs or []),
        (*(_SMALL if small else ()), *(settings or [])),
    )
    view = TrainingView(quiet=quiet or as_json)
    run_async(
        _train(order, view.show_event, forecast=forecast, as_json=as_json),
        resume="Nothing was trained." if forecast else "The same command resumes at the last step.",
    )


def _read_data(texts: list[str]) -> Mapping[str, list[Path]]:
    """Return the paths by stage; the empty name is the only stage."""
    paths: dict[str, list[Path]] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or "/" in name or Path(text).exists():
            name, path = "", text
        if not Path(path).is_file():
            raise InputError(
                "There is no such run or file.", where=path, next="Write --run STAGE=PATH, or --run PATH."
            )
        paths.setdefault(name, []).append(Path(path))
    return paths


async def _train(order: TrainOrder, on_event: OnEvent, *, forecast: bool, as_json: bool) -> int:
    if forecast:
        expected = await forecast_training(order, on_event)
        if as_json:
            print(json.dumps(expected))
        else:
            show_forecast_of_training(expected)
        return 0
    trained = await train_recipe(order, on_event)
    if as_json:
        manifests = [dict(stage.manifest) for stage in trained.stages]
        print(json.dumps({"folder": str(trained.folder), "stages": manifests}))
    else:
        show_trained(trained)
    return 0
