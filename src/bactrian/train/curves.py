"""The losses of a training as a picture (SVG)."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from bactrian.analyze.page.charts import HEIGHT, WIDTH, Point, build_curve
from bactrian.train.folder import StageFolder
from bactrian.train.log import read_log

_LEFT, _TOP, _BOTTOM = 50.0, 30.0, 45.0
_MOST_POINTS = 400
"""Steps of a curve; more are averaged."""
_STYLE = """
text{font:12px sans-serif;fill:#222}polyline{fill:none;stroke-width:1.5}.axis{stroke:#888;stroke-width:1}
.end{stroke:#bbb;stroke-dasharray:4 3}
@media(prefers-color-scheme:dark){text{fill:#ddd}.axis{stroke:#777}}
"""


def draw_curves(stages: Sequence[StageFolder], target: Path) -> None:
    """Draw the losses of these stages, one after another: on training data, and on held-out data."""
    train: list[tuple[float, float]] = []
    held_out: list[tuple[float, float]] = []
    ends: list[tuple[float, str]] = []
    offset = 0.0
    for stage in stages:
        events = read_log(stage.log)
        last = max((event["step"] for event in events), default=0)
        train += [(offset + event["step"], event["loss"]) for event in events if event["event"] == "step"]
        held_out += [
            (offset + event["step"], event["loss"]) for event in events if event["event"] == "evaluated"
        ]
        offset += last
        ends.append((offset, stage.name))
    target.write_text(_draw(_average(train), held_out, ends), "utf-8")


def _average(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the averages of neighbours, so that a long training is a readable curve."""
    size = -(-len(points) // _MOST_POINTS)
    if size <= 1:
        return points
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [(group[-1][0], sum(loss for _, loss in group) / len(group)) for group in groups]


def _draw(
    train: list[tuple[float, float]], held_out: list[tuple[float, float]], ends: list[tuple[float, str]]
) -> str:
    # One curve through both gives common axes.
    every: list[Point] = [(at, loss, None, None) for at, loss in sorted([*train, *held_out])]
    axes = build_curve(every)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + 2 * _LEFT:g} {HEIGHT + _TOP + _BOTTOM:g}" '
            f'role="img" aria-label="{escape(_describe(train, held_out))}"><style>{_STYLE}</style>'
        ),
        f'<g transform="translate({_LEFT:g} {_TOP:g})">',
    ]
    if axes is None:
        return "".join([*parts, '<text x="0" y="20">No step was logged.</text></g></svg>\n'])
    parts += [f'<path class="axis" fill="none" d="M0 0V{HEIGHT:g}H{WIDTH:g}"/>']
    parts += [f'<text x="-6" y="{y + 4:g}" text-anchor="end">{value:g}</text>' for y, value in axes.up]
    parts += [
        f'<text x="{x:g}" y="{HEIGHT + 16:g}" text-anchor="middle">{at:g}</text>' for x, at in axes.across
    ]
    parts.append(f'<text x="{WIDTH / 2:g}" y="{HEIGHT + 34:g}" text-anchor="middle">step</text>')
    first, last = every[0][0], every[-1][0]
    top = max(loss for _, loss, _, _ in every) or 1.0

    def place(at: float, loss: float) -> str:
        return f"{WIDTH * ((at - first) / ((last - first) or 1)):.1f},{HEIGHT * (1 - loss / top):.1f}"

    for at, name in ends:
        x = place(at, 0).split(",")[0]
        parts.append(f'<path class="end" d="M{x} 0V{HEIGHT:g}"/>')
        parts.append(f'<text x="{x}" y="-4" text-anchor="end">{escape(name)}</text>')
    for colour, points, name, row in (
        ("#0969da", train, "training", 14),
        ("#bc4c00", held_out, "held out", 30),
    ):
        if points:
            line = " ".join(place(at, loss) for at, loss in points)
            parts.append(f'<polyline stroke="{colour}" points="{line}"/>')
            parts.append(
                f'<text x="{WIDTH - 4:g}" y="{row}" text-anchor="end" style="fill:{colour}">{name}</text>'
            )
    return "".join([*parts, "</g></svg>\n"])


def _describe(train: list[tuple[float, float]], held_out: list[tuple[float, float]]) -> str:
    described = [
        f"{name} from {points[0][1]:.2f} to {points[-1][1]:.2f}"
        for name, points in (("training", train), ("held out", held_out))
        if points
    ]
    return f"Loss by step: {', '.join(described) or 'no step'}."
