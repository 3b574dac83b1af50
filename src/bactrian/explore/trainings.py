"""A training as its curves: the losses and the speed of its stages, one after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bactrian.analyze.page.charts import HEIGHT, WIDTH, build_curve
from bactrian.errors import InputError
from bactrian.train.folder import PLAN, StageFolder, list_stage_folders, read_plan
from bactrian.train.log import measure_usage, read_log

_MOST_POINTS = 400
"""Points of a curve; more are averaged."""
_Points = list[tuple[float, float]]
_MOST_ROWS = 60
"""Rows of a stage's table; steps between them are averaged."""


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One or more steps of a stage; numbers are means, None where nothing was measured."""

    stage: str
    step: int
    """The last of the steps."""
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
    of: int
    """Steps of the whole stage; 0 if it has not begun."""
    seconds: float
    peak_bytes: int
    rows: tuple[TrainingRow, ...]
    """Every logged step."""

    @property
    def last(self) -> TrainingRow | None:
        """The last numbers: of the last step and the last evaluation."""
        return _average(self.rows[-1:]) if self.rows else None

    @property
    def held_out(self) -> tuple[float, float] | None:
        """The first and the last loss on held-out data."""
        found = [one.held_out for one in self.rows if one.held_out is not None]
        return (found[0], found[-1]) if found else None

    @property
    def table(self) -> list[TrainingRow]:
        """The numbers behind the picture, in at most 60 rows."""
        return _shorten(self.rows, _MOST_ROWS)


@dataclass(frozen=True, slots=True)
class PlotLine:
    """A curve of a picture."""

    name: str
    style: str
    parts: Sequence[str]
    """One for each stage: the points of an SVG polyline."""


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture of curves over the steps of all stages."""

    title: str
    lines: Sequence[PlotLine]
    across: Sequence[tuple[float, float]]
    """Ticks: place and value."""
    up: Sequence[tuple[float, float]]
    ends: Sequence[tuple[float, str]]
    """Where stages end, and their names."""
    description: str
    """The curves in words."""


def is_training(path: Path) -> bool:
    """Return True for a folder that ``bactrian train`` wrote."""
    return path.is_dir() and (path / PLAN).is_file()


def read_stages(root: Path) -> list[StageCurves]:
    """Return the curves of all stages, also of those that have not begun.

    Raises:
        InputError: the folder is damaged, or another version wrote it.
    """
    plan = read_plan(root)
    try:
        names = [str(one["name"]) for one in plan["recipe"]["stages"]]
        return [_read_stage(one) for one in list_stage_folders(root, names)[1:]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            "The files of this training are damaged.", where=str(root), next="Train again with another --out."
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
            *(_read_number(one, name) for name in ("loss", "held_out", "tokens_per_second", "learning_rate")),
        )
        for step, one in steps.items()
    ]
    usage = measure_usage(folder.log)
    return StageCurves(
        folder.name,
        folder.is_complete,
        max(steps, default=0),
        max((one["of"] for one in steps.values()), default=0),
        usage.seconds,
        usage.peak_bytes,
        tuple(rows),
    )


def _read_number(values: Mapping[str, Any], name: str) -> float | None:
    return None if values.get(name) is None else float(values[name])


def draw_plots(stages: Sequence[StageCurves]) -> list[Plot]:
    """Return the pictures of the losses and of the speed; none if nothing was logged."""
    offsets = [sum(one.steps for one in stages[:place]) for place in range(len(stages))]
    ends = [(offset + one.steps, one.name) for offset, one in zip(offsets, stages, strict=True) if one.steps]
    kinds = (
        ("Loss", (("training", "train", "loss"), ("held out", "held", "held_out"))),
        ("Tokens per second", (("tokens per second", "train", "tokens_per_second"),)),
    )
    made: list[Plot] = []
    for title, curves in kinds:
        series = [(name, style, _collect(stages, offsets, field)) for name, style, field in curves]
        if plot := _draw(title, [one for one in series if one[2]], ends):
            made.append(plot)
    return made


def _collect(stages: Sequence[StageCurves], offsets: Sequence[int], field: str) -> list[_Points]:
    """Return the points of each stage that has some."""
    size = max(1, -(-sum(len(one.rows) for one in stages) // _MOST_POINTS))
    parts: list[_Points] = []
    for offset, stage in zip(offsets, stages, strict=True):
        points = [
            (float(offset + row.step), float(value))
            for row in stage.rows
            if (value := getattr(row, field)) is not None
        ]
        groups = [points[start : start + size] for start in range(0, len(points), size)]
        if field == "held_out":  # Evaluations are few, and each counts.
            groups = [[point] for point in points]
        if groups:
            parts.append([(group[-1][0], sum(value for _, value in group) / len(group)) for group in groups])
    return parts


def _draw(
    title: str, series: Sequence[tuple[str, str, list[_Points]]], ends: Sequence[tuple[int, str]]
) -> Plot | None:
    # One curve through all of them gives the axes.
    every = sorted(point for _, _, parts in series for points in parts for point in points)
    axes = build_curve([(at, value, None, None) for at, value in every])
    if axes is None:
        return None
    first, last = every[0][0], every[-1][0]
    top = max(value for _, value in every) or 1.0

    def place(at: float) -> float:
        return round(WIDTH * (at - first) / ((last - first) or 1.0), 1)

    def join(points: _Points) -> str:
        return " ".join(f"{place(at):g},{HEIGHT * (1 - value / top):.1f}" for at, value in points)

    lines = [PlotLine(name, style, [join(points) for points in parts]) for name, style, parts in series]
    description = ", ".join(
        f"{name} from {parts[0][0][1]:,.4g} to {parts[-1][-1][1]:,.4g}" for name, _, parts in series
    )
    return Plot(title, lines, axes.across, axes.up, [(place(at), name) for at, name in ends], description)


def _shorten(rows: Sequence[TrainingRow], most: int) -> list[TrainingRow]:
    size = max(1, -(-len(rows) // most))
    return [_average(rows[start : start + size]) for start in range(0, len(rows), size)]


def _average(rows: Sequence[TrainingRow]) -> TrainingRow:
    def mean(field: str) -> float | None:
        found = [float(value) for one in rows if (value := getattr(one, field)) is not None]
        return sum(found) / len(found) if found else None

    return TrainingRow(
        rows[0].stage,
        rows[-1].step,
        mean("loss"),
        mean("held_out"),
        mean("tokens_per_second"),
        mean("learning_rate"),
    )
