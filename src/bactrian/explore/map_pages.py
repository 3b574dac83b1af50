"""Maps of tasks and of instructions: a picture, the table behind it, and links from both to the list."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from bactrian.api.map_texts import MAP_TEXTS
from bactrian.errors import InputError, MissingExtra
from bactrian.explore.index_upkeep import start_process
from bactrian.explore.library import DataSet
from bactrian.explore.library_index import read_meta
from bactrian.explore.rendering import get_explorer, read_form, render_page, send_csv
from bactrian.explore.session_lists import ListFilter, select_rows
from bactrian.figures.map_picture import COLOURS, LegendEntry, draw_map_picture
from bactrian.figures.text_map import MapLabel

_COLOURS = {
    "topic": "Topic",
    "ending": "Ending",
    "assistant": "AI assistant",
    "user": "AI user",
    "findings": "Findings",
}
# Points of maps, with what is known of their conversations.
_JOINED = "FROM points JOIN facts USING (row)"
_BEGINS = "it begins"
# Tenths of a second to wait for a process that draws to say how far it is.
_FIRST_WORDS = 50


def show_map(request: Request) -> Response:
    """Show a map, or how far it is drawn, or the button that draws it."""
    choice = _read_choice(request)
    progress, drawn = _read_map(choice.data_set, choice.what)
    return render_page(
        request,
        "map.html",
        sets=list(get_explorer(request).library.sets),
        data=choice.data_set.name,
        what=choice.what,
        whats=MAP_TEXTS,
        by=choice.by,
        colours=_COLOURS,
        progress=progress,
        topics=_count_topics(request, choice, drawn.names) if drawn else [],
        labels=json.dumps(
            [(drawn.names[label.topic], *astuple(label)[1:]) for label in drawn.labels] if drawn else []
        ),
        legend=_read_groups(request, choice, drawn.names)[0] if drawn else [],
        drawn=drawn is not None,
    )


async def draw_map(request: Request) -> Response:
    """Begin to draw a map in a process of its own."""
    form = await read_form(request, writes=False)
    if find_spec("sklearn") is None:
        raise MissingExtra("analysis", "A map")
    data_set = _find_set(request, form.get("data", ""))
    what = form.get("what", "")
    if what not in MAP_TEXTS:
        raise InputError("There is no such map.", where="what", next=f"Maps: {', '.join(MAP_TEXTS)}.")
    if data_set.drawing is None or data_set.drawing.returncode is not None:
        data_set.drawing = await start_process(
            "bactrian.explore.map_drawing",
            *(str(data_set.run), str(data_set.index), str(data_set.number), what),
        )
        for _ in range(_FIRST_WORDS):  # The page that follows shows how far it is.
            if data_set.drawing.returncode is not None or _read_map(data_set, what)[0] not in ("", _BEGINS):
                break
            await asyncio.sleep(0.1)
    return RedirectResponse(f"/map?{urlencode({'data': data_set.name, 'what': what})}", 303)


def send_points(request: Request) -> Response:
    """Return the points as bytes: for each one its x, y (two bytes each) and its colour group (one)."""
    choice, drawn = _read_drawn(request)
    _, groups = _read_groups(request, choice, drawn.names)
    with choice.data_set.read_index() as index:
        points = index.execute(
            f"SELECT x, y, {choice.value} {_JOINED} WHERE what = ? ORDER BY row, turn", (choice.what,)
        )
        body = b"".join(struct.pack("<HHB", x, y, groups[value]) for x, y, value in points)
    return Response(body, media_type="application/octet-stream")


def write_csv(request: Request) -> Response:
    """Return the points as a table: conversation, message, place and topic."""
    choice, drawn = _read_drawn(request)
    query = (
        "SELECT id, turn, x, y, topic FROM points JOIN heads USING (row) WHERE what = ? ORDER BY row, turn"
    )
    with choice.data_set.read_index() as index:
        rows: list[tuple[str, int, int, int, int]] = index.execute(query, (choice.what,)).fetchall()
    disarmed = (
        (_disarm(name), turn or "", x, y, _disarm(drawn.names[topic])) for name, turn, x, y, topic in rows
    )
    return send_csv(("session", "turn", "x", "y", "topic"), disarmed)


def _disarm(text: str) -> str:
    """Return ``text`` so that a spreadsheet does not take it for a formula."""
    return f"'{text}" if text[:1] in "=+-@\t\r" else text


def write_svg(request: Request) -> Response:
    """Return the map as a picture with the names of its topics and a legend."""
    choice, drawn = _read_drawn(request)
    legend, groups = _read_groups(request, choice, drawn.names)
    where, values = _select_points(request, choice.what)
    query = f"SELECT x, y, {choice.value} {_JOINED} {where} ORDER BY row, turn"
    with choice.data_set.read_index() as index:
        points = [(x, y, groups[value]) for x, y, value in index.execute(query, values)]
    # A copy of some conversations may lack the points that a label stands beside.
    shown = {(x, y) for x, y, _ in points}
    labels = [label for label in drawn.labels if (label.point_x, label.point_y) in shown]
    picture = draw_map_picture(
        points, labels, drawn.names, legend, f"Map of {MAP_TEXTS[choice.what].lower()}"
    )
    headers = {"content-disposition": 'attachment; filename="map.svg"'}
    return Response(picture, media_type="image/svg+xml", headers=headers)


class MapChoice(NamedTuple):
    """Which map is shown, and what its colours mean."""

    data_set: DataSet
    what: str
    by: str

    @property
    def value(self) -> str:
        """The column, or what is made of one, that decides the colour of a point."""
        return {"topic": "topic", "findings": "min(findings, 3)"}.get(self.by, self.by)


@dataclass(frozen=True, slots=True)
class DrawnMap:
    """The topics of a map that is drawn."""

    names: Sequence[str]
    labels: Sequence[MapLabel]


def _read_choice(request: Request) -> MapChoice:
    query = request.query_params
    what, by = query.get("what", "task"), query.get("by", "topic")
    if what not in MAP_TEXTS or by not in _COLOURS:
        raise InputError("There is no such map.", next="Go back and choose one.")
    return MapChoice(_find_set(request, query.get("data", "")), what, by)


def _find_set(request: Request, name: str) -> DataSet:
    sets = get_explorer(request).library.sets
    if name and name not in sets:
        raise HTTPException(404, f"There is no data set {name!r}.")
    if not sets:
        raise InputError(
            "There is no run to draw.", next="Start the explorer with a run: bactrian explore RUN"
        )
    return sets[name] if name else next(iter(sets.values()))


def _read_drawn(request: Request) -> tuple[MapChoice, DrawnMap]:
    choice = _read_choice(request)
    _, drawn = _read_map(choice.data_set, choice.what)
    if drawn is None:
        raise HTTPException(404, "This map is not drawn yet.")
    return choice, drawn


def _read_map(data_set: DataSet, what: str) -> tuple[str, DrawnMap | None]:
    """Return how far the map is, empty if it is not being drawn, and the one that was drawn."""
    running = data_set.drawing is not None and data_set.drawing.returncode is None
    with data_set.read_index() as index:
        meta = read_meta(index)
    progress, stored = meta.get(f"drawing of {what}", ""), meta.get(f"map of {what}")
    drawn = None
    if stored:
        content = json.loads(stored)
        drawn = DrawnMap(content["names"], [MapLabel(*label) for label in content["labels"]])
    # A map that is stored is complete, even if its process has not ended yet.
    return (progress if drawn else progress or _BEGINS) if running else "", drawn


def _count_topics(request: Request, choice: MapChoice, topics: Sequence[str]) -> list[tuple[int, str, int]]:
    """Return number, name and size of each topic, the largest first."""
    where, values = _select_points(request, choice.what)
    query = f"SELECT topic, count(*) FROM points {where} GROUP BY topic ORDER BY 2 DESC, 1"  # noqa: S608
    with choice.data_set.read_index() as index:
        counted: list[tuple[int, int]] = index.execute(query, values).fetchall()
    return [(topic, topics[topic], count) for topic, count in counted]


def _select_points(request: Request, what: str) -> tuple[str, list[Any]]:
    """Return the condition of the points that are shown: all, or in a copy those of its conversations."""
    static = get_explorer(request).static
    list_filter = ListFilter.read(QueryParams(static.removeprefix("?")))
    if list_filter.is_empty:
        return "WHERE what = ?", [what]
    source, values = select_rows(list_filter)
    return f"WHERE what = ? AND row IN (SELECT facts.row {source})", [what, *values]


def _read_groups(
    request: Request, choice: MapChoice, topics: Sequence[str]
) -> tuple[list[LegendEntry], dict[int | str, int]]:
    """Return the legend, and the colour group of each value."""
    where, values = _select_points(request, choice.what)
    query = f"SELECT value, count(*) FROM (SELECT {choice.value} AS value {_JOINED} {where}) GROUP BY value"  # noqa: S608
    with choice.data_set.read_index() as index:
        counted: list[tuple[int | str, int]] = index.execute(query, values).fetchall()
    last = len(COLOURS) - 1
    counted.sort(key=lambda pair: (-pair[1], str(pair[0])))
    groups = {value: min(number, last) for number, (value, _) in enumerate(counted)}
    legend = [
        LegendEntry(_name_group(value, choice.by, topics), count, groups[value])
        for value, count in counted[:last]
    ]
    if rest := counted[last:]:
        legend.append(LegendEntry("others", sum(count for _, count in rest), last))
    return legend, groups


def _name_group(value: int | str, by: str, topics: Sequence[str]) -> str:
    if by == "topic":
        return topics[int(value)]
    if by == "findings":
        names: dict[int, str] = {-1: "not looked for", 0: "none", 3: "3 or more"}
        return names.get(int(value), str(value))
    return str(value).replace("_", " ")


ROUTES = (
    Route("/map", show_map, methods=["GET"]),
    Route("/map", draw_map, methods=["POST"]),
    Route("/map/points", send_points),
    Route("/map.csv", write_csv),
    Route("/map.svg", write_svg),
)
