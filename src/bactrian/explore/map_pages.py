"""Maps of tasks and of first instructions: a picture, the table behind it, and links from both to the list."""

from __future__ import annotations

import asyncio
import json
import struct
from collections import Counter
from importlib.util import find_spec
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from bactrian.errors import InputError, MissingExtra
from bactrian.explore.index_upkeep import start_process
from bactrian.explore.library import DataSet
from bactrian.explore.library_index import MAP_WIDTH, read_meta
from bactrian.explore.rendering import get_explorer, read_form, render_page, render_text, send_csv
from bactrian.explore.session_lists import ListFilter, select_rows

WHAT = {"task": "Tasks", "instruction": "First instructions"}
_COLOURS = {
    "topic": "Topic",
    "ending": "Ending",
    "assistant": "AI assistant",
    "user": "AI user",
    "findings": "Findings",
}
# Topics that are named in a picture, the largest ones.
_LABELS = 12
# Tenths of a second to wait for a process that draws to say how far it is.
_FIRST_WORDS = 50


def show_map(request: Request) -> Response:
    """Show a map, or how far it is drawn, or the button that draws it."""
    choice = _read_choice(request)
    progress, topics = _read_map(choice.data_set, choice.what)
    counted = _count_topics(request, choice, topics) if topics else []
    return render_page(
        request,
        "map.html",
        sets=list(get_explorer(request).library.sets),
        data=choice.data_set.name,
        what=choice.what,
        whats=WHAT,
        by=choice.by,
        colours=_COLOURS,
        progress=progress,
        topics=counted,
        labels=json.dumps([[name, round(x), round(y)] for _, name, _, x, y in counted[:_LABELS]]),
        legend=_read_groups(choice, topics)[0] if counted else [],
        drawn=bool(counted),
    )


async def draw_map(request: Request) -> Response:
    """Begin to draw a map in a process of its own."""
    form = await read_form(request, writes=False)
    if find_spec("numpy") is None:
        raise MissingExtra("analysis", "A map")
    data_set = _find_set(request, form.get("data", ""))
    what = form.get("what", "")
    if what not in WHAT:
        raise InputError("There is no such map.", where="what", next=f"Maps: {', '.join(WHAT)}.")
    if data_set.drawing is None or data_set.drawing.returncode is not None:
        data_set.drawing = await start_process(
            "bactrian.explore.map_drawing",
            *(str(data_set.run), str(data_set.index), str(data_set.number), what),
        )
        for _ in range(_FIRST_WORDS):  # The page that follows shows how far it is.
            if data_set.drawing.returncode is not None or _read_map(data_set, what)[0] not in (
                "",
                "it begins",
            ):
                break
            await asyncio.sleep(0.1)
    return RedirectResponse(f"/map?{urlencode({'data': data_set.name, 'what': what})}", 303)


def send_points(request: Request) -> Response:
    """Return the points as bytes: for each one its x, y (two bytes each) and its colour group (one)."""
    choice = _read_choice(request)
    _, groups = _read_groups(choice, _read_map(choice.data_set, choice.what)[1])
    with choice.data_set.read_index() as index:
        points = index.execute("SELECT x, y, row FROM points WHERE what = ? ORDER BY row", (choice.what,))
        body = b"".join(struct.pack("<HHB", x, y, groups[row]) for x, y, row in points)
    return Response(body, media_type="application/octet-stream")


def write_csv(request: Request) -> Response:
    """Return the points as a table: conversation, place and topic."""
    choice = _read_choice(request)
    _, topics = _read_map(choice.data_set, choice.what)
    query = "SELECT id, x, y, topic FROM points JOIN heads USING (row) WHERE what = ? ORDER BY row"
    with choice.data_set.read_index() as index:
        rows: list[tuple[str, int, int, int]] = index.execute(query, (choice.what,)).fetchall()
    disarmed = ((_disarm(name), x, y, _disarm(topics[topic])) for name, x, y, topic in rows)
    return send_csv(("session", "x", "y", "topic"), disarmed)


def _disarm(text: str) -> str:
    """Return ``text`` so that a spreadsheet does not take it for a formula."""
    return f"'{text}" if text[:1] in "=+-@\t\r" else text


def write_svg(request: Request) -> Response:
    """Return the map as a picture with the names of its topics."""
    choice = _read_choice(request)
    _, topics = _read_map(choice.data_set, choice.what)
    _, groups = _read_groups(choice, topics)
    where, values = _select_points(request, choice.what)
    with choice.data_set.read_index() as index:
        rows = index.execute(f"SELECT row, x, y FROM points {where} ORDER BY row", values)  # noqa: S608
        dots = [(groups[row], x, y) for row, x, y in rows]
    names = _count_topics(request, choice, topics)[:_LABELS]
    picture = render_text(request, "map.svg", dots=dots, names=names, colours=COLOURS, width=MAP_WIDTH)
    headers = {"content-disposition": 'attachment; filename="map.svg"'}
    return Response(picture, media_type="image/svg+xml", headers=headers)


# Of the groups, told apart by people with colour blindness in their order; the table names them, too. Further groups
# share the last.
COLOURS = ("#3b6fb6", "#b5541c", "#2e7d4f", "#8a3fa0", "#a88300", "#0f7f8c", "#b02a5b", "#6b7280")


class MapChoice(NamedTuple):
    """Which map is shown, and what its colours mean."""

    data_set: DataSet
    what: str
    by: str


def _read_choice(request: Request) -> MapChoice:
    query = request.query_params
    what, by = query.get("what", "task"), query.get("by", "topic")
    if what not in WHAT or by not in _COLOURS:
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


def _read_map(data_set: DataSet, what: str) -> tuple[str, list[str]]:
    """Return how far the map is, and its topics; empty if it is not being drawn, or was not."""
    running = data_set.drawing is not None and data_set.drawing.returncode is None
    with data_set.read_index() as index:
        meta = read_meta(index)
    progress, topics = meta.get(f"drawing of {what}", ""), meta.get(f"map of {what}")
    # A map that is stored is complete, even if its process has not ended yet.
    return (progress if topics else progress or "it begins") if running else "", json.loads(topics or "[]")


def _count_topics(
    request: Request, choice: MapChoice, topics: list[str]
) -> list[tuple[int, str, int, float, float]]:
    """Return number, name, size and middle of each topic, the largest first."""
    where, values = _select_points(request, choice.what)
    query = f"SELECT topic, count(*), avg(x), avg(y) FROM points {where} GROUP BY topic ORDER BY 2 DESC"  # noqa: S608
    with choice.data_set.read_index() as index:
        return [(topic, topics[topic], *more) for topic, *more in index.execute(query, values)]


def _select_points(request: Request, what: str) -> tuple[str, list[Any]]:
    """Return the condition of the points that are shown: all, or in a copy those of its conversations."""
    static = get_explorer(request).static
    list_filter = ListFilter.read(QueryParams(static.removeprefix("?")))
    if list_filter.is_empty:
        return "WHERE what = ?", [what]
    source, values = select_rows(list_filter)
    return f"WHERE what = ? AND row IN (SELECT facts.row {source})", [what, *values]


def _read_groups(choice: MapChoice, topics: list[str]) -> tuple[list[tuple[str, int, int]], dict[int, int]]:
    """Return the legend (name, count, group), and the group of each point by its row."""
    column = {"topic": "topic", "findings": "min(findings, 3)"}.get(choice.by, choice.by)
    query = f"SELECT row, {column} FROM points JOIN facts USING (row) WHERE what = ? ORDER BY row"  # noqa: S608
    with choice.data_set.read_index() as index:
        values: dict[int, Any] = dict(index.execute(query, (choice.what,)).fetchall())
    last = len(COLOURS) - 1
    counts = sorted(Counter(values.values()).items(), key=lambda pair: (-pair[1], str(pair[0])))
    group = {value: min(number, last) for number, (value, _) in enumerate(counts)}
    legend = [(_name_group(value, choice.by, topics), count, group[value]) for value, count in counts[:last]]
    if rest := counts[last:]:
        legend.append(("others", sum(count for _, count in rest), last))
    return legend, {row: group[value] for row, value in values.items()}


def _name_group(value: int | str, by: str, topics: list[str]) -> str:
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
