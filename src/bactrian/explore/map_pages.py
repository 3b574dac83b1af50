"""Maps of tasks and of instructions: a picture, the table behind it, and links from both to the list."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from importlib.util import find_spec
from sqlite3 import Connection
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from bactrian.api.map_texts import MAP_TEXTS
from bactrian.blocks import make_visible
from bactrian.errors import InputError, MissingExtra
from bactrian.explore.index_upkeep import start_process
from bactrian.explore.library import DataSet
from bactrian.explore.library_index import read_meta
from bactrian.explore.rendering import get_explorer, has_agreed, read_form, render_page, render_text, send_csv
from bactrian.explore.session_lists import ROLES, ListFilter, make_share, read_count, select_rows
from bactrian.explore.statistics_pages import describe_readings
from bactrian.figures.chart import list_group_colours
from bactrian.figures.text_map import LegendEntry, MapLabel, draw_map_picture
from bactrian.protocol.markers import read_instruction
from bactrian.records.session import UNFINISHED
from bactrian.stats.intervals import Proportion


def _name_ranges(column: str, limits: Sequence[str]) -> str:
    """Return what names the range of a number, in SQL."""
    below = " ".join(f"WHEN {column} < {limit} THEN 'below {limit}'" for limit in limits)
    return f"CASE WHEN {column} < 0 THEN 'unknown' {below} ELSE '{limits[-1]} or more' END"


# What colours mean: the name, and the value of a point in the index.
_COLOURS: Mapping[str, tuple[str, str]] = {
    "topic": ("Topic", "topic"),
    "ending": ("Ending", "ending"),
    "assistant": ("AI assistant", "iif(kind = 'talk', 'none', assistant)"),
    "user": ("AI user", "iif(kind = 'talk', 'none', user)"),
    "language": ("Language", "coalesce(language, 'not named')"),
    "kind": ("Kind", "kind"),
    "mark": ("Mark", "coalesce((SELECT min(mark) FROM marks WHERE marks.row = facts.row), 'no mark')"),
    "messages": ("Messages", _name_ranges("turns", ("4", "8", "16", "32"))),
    "cost": ("Cost, US $", _name_ranges("cost", ("0.001", "0.01", "0.1"))),
    "findings": ("Findings", "iif(findings < 0, 'not looked for', iif(findings < 3, findings, '3 or more'))"),
}
# Before the code of a behaviour, of which a colour tells whether it was found.
_BEHAVIOUR = "behaviour:"
# Conversations and texts beside a map.
_LISTED = 50
# Texts that are similar to another.
_SIMILAR = 20
# Characters of a text beside its point.
_LONGEST_TEXT = 400
# Points of maps, with what is known of their conversations.
_JOINED = "FROM points JOIN facts USING (row)"
_BEGINS = "it begins"
# Seconds to wait for a process that drew.
_ENDING = 3.0
# Tenths of a second to wait for a process that draws to say how far it is.
_FIRST_WORDS = 50


def show_map(request: Request) -> Response:
    """Show one or two maps, or how far one is drawn, or the button that draws it."""
    choice = _read_choice(request)
    progress, drawn = _read_map(choice.data_set, choice.what)
    beside = request.query_params.get("beside", "")
    others = {
        code: title for code, title in _list_drawn(request) if code != f"{choice.what}:{choice.data_set.name}"
    }
    shown = [] if drawn is None else [_describe_map(request, choice, drawn)]
    if shown and beside in others:
        what, _, data = beside.partition(":")
        other = MapChoice(_find_set(request, data), what, choice.by)
        found = _read_map(other.data_set, what)[1]
        shown += [_describe_map(request, other, found)] if found else []
    return render_page(
        request,
        "map.html",
        sets=list(get_explorer(request).library.sets),
        data=choice.data_set.name,
        what=choice.what,
        whats=MAP_TEXTS,
        by=choice.by,
        beside=beside,
        others=others if shown else {},
        colours={code: name for code, (name, _) in _COLOURS.items()} | _list_behaviours(choice.data_set),
        progress=progress,
        topics=_count_topics(request, choice, drawn.names) if drawn else [],
        maps=shown,
    )


def _list_drawn(request: Request) -> Iterator[tuple[str, str]]:
    """Yield what a map shows and its title, for each one that is drawn."""
    sets = get_explorer(request).library.sets
    for name, data_set in sets.items():
        with data_set.read_index() as index:
            meta = read_meta(index)
        for what, title in MAP_TEXTS.items():
            if f"map of {what}" in meta:
                yield f"{what}:{name}", f"{title} of {name}" if len(sets) > 1 else title


def _list_behaviours(data_set: DataSet) -> dict[str, str]:
    with data_set.read_index() as index:
        found = index.execute("SELECT DISTINCT behaviour FROM shown ORDER BY 1").fetchall()
    return {f"{_BEHAVIOUR}{code}": code.replace("_", " ") for (code,) in found if code.isidentifier()}


def _describe_map(request: Request, choice: MapChoice, drawn: DrawnMap) -> dict[str, Any]:
    """Return what the template of a map needs."""
    name, code = choice.data_set.name, choice.by.removeprefix(_BEHAVIOUR)
    query = urlencode({"data": name, "what": choice.what})
    listing = get_explorer(request).library.list_sessions(ListFilter(data=(name,)))
    return {
        "title": f"{MAP_TEXTS[choice.what]} of {name}",
        "labels": json.dumps([(drawn.names[label.topic], *astuple(label)[1:]) for label in drawn.labels]),
        "legend": _read_groups(request, choice, drawn.names)[0],
        "reading": describe_readings(listing).get(code, "no finding was read") if code != choice.by else "",
        "addresses": {
            "points": f"/map/points?{query}&by={choice.by}",
            "text": f"/map/text?{query}",
            "selection": f"/map/selection?{query}",
            "similar": f"/map/similar?{query}",
        },
    }


async def draw_map(request: Request) -> Response:
    """Begin to draw a map in a process of its own."""
    form = await read_form(request, writes=False)
    if find_spec("sklearn") is None:
        raise MissingExtra("analysis", "A map")
    data_set = _find_set(request, form.get("data", ""))
    what = form.get("what", "")
    if what not in MAP_TEXTS:
        raise InputError("There is no such map.", where="what", next=f"Maps: {', '.join(MAP_TEXTS)}.")
    if data_set.drawing is not None:
        # One that has just stored its map needs a moment to end.
        with suppress(TimeoutError):
            await asyncio.wait_for(data_set.drawing.wait(), _ENDING)
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


class MapPoint(NamedTuple):
    """A point of a map, with the conversation that it is from."""

    row: int
    turn: int
    session: str
    roles: str
    task: str
    is_red: bool


_POINT = f"""
SELECT row, turn, id, {ROLES}, heads.task, mark IS NOT NULL
FROM points JOIN facts USING (row) JOIN heads USING (row) WHERE what = ?
"""  # noqa: S608


async def send_text(request: Request) -> Response:
    """Return the text of a point, with the address of its conversation."""
    choice, _ = _read_drawn(request)
    with choice.data_set.read_index() as index:
        point, _ = _find_point(request, index, choice)
    text = (await _read_texts(request, choice, [point]))[0]
    return JSONResponse({"title": point.roles, "text": text, "href": _link_point(choice, point)})


async def show_similar(request: Request) -> Response:
    """Show the texts whose points are nearest to one."""
    choice, _ = _read_drawn(request)
    with choice.data_set.read_index() as index:
        _, (x, y) = _find_point(request, index, choice)
        nearest = f"{_POINT} ORDER BY (x - ?) * (x - ?) + (y - ?) * (y - ?), row, turn LIMIT {_SIMILAR}"
        found = [MapPoint(*row) for row in index.execute(nearest, (choice.what, x, x, y, y))]
    texts = await _read_texts(request, choice, found)
    return _show_chosen(request, "Similar to this one", choice, list(zip(found, texts, strict=True)))


async def show_selection(request: Request) -> Response:
    """Show the conversations in an area of a map, their endings and their behaviours."""
    choice, _ = _read_drawn(request)
    name, area = choice.data_set.name, request.query_params.get("area", "")
    list_filter = ListFilter.read(QueryParams({"data": name, "area": f"{choice.what}:{area}"}))
    listing = get_explorer(request).library.list_sessions(list_filter)
    total = listing.count()
    sections: list[tuple[str, list[tuple[str, Proportion]]]] = []
    for field, title in (("ending", "Endings"), ("behaviour", "Behaviours"), ("assistant", "AI assistants")):
        counts = dict(listing.count_values(field, 8))
        of = total - (counts.pop(UNFINISHED, 0) if field == "ending" else 0)
        shares = [(value, make_share(count, of, independent=False)) for value, count in counts.items()]
        sections.append((title, shares))
    corners = list_filter.area.partition(":")[2]
    with choice.data_set.read_index() as index:
        inside = f"{_POINT} AND inside(x, y, ?) GROUP BY row ORDER BY row LIMIT {_LISTED}"
        found = [MapPoint(*row) for row in index.execute(inside, (choice.what, corners))]
    listed = list(zip(found, await _read_texts(request, choice, found), strict=True))
    return _show_chosen(request, "Chosen", choice, listed, filter=list_filter, count=total, sections=sections)


def _show_chosen(
    request: Request, title: str, choice: MapChoice, found: Sequence[tuple[MapPoint, str]], **more: Any
) -> Response:
    texts = [(_link_point(choice, point), point.roles, text) for point, text in found]
    context: dict[str, Any] = {"count": None, "sections": [], **more, "title": title, "texts": texts}
    return HTMLResponse(render_text(request, "map_chosen.html", **context))


def _find_point(request: Request, index: Connection, choice: MapChoice) -> tuple[MapPoint, tuple[int, int]]:
    """Return the point that an address names by its place in the order of :func:`send_points`, and its coordinates."""
    number = read_count(request.query_params.get("point", ""), -1)
    query = f"SELECT row, turn, x, y {_JOINED} WHERE what = ? ORDER BY row, turn LIMIT 1 OFFSET ?"
    found = index.execute(query, (choice.what, number)).fetchone() if number >= 0 else None
    if found is None:
        raise HTTPException(404, "There is no such point.")
    row, turn, x, y = found
    return MapPoint(
        *index.execute(f"{_POINT} AND row = ? AND turn = ?", (choice.what, row, turn)).fetchone()
    ), (x, y)


async def _read_texts(request: Request, choice: MapChoice, points: Sequence[MapPoint]) -> list[str]:
    """Return the texts of points, those of red-team conversations only to who agreed to see them."""
    said: dict[tuple[str, int], str] = {}
    if choice.what != "task":
        sessions = list(dict.fromkeys(point.session for point in points))
        said = {
            (turn.session, turn.number): turn.text for turn in await choice.data_set.store.texts(sessions)
        }
    texts: list[str] = []
    for point in points:
        text = said.get((point.session, point.turn), point.task)
        parsed = read_instruction(text) if point.turn else None
        shown = parsed.instruction if parsed else text
        hidden = point.is_red and not has_agreed(request)
        texts.append(
            "Made to study misuse; shown after a notice." if hidden else make_visible(shown[:_LONGEST_TEXT])
        )
    return texts


def _link_point(choice: MapChoice, point: MapPoint) -> str:
    address = f"/c/{quote(choice.data_set.name, safe='')}/{quote(point.session, safe='')}"
    return f"{address}#turn-{point.turn}" if point.turn else address


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
        if self.by in _COLOURS:
            return _COLOURS[self.by][1]
        code = self.by.removeprefix(_BEHAVIOUR)  # An identifier, so that it cannot end the text.
        shown = f"EXISTS (SELECT 1 FROM shown WHERE shown.row = facts.row AND behaviour = '{code}')"  # noqa: S608
        return f"iif(seen_turns < 0, 'not looked for', iif({shown}, 'found', 'not found'))"


@dataclass(frozen=True, slots=True)
class DrawnMap:
    """The topics of a map that is drawn."""

    names: Sequence[str]
    labels: Sequence[MapLabel]


def _read_choice(request: Request) -> MapChoice:
    query = request.query_params
    what, by = query.get("what", "task"), query.get("by", "topic")
    is_known = by in _COLOURS or (by.startswith(_BEHAVIOUR) and by.removeprefix(_BEHAVIOUR).isidentifier())
    if what not in MAP_TEXTS or not is_known:
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
    list_filter = ListFilter.read(QueryParams(get_explorer(request).static.removeprefix("?")))
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
    last = len(list_group_colours()) - 1
    counted.sort(key=lambda pair: (-pair[1], str(pair[0])))
    groups = {value: min(number, last) for number, (value, _) in enumerate(counted)}
    legend = [
        LegendEntry(
            topics[int(value)] if choice.by == "topic" else f"{value}".replace("_", " "), count, groups[value]
        )
        for value, count in counted[:last]
    ]
    if rest := counted[last:]:
        legend.append(LegendEntry("others", sum(count for _, count in rest), last))
    return legend, groups


ROUTES = (
    Route("/map", show_map, methods=["GET"]),
    Route("/map", draw_map, methods=["POST"]),
    Route("/map/points", send_points),
    Route("/map/text", send_text),
    Route("/map/selection", show_selection),
    Route("/map/similar", show_similar),
    Route("/map.csv", write_csv),
    Route("/map.svg", write_svg),
)
