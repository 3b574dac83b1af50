"""Charts: what one shows, and the coordinates with which a page draws it as SVG.

``chart_files.py`` writes the same charts as files for papers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil, floor, log10
from typing import Literal

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
