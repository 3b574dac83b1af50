"""``bactrian train``: train a model on conversations, in stages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bactrian.cli.commands.train.view import TrainingView, show_forecast_of_training, show_trained
from bactrian.cli.options import declare_option, flatten_groups
from bactrian.cli.run_async import run_async
from bactrian.errors import InputError
from bactrian.language.escape import to_printable
from bactrian.train.load import list_train_recipes, read_train_recipe_text
from bactrian.train.run import OnEvent, TrainOrder, forecast_training, train_recipe


@dataclass(frozen=True, slots=True)
class TrainFlags:
    """What a training is made from."""

    runs: Annotated[
        list[str] | None,
        declare_option(
            "--run",
            "Data of a stage, instead of the recipe's: STAGE=PATH, or PATH if there is one stage. A run, or JSON "
            "lines with messages. Can be repeated.",
        ),
    ] = None
    settings: Annotated[
        list[str] | None,
        declare_option("--set", "Change the recipe: epochs=1 or base.model=built-in. Can be repeated."),
    ] = None
    small: Annotated[
        bool, declare_option("--small", "Settings for two cores: adapters, and short examples.")
    ] = False


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


@flatten_groups
def train(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE", help=f"{', '.join(list_train_recipes())}, or a path to a .toml file."
        ),
    ],
    out: Annotated[
        Path | None,
        declare_option(
            "--out", "Folder of the training; the same command resumes it. Default: the recipe's name."
        ),
    ] = None,
    flags: TrainFlags = TrainFlags(),
    forecast: Annotated[
        bool,
        declare_option(
            "--forecast", "Prepare the data, train three steps, and estimate tokens, hours and memory."
        ),
    ] = False,
    show: Annotated[bool, declare_option("--show", "Write the recipe, and do nothing.")] = False,
    quiet: Annotated[bool, declare_option("--quiet", "Show no progress.")] = False,
    as_json: Annotated[
        bool, declare_option("--json", "Write the manifests, or the forecast, as JSON.")
    ] = False,
) -> None:
    """Train a model on conversations, in stages, and write each stage in the format that `play` reads."""
    if show:
        print(to_printable(read_train_recipe_text(recipe)), end="")
        return
    order = TrainOrder(
        recipe,
        out or Path(Path(recipe).stem),
        _read_data(flags.runs or []),
        (*(_SMALL if flags.small else ()), *(flags.settings or [])),
    )
    view = TrainingView(quiet=quiet or as_json)
    if forecast:
        run_async(_forecast(order, view.show_event, as_json=as_json), resume="Nothing was trained.")
    run_async(
        _train(order, view.show_event, as_json=as_json), resume="The same command resumes at the last step."
    )


def _read_data(given: list[str]) -> Mapping[str, list[Path]]:
    """Return the paths by stage; the empty name is the only stage."""
    found: dict[str, list[Path]] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals or "/" in name or Path(text).exists():
            name, path = "", text
        if not Path(path).is_file():
            raise InputError(
                "There is no such run or file.", where=path, next="Write --run STAGE=PATH, or --run PATH."
            )
        found.setdefault(name, []).append(Path(path))
    return found


async def _forecast(order: TrainOrder, on_event: OnEvent, *, as_json: bool) -> int:
    found = await forecast_training(order, on_event)
    if as_json:
        print(json.dumps(found.to_json()))
    else:
        show_forecast_of_training(found)
    return 0


async def _train(order: TrainOrder, on_event: OnEvent, *, as_json: bool) -> int:
    trained = await train_recipe(order, on_event)
    if as_json:
        print(
            json.dumps(
                {"folder": str(trained.folder), "stages": [dict(one.manifest) for one in trained.stages]}
            )
        )
    else:
        show_trained(trained)
    return 0
