"""The curves of a training: the losses and the speed of its stages, one after another, and the losses as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader

from bactrian.errors import InputError
from bactrian.figures.chart import HEIGHT, WIDTH, Pair, Plot, draw_plot, read_colours
from bactrian.train.training_folder import StageFolder, list_stage_folders, measure_usage, read_log, read_plan

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
