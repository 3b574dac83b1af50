"""Pictures of a conversation as SVG: who hears whom in a society, and the tree of a critic's search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import cos, hypot, pi, sin

from markupsafe import Markup, escape

from bactrian.blocks import make_visible
from bactrian.explore.layout import Branch, name_hue
from bactrian.records.session import Session

# Agents beyond this number are listed and not drawn: their arrows would cover each other.
MOST_DRAWN = 24
_WIDTH, _HEIGHT, _NODE = 760, 420, 9
# Of a tree: between two depths, and between two proposals.
_COLUMN, _ROW = 110, 30
# Characters of a name in a picture.
_LONGEST = 26


@dataclass(frozen=True, slots=True)
class HeardAgent:
    """An agent of a society, with those that hear it."""

    role: str
    # The class of its colour.
    hue: str
    # How many messages it wrote, and the number of its first; 0 if it wrote none.
    messages: int
    first: int
    # Roles of the others that hear it, and of those that do not.
    heard_by: tuple[str, ...]
    not_heard_by: tuple[str, ...]


def list_heard(session: Session, deaf: Mapping[str, Sequence[str]]) -> dict[str, HeardAgent]:
    """Return the agents of a group chat by their names, in the order of the cast.

    Args:
        session: The group chat.
        deaf: By agent, the names of those that do not hear it.
    """
    cast = session.provenance.cast
    counts = Counter(turn.speaker for turn in session.turns)
    firsts = {turn.speaker: turn.number for turn in reversed(session.turns)}
    return {
        name: HeardAgent(
            role.name,
            name_hue(place),
            counts[name],
            firsts.get(name, 0),
            tuple(cast[other].name for other in cast if other != name and other not in deaf.get(name, ())),
            tuple(cast[other].name for other in deaf.get(name, ())),
        )
        for place, (name, role) in enumerate(cast.items())
    }


def draw_hearing(session: Session, deaf: Mapping[str, Sequence[str]]) -> Markup:
    """Return the agents of a group chat on an ellipse, with an arrow from each to those that hear it.

    It is empty if there are too many.
    """
    cast = session.provenance.cast
    if len(cast) > MOST_DRAWN:
        return Markup("")
    angles = [2 * pi * place / len(cast) - pi / 2 for place in range(len(cast))]
    places = [(_WIDTH / 2 + 180 * cos(angle), _HEIGHT / 2 + 160 * sin(angle)) for angle in angles]
    drawn: list[str] = []
    for at, speaker in enumerate(cast):
        arrows = (
            _draw_arrow(places[at], places[to])
            for to, listener in enumerate(cast)
            if to != at and listener not in deaf.get(speaker, ())
        )
        drawn.append(f'<g class="{name_hue(at)}">{"".join(arrows)}</g>')
    for at, (role, (x, y)) in enumerate(zip(cast.values(), places, strict=True)):
        drawn.append(
            f'<circle class="{name_hue(at)}" cx="{x:.0f}" cy="{y:.0f}" r="{_NODE}"/>{_draw_name(x, y, role.name)}'
        )
    return _wrap(_WIDTH, _HEIGHT, "Who hears whom", drawn)


def _draw_name(x: float, y: float, name: str) -> str:
    """Return the name of an agent, outside of the ellipse."""
    side = 0 if abs(x - _WIDTH / 2) < 30 else 1 if x > _WIDTH / 2 else -1
    anchor = ("middle", "start", "end")[side]
    y += 5 if side else 2.6 * _NODE if y > _HEIGHT / 2 else -1.6 * _NODE
    x += 1.7 * side * _NODE
    shown = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(make_visible(shown))}</text>'


def _draw_arrow(begin: tuple[float, float], end: tuple[float, float]) -> str:
    """Return an arrow with a bend. One the other way bends to the other side."""
    (x, y), (to_x, to_y) = begin, end
    middle_x, middle_y = (x + to_x) / 2 - 0.16 * (to_y - y), (y + to_y) / 2 + 0.16 * (to_x - x)
    # In this direction the curve arrives; its tip touches the circle of the listener.
    rest = hypot(to_x - middle_x, to_y - middle_y)
    along_x, along_y = (to_x - middle_x) / rest, (to_y - middle_y) / rest
    tip_x, tip_y = to_x - _NODE * along_x, to_y - _NODE * along_y
    back_x, back_y = tip_x - 8 * along_x, tip_y - 8 * along_y
    return (
        f'<path d="M{x:.0f} {y:.0f}Q{middle_x:.0f} {middle_y:.0f} {back_x:.0f} {back_y:.0f}"/>'
        f'<path class="tip" d="M{tip_x:.1f} {tip_y:.1f}L{back_x - 4 * along_y:.1f} {back_y + 4 * along_x:.1f}'
        f'L{back_x + 4 * along_y:.1f} {back_y - 4 * along_x:.1f}Z"/>'
    )


def draw_search(roots: Sequence[Branch]) -> Markup:
    """Return the tree of a search: a column for each message, a dot for each proposal, the spoken line in bold."""
    placed = list(_place_branches(roots, [0]))
    numbers = {branch.proposal.number for branch, _, _ in placed}
    first, columns = min(numbers), max(numbers) - min(numbers) + 1
    lines: list[str] = []
    dots: list[str] = []
    for branch, row, above in placed:
        x, y = 20 + _COLUMN * (branch.proposal.number - first), 40 + _ROW * row
        kind = "chosen" if branch.chosen else "survives" if branch.survives else "left"
        if above is not None:
            before, middle = 40 + _ROW * above, x - _COLUMN / 2
            lines.append(
                f'<path class="{kind}" d="M{x - _COLUMN} {before:g}C{middle:g} {before:g} {middle:g} {y:g} {x} {y:g}"/>'
            )
        dots.append(
            f'<circle class="{kind}" cx="{x}" cy="{y:g}" r="{6 if branch.chosen else 4}"/>'
            f'<text x="{x - 4}" y="{y - 9:g}">{branch.proposal.place}</text>'
        )
    heads = [f'<text x="{14 + _COLUMN * at}" y="14">message {first + at}</text>' for at in range(columns)]
    height = 34 + _ROW * (1 + max(row for _, row, _ in placed))
    return _wrap(_COLUMN * columns, height, "The tree of the search", [*heads, *lines, *dots])


def _place_branches(
    branches: Sequence[Branch], free: list[int], above: float | None = None
) -> Iterator[tuple[Branch, float, float | None]]:
    """Yield each branch with its row and that of its parent, which stands in the middle; ``free`` is the next row."""
    for branch in branches:
        row = free[0] + (_count_leaves(branch) - 1) / 2
        yield branch, row, above
        if branch.children:
            yield from _place_branches(branch.children, free, row)
        else:
            free[0] += 1


def _count_leaves(branch: Branch) -> int:
    return sum(map(_count_leaves, branch.children)) or 1


def _wrap(width: float, height: float, title: str, drawn: Sequence[str]) -> Markup:
    head = f'<svg class="drawn" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img" aria-label="{title}">'
    return Markup(f"{head}{''.join(drawn)}</svg>")  # noqa: S704 (the names in it are escaped)
