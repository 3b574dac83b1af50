"""Charts as files for papers: SVG, PDF, and the numbers as CSV. matplotlib draws them (extra ``figures``)."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bactrian._version import __version__
from bactrian.errors import import_optional
from bactrian.figures.chart import Chart
from bactrian.figures.look import list_group_colours, read_colours
from bactrian.files.atomic import check_target, write_atomically
from bactrian.files.replacement import MANIFEST, list_files

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
        axes.set_yticks(range(len(chart.categories)), [_shorten(name) for name in chart.categories])
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


def _shorten(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


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
