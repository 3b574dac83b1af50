"""The coordinates of SVG charts: a curve with its interval, and a histogram."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

WIDTH, HEIGHT = 600.0, 220.0
"""Size of the plot area, in units of the chart."""

Point = tuple[float, float, float | None, float | None]
"""Position, value, and the ends of the interval (None if unknown)."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The coordinates of a curve."""

    line: str
    """Points of the curve, in SVG syntax."""
    band: str
    """Outline of the interval, in SVG syntax."""
    dots: tuple[tuple[float, float], ...]
    across: tuple[tuple[float, float], ...]
    """Ticks of the lower axis: position and whole number."""
    up: tuple[tuple[float, float], ...]
    """Ticks of the left axis."""


def build_curve(points: Sequence[Point]) -> Curve | None:
    """Return the curve through ``points``, ordered from left to right; None if there is nothing to draw."""
    if not points:
        return None
    first, last = points[0][0], points[-1][0]
    top = max(max(value, high or 0.0) for _, value, _, high in points) or 1.0

    def x(at: float) -> float:
        return round(WIDTH * ((at - first) / (last - first) if last > first else 0.5), 1)

    def y(value: float) -> float:
        return round(HEIGHT * (1 - min(max(value, 0.0), top) / top), 1)

    above = [(x(at), y(value if high is None else high)) for at, value, _, high in points]
    below = [(x(at), y(value if low is None else low)) for at, value, low, _ in points]
    dots = tuple((x(at), y(value)) for at, value, _, _ in points)
    return Curve(
        line=_points(dots),
        band=_points([*above, *reversed(below)]),
        dots=dots,
        across=tuple((x(at), at) for at in _ticks(first, last, whole=True)),
        up=tuple((y(value), value) for value in _ticks(0.0, top)),
    )


_BARS = 16
"""Most bars of a histogram."""


@dataclass(frozen=True, slots=True)
class HistogramBar:
    """A bar of a histogram, with the numbers to write at it."""

    x: float
    y: float
    width: float
    height: float
    label: str
    """A value, or the first and the last of several."""
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
    for place, (begin, count) in enumerate(zip(begins, sums, strict=True)):
        height = round(HEIGHT * count / top, 1)
        end = min(begin + size - 1, last)
        label = str(begin) if begin == end else f"{begin}–{end}"
        width = min(round(0.84 * step, 1), 90.0)
        x = round(step * (place + 0.5) - width / 2, 1)
        bars.append(HistogramBar(x, round(HEIGHT - height, 1), width, height, label, count))
    return tuple(bars)


def _points(pairs: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in pairs)


def _ticks(first: float, last: float, *, whole: bool = False) -> list[float]:
    """Return four to ten round numbers from ``first`` to ``last``; only ``whole`` ones if requested."""
    span = last - first
    if span <= 0:
        return [first]
    step = 10.0 ** floor(log10(span))
    step = next(step * part for part in (1.0, 0.5, 0.2, 0.1) if span / (step * part) >= 4)
    if whole:
        step = max(ceil(step), 1)
    return [round(step * number, 10) for number in range(ceil(first / step), floor(last / step + 1e-9) + 1)]
