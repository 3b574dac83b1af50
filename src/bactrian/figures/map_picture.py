"""The picture of a map, as SVG: points, the names of topics beside them, and a legend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from bactrian.figures.look import list_group_colours, read_colours
from bactrian.figures.text_map import LABEL_SIZE, MAP_WIDTH, POINT_RADIUS, MapLabel, measure_label

_LEGEND, _LINE = 4200, 300


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """A colour of a picture: what it stands for, how often that occurs, and the colour's number."""

    name: str
    count: int
    group: int


def draw_map_picture(
    points: Iterable[tuple[int, int, int]],
    labels: Sequence[MapLabel],
    names: Sequence[str],
    legend: Sequence[LegendEntry],
    title: str,
) -> str:
    """Return the SVG of a map.

    Args:
        points: x, y and colour group of each text.
        labels: Where names of topics stand.
        names: The name of each topic.
        legend: What the colours mean.
        title: What the points are, for people who do not see them.
    """
    colours, ink = list_group_colours(), read_colours()["ink"][0]
    groups: list[list[str]] = [[] for _ in colours]
    for x, y, group in points:
        groups[group].append(f'<circle cx="{x}" cy="{MAP_WIDTH - y}" r="{POINT_RADIUS}"/>')
    drawn = [
        f'<g fill="{colour}" fill-opacity=".85">{"".join(dots)}</g>'
        for colour, dots in zip(colours, groups, strict=True)
        if dots
    ]
    for label in labels:
        drawn += _draw_label(label, names[label.topic])
    for line, entry in enumerate(legend):
        y = MAP_WIDTH * 0.07 + line * _LINE
        drawn.append(
            f'<rect x="{MAP_WIDTH + 100}" y="{y - 130:g}" width="150" height="150" fill="{colours[entry.group]}"/>'
            f'<text x="{MAP_WIDTH + 340}" y="{y:g}" font-size="{LABEL_SIZE}">'
            f"{escape(entry.name)} ({entry.count:,})</text>"
        )
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {MAP_WIDTH + _LEGEND} {MAP_WIDTH}" role="img">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{MAP_WIDTH + _LEGEND}" height="{MAP_WIDTH}" fill="#fff"/>',
            f'<g font-family="system-ui, sans-serif" fill="{ink}">',
            *drawn,
            "</g>",
            "</svg>\n",
        )
    )


def _draw_label(label: MapLabel, name: str) -> Iterable[str]:
    """Yield the name of a topic, after a line to its points if it stands apart from them."""
    y = MAP_WIDTH - label.y
    half = (measure_label(name) / 2, LABEL_SIZE * 0.6)
    edge_x = min(max(label.point_x, label.x - half[0]), label.x + half[0])
    edge_y = min(max(MAP_WIDTH - label.point_y, y - half[1]), y + half[1])
    if abs(edge_x - label.point_x) + abs(edge_y - (MAP_WIDTH - label.point_y)) > LABEL_SIZE:
        yield (
            f'<line x1="{edge_x:g}" y1="{edge_y:g}" x2="{label.point_x}" y2="{MAP_WIDTH - label.point_y}"'
            f' stroke="{read_colours()["soft"][0]}" stroke-width="12"/>'
        )
    yield (
        f'<text x="{label.x}" y="{y + LABEL_SIZE * 0.35:g}" text-anchor="middle" font-size="{LABEL_SIZE}"'
        f' font-weight="600">{escape(name)}</text>'
    )
