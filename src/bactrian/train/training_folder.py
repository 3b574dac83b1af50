"""The folder of a training, and the curves in it: the losses and the speed of its stages, one after another.

It has one folder for each stage, with its log, and a manifest that is written last.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader

from bactrian.errors import InputError
from bactrian.figures.chart import HEIGHT, WIDTH, Pair, Plot, draw_plot, read_colours
from bactrian.files.json_text import parse_json
from bactrian.records.text import to_json

FORMAT = 1  # Version of the manifests
PLAN = "plan.json"
MANIFEST = "manifest.json"
BASE = "base"
STOPPED = 75  # Exit code of a worker that was stopped and can be resumed
COMPLETE = "complete"  # File that marks a whole checkpoint; it is written last


@dataclass(frozen=True, slots=True)
class StageFolder:
    """Where a stage keeps what it makes; number 0 is the base model."""

    root: Path
    number: int
    name: str

    @property
    def folder(self) -> Path:
        """The folder of the stage."""
        return self.root / f"{self.number:02}-{self.name}"

    @property
    def data(self) -> Path:
        """The folder of its data."""
        return self.root / "data" / f"{self.number:02}-{self.name}"

    @property
    def checkpoints(self) -> Path:
        """The folder of its checkpoints, while it is trained."""
        return self.folder / "checkpoints"

    @property
    def log(self) -> Path:
        """The events of its training, as JSON lines."""
        return self.folder / "log.jsonl"

    @property
    def is_complete(self) -> bool:
        """True if the stage is finished."""
        return (self.folder / MANIFEST).exists()

    @property
    def manifest(self) -> dict[str, Any]:
        """What the stage is, if it is finished. Raises InputError if it cannot be read."""
        return read_json(self.folder / MANIFEST)

    @property
    def model(self) -> Path:
        """The model as a folder of transformers."""
        return self.folder / str(self.manifest["model"])

    @property
    def gguf(self) -> Path | None:
        """The model as ``play`` reads it; None if its architecture has no GGUF here."""
        name = self.manifest["gguf"]
        return self.folder / str(name) if name else None

    @property
    def play_option(self) -> str:
        """The option of ``play`` that takes the model."""
        return find_play_option(self.manifest)


@dataclass(frozen=True, slots=True)
class TrainedModels:
    """The finished stages of a training, the base model first."""

    folder: Path
    plan: Mapping[str, Any]
    stages: tuple[StageFolder, ...]


def find_play_option(manifest: Mapping[str, Any]) -> str:
    """Return the option of ``play`` for the model of a stage: a model of the user's side alone simulates users."""
    sides = {source["side"] for stage in manifest["data"] for source in stage["sources"]}
    return "--user-model" if sides == {"user"} else "--model"


def weigh_model(folder: Path) -> int:
    """Return the bytes of the weights in a folder of transformers."""
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def name_gguf(kind: str) -> str:
    """Return the name of a stage's GGUF file of this kind."""
    return "model.gguf" if kind == "f16" else f"model-{kind}.gguf"


def list_stage_folders(root: Path, names: list[str]) -> list[StageFolder]:
    """Return the folders of the base and of all stages."""
    return [StageFolder(root, number, name) for number, name in enumerate([BASE, *names])]


def is_training(path: Path) -> bool:
    """Return True for a folder that ``bactrian train`` wrote."""
    return path.is_dir() and (path / PLAN).is_file()


def read_training(root: Path) -> TrainedModels:
    """Read the folder of a training, whether or not all of its stages are finished.

    Raises:
        InputError: it is not such a folder, or another version wrote it.
    """
    plan = read_plan(root)
    names = [str(stage["name"]) for stage in plan["recipe"]["stages"]]
    return TrainedModels(root, plan, tuple(of for of in list_stage_folders(root, names) if of.is_complete))


def read_plan(root: Path) -> dict[str, Any]:
    """Return the plan of a training. Raises InputError if there is none, or if another version wrote it."""
    path = root / PLAN
    if not path.exists():
        raise InputError(
            "This folder contains no training.",
            where=str(root),
            next="Give the folder that `bactrian train` wrote.",
        )
    return read_json(path)


def read_json(path: Path) -> dict[str, Any]:
    """Read a file of this format. Raises InputError if it is damaged, or of another version."""
    try:
        values = parse_json(path.read_bytes())
        version = values["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            "This file of a training is damaged.",
            where=str(path),
            next="Train again with another out=FOLDER.",
        ) from error
    if version != FORMAT:
        raise InputError(
            f"This training was written in format {version}, and this version reads format {FORMAT}.",
            where=str(path),
            next="Use the version of bactrian that wrote it, or train again with another out=FOLDER.",
        )
    return values


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write a file of this format, whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    with part.open("w", encoding="utf-8") as file:
        file.write(to_json({"format": FORMAT, **values}, indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


_KEPT = ("machine", "began", "step", "evaluated", "trained")


def log_event(path: Path, event: Mapping[str, Any]) -> None:
    """Append an event, if it is one to keep. After a resumption, the steps that are done again are written again."""
    if event["event"] in _KEPT:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the events in the order of their steps; of a step that was done twice, the last."""
    events: dict[tuple[str, int], dict[str, Any]] = {}
    for event in _read_lines(path):
        if event["event"] in ("step", "evaluated"):
            events[event["event"], event["step"]] = event
    return [events[key] for key in sorted(events, key=lambda key: key[1])]


def measure_usage(path: Path) -> dict[str, Any]:
    """Return what the processes whose log this is have used; there are several if the stage was interrupted.

    A process that was killed counts up to its last step. The memory is that of the process that held most.
    """
    processes: list[dict[str, Any]] = []
    peak = 0
    for event in _read_lines(path):
        if event["event"] == "began":
            processes.append({})
        elif processes and "seconds" in event:
            processes[-1] = event
            peak = max(peak, int(event.get("peak_bytes") or 0))
    return {
        "processes": len(processes),
        **{
            name: sum(float(last.get(name, 0.0)) for last in processes) for name in ("seconds", "cpu_seconds")
        },
        "peak_bytes": peak,
    }


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    for line in path.read_text("utf-8").splitlines():
        try:
            yield json.loads(line)
        except ValueError:  # the last line of a killed process
            continue


# The curves of a training, and the losses as a picture.


MEASURES = ("loss", "held_out", "tokens_per_second", "learning_rate")  # What is measured at a step
# The measure of each line, by its name and style, by the title of the plot.
_PLOTS: Mapping[str, Mapping[tuple[str, str], str]] = {
    "Loss": {("training", "train"): "loss", ("held out", "held"): "held_out"},
    "Tokens per second": {("tokens per second", "train"): "tokens_per_second"},
}
_MOST_POINTS = 400  # Points of a line; more are averaged
_MOST_ROWS = 60  # Rows of a stage's table; steps between them are averaged


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One or more steps of a stage; numbers are means, None where nothing was measured."""

    stage: str
    step: int  # The last of the steps
    loss: float | None
    held_out: float | None
    tokens_per_second: float | None
    learning_rate: float | None


@dataclass(frozen=True, slots=True)
class StageCurves:
    """What a stage's log tells."""

    name: str
    is_complete: bool
    steps: int
    of: int  # Steps of the whole stage; 0 if it has not begun
    seconds: float
    peak_bytes: int
    rows: tuple[TrainingRow, ...]  # Every logged step

    @property
    def held_out(self) -> tuple[float, float] | None:
        """The first and the last loss on held-out data."""
        losses = [row.held_out for row in self.rows if row.held_out is not None]
        return (losses[0], losses[-1]) if losses else None

    @property
    def table(self) -> list[TrainingRow]:
        """The numbers behind the plots, in at most 60 rows."""
        size = max(1, -(-len(self.rows) // _MOST_ROWS))
        return [_average(self.rows[start : start + size]) for start in range(0, len(self.rows), size)]


def _average(rows: Sequence[TrainingRow]) -> TrainingRow:
    means: list[float | None] = []
    for measure in MEASURES:
        values = [float(value) for row in rows if (value := getattr(row, measure)) is not None]
        means.append(sum(values) / len(values) if values else None)
    return TrainingRow(rows[0].stage, rows[-1].step, *means)


def read_stages(root: Path) -> list[StageCurves]:
    """Return the curves of all stages, also of those that have not begun.

    Raises:
        InputError: the folder is damaged, or another version wrote it.
    """
    plan = read_plan(root)
    try:
        names = [str(stage["name"]) for stage in plan["recipe"]["stages"]]
        return [_read_stage(folder) for folder in list_stage_folders(root, names)[1:]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            "The files of this training are damaged.",
            where=str(root),
            next="Train again with another out=FOLDER.",
        ) from error


def _read_stage(folder: StageFolder) -> StageCurves:
    steps: dict[int, dict[str, Any]] = {}
    for event in read_log(folder.log):
        values = steps.setdefault(int(event["step"]), {"of": int(event.get("of", 0))})
        if event["event"] == "evaluated":
            values["held_out"] = event["loss"]
        else:
            values.update(event)
    rows = [
        TrainingRow(
            folder.name,
            step,
            *(None if values.get(name) is None else float(values[name]) for name in MEASURES),
        )
        for step, values in steps.items()
    ]
    usage = measure_usage(folder.log)
    most = max((values["of"] for values in steps.values()), default=0)
    last = max(steps, default=0)
    return StageCurves(
        folder.name, folder.is_complete, last, most, usage["seconds"], usage["peak_bytes"], tuple(rows)
    )


def draw_plots(stages: Sequence[StageCurves]) -> list[Plot]:
    """Return the plots of the losses and of the speed, those of which something was logged."""
    offsets = [sum(stage.steps for stage in stages[:number]) for number in range(len(stages))]
    ends = [
        (offset + stage.steps, stage.name)
        for offset, stage in zip(offsets, stages, strict=True)
        if stage.steps
    ]
    plots = [
        draw_plot(title, {key: _collect(stages, offsets, measure) for key, measure in lines.items()}, ends)
        for title, lines in _PLOTS.items()
    ]
    return [plot for plot in plots if plot is not None]


def _collect(stages: Sequence[StageCurves], offsets: Sequence[int], measure: str) -> list[list[Pair]]:
    """Return the points of each stage that has some."""
    # Evaluations are few, and each counts.
    size = (
        1 if measure == "held_out" else max(1, -(-sum(len(stage.rows) for stage in stages) // _MOST_POINTS))
    )
    parts: list[list[Pair]] = []
    for offset, stage in zip(offsets, stages, strict=True):
        points = [
            (float(offset + row.step), float(value))
            for row in stage.rows
            if (value := getattr(row, measure)) is not None
        ]
        groups = [points[start : start + size] for start in range(0, len(points), size)]
        if groups:
            parts.append([(group[-1][0], sum(value for _, value in group) / len(group)) for group in groups])
    return parts


def draw_losses(stages: Sequence[StageFolder], target: Path) -> None:
    """Write the losses of these stages as a picture (SVG)."""
    plots = [plot for plot in draw_plots([_read_stage(stage) for stage in stages]) if plot.title == "Loss"]
    environment = Environment(autoescape=True, loader=PackageLoader("bactrian.train", ""))
    picture = environment.get_template("losses.svg.j2").render(
        plot=plots[0] if plots else None, width=WIDTH, height=HEIGHT, look=read_colours()
    )
    target.write_text(picture, "utf-8")
