"""Charts: what one shows, with which coordinates and colours a page draws it, and the same as files for papers.

Below, the same charts are written as files for papers.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from itertools import chain
from math import ceil, floor, log10
from pathlib import Path
from typing import Any, Literal

from bactrian._version import __version__
from bactrian.errors import import_optional
from bactrian.files.atomic import MANIFEST, check_target, list_files, write_atomically

# The colours and fonts of all pages, reports, charts and the documentation, as ``look.css`` names them.


# One colour for both themes, or that of the light and that of the dark one.
_COLOUR = re.compile(r"--([\w-]+): (?:light-dark\((#\w+), (#\w+)\)|(#\w+));")


@cache
def read_look() -> str:
    """Return the style sheet of the look, which comes before that of a page."""
    return files("bactrian.figures").joinpath("look.css").read_text("utf-8")


@cache
def read_colours() -> dict[str, tuple[str, str]]:
    """Return the colours of the light and of the dark theme by their names, for pictures that have no style sheet."""
    return {name: (light or both, dark or both) for name, light, dark, both in _COLOUR.findall(read_look())}


@cache
def list_group_colours() -> tuple[str, ...]:
    """Return the colours of groups, such as the topics of a map. All groups beyond these have the last one."""
    return tuple(light for name, (light, _) in read_colours().items() if re.fullmatch(r"c\d+", name))


# Charts: what one shows, and the coordinates with which a page draws it as SVG.


# Size of the plot area, in units of the chart.
WIDTH, HEIGHT = 600.0, 220.0

# Position, value, and the ends of the interval (None if unknown).
Point = tuple[float, float, float | None, float | None]
# Position and value, or two coordinates.
Pair = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Series:
    """The values of one run, or of one measure."""

    name: str
    # In a chart of categories, a position is that of a category, from 0.
    points: Sequence[Point]


@dataclass(frozen=True, slots=True)
class Chart:
    """What a chart shows."""

    # The name of its files.
    name: str
    title: str
    # What the axes measure, with the unit.
    across: str
    up: str
    series: Sequence[Series]
    # What a reader has to know: the sample, the interval.
    caption: str
    # ``line``: over numbers; ``bars``: how often each number occurs; ``rates``: a value for each category.
    kind: Literal["line", "bars", "rates"] = "line"
    categories: Sequence[str] = ()
    # True if values are shares, from 0 to 1.
    shares: bool = False


@dataclass(frozen=True, slots=True)
class PlotLine:
    """A line of a plot, which may have gaps."""

    name: str
    style: str
    # Points of each part, in SVG syntax.
    parts: Sequence[str]
    # The first value.
    first: float
    last: float


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines over common axes, in the coordinates of a page."""

    title: str
    lines: Sequence[PlotLine]
    # Ticks: coordinate and number.
    across: Sequence[Pair]
    up: Sequence[Pair]
    # Where sections end, and their names.
    ends: Sequence[tuple[float, str]]
    # Outlines of the intervals, in SVG syntax.
    bands: Sequence[str]


def draw_plot(
    title: str,
    lines: Mapping[tuple[str, str], Sequence[Sequence[Pair]]],
    ends: Sequence[tuple[float, str]] = (),
    bands: Sequence[Sequence[Point]] = (),
) -> Plot | None:
    """Return a plot of lines, by name and style; None if there is nothing to draw. A line without points is left out.

    Args:
        title: The title.
        lines: The parts of each line, none of which is empty.
        ends: The positions at which sections end, and their names.
        bands: The points whose intervals are drawn, from left to right.
    """
    drawn = {key: parts for key, parts in lines.items() if parts}
    points = [point for parts in drawn.values() for part in parts for point in part]
    if not points:
        return None
    above = [[(position, value if high is None else high) for position, value, _, high in of] for of in bands]
    below = [[(position, value if low is None else low) for position, value, low, _ in of] for of in bands]
    first, last = min(points)[0], max(points)[0]
    top = max(value for _, value in (*points, *chain(*above))) or 1.0

    def x(position: float) -> float:
        return round(WIDTH * ((position - first) / (last - first) if last > first else 0.5), 1)

    def y(value: float) -> float:
        return round(HEIGHT * (1 - min(max(value, 0.0), top) / top), 1)

    def join(points: Iterable[Pair]) -> str:
        return " ".join(f"{x(position):g},{y(value):g}" for position, value in points)

    return Plot(
        title,
        [
            PlotLine(name, style, [join(part) for part in parts], parts[0][0][1], parts[-1][-1][1])
            for (name, style), parts in drawn.items()
        ],
        [(x(position), position) for position in _list_ticks(first, last, whole=True)],
        [(y(value), value) for value in _list_ticks(0.0, top)],
        [(x(position), name) for position, name in ends],
        [join([*up, *reversed(down)]) for up, down in zip(above, below, strict=True)],
    )


# Most bars of a histogram.
_BARS = 16


@dataclass(frozen=True, slots=True)
class HistogramBar:
    """A bar of a histogram, with the numbers to write at it."""

    x: float
    y: float
    width: float
    height: float
    # A value, or the first and the last of several.
    label: str
    count: int

    @property
    def middle(self) -> float:
        """Where its labels stand."""
        return round(self.x + self.width / 2, 1)


def build_histogram(counts: Mapping[int, int]) -> tuple[HistogramBar, ...]:
    """Return the bars for how often each value occurs; several values share a bar if there are more than 16."""
    if not counts:
        return ()
    first, last = min(counts), max(counts)
    size = max(ceil((last - first + 1) / _BARS), 1)
    begins = range(first, last + 1, size)
    sums = [sum(counts.get(value, 0) for value in range(begin, begin + size)) for begin in begins]
    step, top = WIDTH / len(sums), max(sums)
    bars: list[HistogramBar] = []
    for position, (begin, count) in enumerate(zip(begins, sums, strict=True)):
        height = round(HEIGHT * count / top, 1)
        end = min(begin + size - 1, last)
        label = str(begin) if begin == end else f"{begin}–{end}"
        width = min(round(0.84 * step, 1), 90.0)
        x = round(step * (position + 0.5) - width / 2, 1)
        bars.append(HistogramBar(x, round(HEIGHT - height, 1), width, height, label, count))
    return tuple(bars)


def _list_ticks(first: float, last: float, *, whole: bool = False) -> list[float]:
    """Return four to ten round numbers from ``first`` to ``last``; only ``whole`` ones if requested."""
    span = last - first
    if span <= 0:
        return [first]
    step = 10.0 ** floor(log10(span))
    step = next(step * part for part in (1.0, 0.5, 0.2, 0.1) if span / (step * part) >= 4)
    if whole:
        step = max(ceil(step), 1)
    return [round(step * number, 10) for number in range(ceil(first / step), floor(last / step + 1e-9) + 1)]


# Charts as files for papers: SVG, PDF, and the numbers as CSV. matplotlib draws them (extra ``figures``).


# Of a column and of a page of two columns, in inches.
COLUMN, PAGE = 3.35, 6.9
_HEIGHT = 2.3
# Inches of a category with its values.
_LINE = 0.17
# Most characters of a category.
_LONGEST = 34
# Told apart without colours, too.
_MARKERS, _DASHES = "osD^vP", ("-", "--", ":", "-.")
_STYLE = {
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.labelsize": 7.5,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "lines.markersize": 3,
    # Text stays text; the same numbers give the same bytes.
    "pdf.fonttype": 42,
    "svg.hashsalt": "bactrian",
}
_load = partial(import_optional, extra="figures", needed_for="A figure as a file")


def check_figures(folder: Path, *, overwrite: bool = False) -> None:
    """Check that :func:`save_charts` can write ``folder``, before the work for it begins.

    Raises:
        InputError: there is something at ``folder`` already, or its parent is missing.
        MissingExtra: matplotlib is not installed.
    """
    _load("matplotlib")
    check_target(folder, overwrite=overwrite, listed=True)


def save_charts(charts: Sequence[Chart], folder: Path, *, overwrite: bool = False) -> None:
    """Write ``folder`` with all that :func:`write_charts` writes, and a list of its files; all of it, or nothing.

    Args:
        charts: The charts.
        folder: A new folder, or with ``overwrite`` one that this function wrote.
        overwrite: True to replace it.

    Raises:
        InputError: the folder cannot be written.
        MissingExtra: matplotlib is not installed.
    """
    with write_atomically(folder, overwrite=overwrite, listed=True) as stage:
        target = stage / folder.name
        target.mkdir()
        write_charts(charts, target)
        content = {"bactrian": __version__, "format": "figures", "files": list_files(stage)}
        (target / MANIFEST).write_text(json.dumps(content, indent=1) + "\n", "utf-8")


def write_charts(charts: Sequence[Chart], folder: Path, width: float = COLUMN) -> list[Path]:
    """Write each chart as SVG, PDF and CSV into ``folder``, and all captions as ``captions.txt``; return the files.

    Args:
        charts: The charts; those without a point are left out.
        folder: An existing folder.
        width: Of a picture, in inches.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    matplotlib, figures = _load("matplotlib"), _load("matplotlib.figure")
    written: list[Path] = []
    drawn = [chart for chart in charts if any(series.points for series in chart.series)]
    for chart in drawn:
        height = _HEIGHT
        if chart.kind == "rates":
            names = -(-len(chart.series) // 2) if len(chart.series) > 1 else 0  # lines of the legend
            height = 0.75 + _LINE * (names + len(chart.categories) * max(1.0, 0.6 * len(chart.series)))
        with matplotlib.rc_context({**_STYLE, "grid.color": read_colours()["line"][0]}):
            figure = figures.Figure((width, height), layout="constrained")
            _draw(chart, figure.add_subplot(), _load("matplotlib.ticker"))
            for kind, date in (("svg", "Date"), ("pdf", "CreationDate")):
                path = folder / f"{chart.name}.{kind}"
                figure.savefig(path, metadata={"Title": chart.title, date: None})
                written.append(path)
        written.append(_write_numbers(chart, folder / f"{chart.name}.csv"))
    captions = folder / "captions.txt"
    lines = [f"{chart.name}: {chart.title}. {chart.caption}\n" for chart in drawn]
    captions.write_text("\n".join(lines), "utf-8")
    return [*written, captions]


def _draw(chart: Chart, axes: Any, ticker: Any) -> None:
    """Draw a chart on matplotlib's axes."""
    axes.set_title(chart.title, loc="left")
    for number, series in enumerate(chart.series):
        if series.points:
            _draw_series(chart, axes, number)
    values = axes.xaxis if chart.kind == "rates" else axes.yaxis
    if chart.kind == "rates":
        names = [name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…" for name in chart.categories]
        axes.set_yticks(range(len(chart.categories)), names)
        axes.set_ylim(len(chart.categories) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        axes.set_xlim(left=0)
    else:
        axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
        axes.grid(visible=False, axis="x")
        axes.set_ylim(bottom=0)
    if chart.shares:
        values.set_major_formatter(ticker.PercentFormatter(1.0, symbol=" %"))
    else:
        values.set_major_formatter(ticker.StrMethodFormatter("{x:,g}"))
    if len(chart.series) > 1:
        axes.figure.legend(loc="outside upper right", ncols=2)
    axes.set_xlabel(chart.across)
    axes.set_ylabel(chart.up)


def _draw_series(chart: Chart, axes: Any, number: int) -> None:
    series, colour = chart.series[number], list_group_colours()[number % (len(list_group_colours()) - 1)]
    marker = _MARKERS[number % len(_MARKERS)]
    positions = [position for position, *_ in series.points]
    values = [value for _, value, *_ in series.points]
    below = [value if low is None else low for _, value, low, _ in series.points]
    above = [value if high is None else high for _, value, _, high in series.points]
    # Whole at 0
    look: dict[str, Any] = {"color": colour, "label": series.name, "clip_on": False, "zorder": 3}
    if chart.kind == "bars":
        axes.bar(positions, values, 0.8, color=colour, label=series.name)
    elif chart.kind == "line":
        axes.fill_between(positions, below, above, color=colour, alpha=0.18, linewidth=0)
        axes.plot(positions, values, _DASHES[number % len(_DASHES)], marker=marker, **look)
    else:
        shift = 0.6 * ((number + 0.5) / len(chart.series) - 0.5)
        places = [position + shift for position in positions]
        axes.hlines(places, below, above, color=colour, linewidth=1)
        axes.plot(values, places, marker, **look)


def _write_numbers(chart: Chart, path: Path) -> Path:
    first = "category" if chart.categories else "position"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("series", first, "value", "low", "high"))
        for series in chart.series:
            for position, *values in series.points:
                place = chart.categories[int(position)] if chart.categories else f"{position:g}"
                writer.writerow((series.name, place, *("" if value is None else value for value in values)))
    return path
