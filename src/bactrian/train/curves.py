"""The curves of a training: the losses and the speed of its stages, one after another, and the losses as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from bactrian.charts import HEIGHT, WIDTH, Pair, Plot, draw_plot
from bactrian.errors import InputError
from bactrian.train.training_folder import StageFolder, list_stage_folders, measure_usage, read_log, read_plan

MEASURES = ("loss", "held_out", "tokens_per_second", "learning_rate")
"""What is measured at a step."""
_PLOTS: Mapping[str, Mapping[tuple[str, str], str]] = {
    "Loss": {("training", "train"): "loss", ("held out", "held"): "held_out"},
    "Tokens per second": {("tokens per second", "train"): "tokens_per_second"},
}
"""The measure of each line, by its name and style, by the title of the plot."""
_COLOURS: Mapping[str, str] = {"train": "#0969da", "held": "#bc4c00"}
_MOST_POINTS = 400
"""Points of a line; more are averaged."""
_MOST_ROWS = 60
"""Rows of a stage's table; steps between them are averaged."""
_LEFT, _TOP, _BOTTOM = 50.0, 30.0, 45.0
_STYLE = """
text{font:12px sans-serif;fill:#222}polyline{fill:none;stroke-width:1.5}.axis{stroke:#888;stroke-width:1}
.end{stroke:#bbb;stroke-dasharray:4 3}
@media(prefers-color-scheme:dark){text{fill:#ddd}.axis{stroke:#777}}
"""


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
            *(None if values.get(name) is None else float(values[name]) for name in MEASURES),
        )
        for step, values in steps.items()
    ]
    usage = measure_usage(folder.log)
    most = max((values["of"] for values in steps.values()), default=0)
    last = max(steps, default=0)
    return StageCurves(
        folder.name, folder.is_complete, last, most, usage.seconds, usage.peak_bytes, tuple(rows)
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
    target.write_text(_write_svg(plots[0] if plots else None), "utf-8")


def _write_svg(plot: Plot | None) -> str:
    lines = plot.lines if plot else ()
    described = (
        ", ".join(f"{line.name} from {line.first:.2f} to {line.last:.2f}" for line in lines) or "no step"
    )
    box = f"0 0 {WIDTH + 2 * _LEFT:g} {HEIGHT + _TOP + _BOTTOM:g}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" role="img"',
        f' aria-label="Loss by step: {described}."><style>{_STYLE}</style>',
        f'<g transform="translate({_LEFT:g} {_TOP:g})">',
    ]
    if plot is None:
        return "".join([*parts, '<text x="0" y="20">No step was logged.</text></g></svg>\n'])
    parts.append(f'<path class="axis" fill="none" d="M0 0V{HEIGHT:g}H{WIDTH:g}"/>')
    parts += [f'<text x="-6" y="{y + 4:g}" text-anchor="end">{value:g}</text>' for y, value in plot.up]
    parts += [
        f'<text x="{x:g}" y="{HEIGHT + 16:g}" text-anchor="middle">{step:g}</text>' for x, step in plot.across
    ]
    parts.append(f'<text x="{WIDTH / 2:g}" y="{HEIGHT + 34:g}" text-anchor="middle">step</text>')
    for x, name in plot.ends:
        parts.append(f'<path class="end" d="M{x:g} 0V{HEIGHT:g}"/>')
        parts.append(f'<text x="{x:g}" y="-4" text-anchor="end">{escape(name)}</text>')
    for number, line in enumerate(lines):
        colour, row = _COLOURS[line.style], 14 + 16 * number
        parts.append(f'<polyline stroke="{colour}" points="{" ".join(line.parts)}"/>')
        parts.append(
            f'<text x="{WIDTH - 4:g}" y="{row}" text-anchor="end" style="fill:{colour}">{line.name}</text>'
        )
    return "".join([*parts, "</g></svg>\n"])
