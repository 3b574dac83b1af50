"""The list of conversations: filters, orders, search."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bactrian.errors import InputError
from bactrian.explore.filters import SORTS, ListFilter
from bactrian.explore.index.lists import PAGE, count_stages, count_values, read_list
from bactrian.explore.rendering import get_explorer, has_agreed, render_page

_LABELS: Mapping[str, str] = {
    "q": "Search",
    "data": "Data",
    "assistant": "AI assistant",
    "user": "AI user",
    "task": "Idea",
    "language": "Language",
    "ending": "Ending",
    "behaviour": "Behaviour",
    "mark": "Mark",
    "least": "Messages from",
    "most": "Messages to",
    "cost": "Cost from",
    "ids": "Selection",
    "topic": "Topic",
    "area": "Area of the map",
}
_CHOICES = ("ending", "behaviour", "language", "mark")


def show_list(request: Request) -> Response:
    """Show a page of the conversations that fit the filter."""
    list_filter = ListFilter.read(request.query_params)
    sides = get_explorer(request).library.list_sides(list_filter.data)
    page = read_list(sides, list_filter)
    total, unread, unseen = count_stages(sides.values())
    return render_page(
        request,
        "conversations.html",
        filter=list_filter,
        page=page,
        size=PAGE,
        sorts=SORTS,
        sets=list(get_explorer(request).library.sets),
        choices=[
            (name, _LABELS[name], values, getattr(list_filter, name))
            for name in _CHOICES
            if (values := _list_values(sides, name))
        ],
        active=list(_list_active(list_filter)),
        total=total,
        unread=unread if list_filter.match else 0,
        unseen=unseen,
        narrow=False,
    )


def list_values(request: Request) -> Response:
    """Return the commonest values of a field as JSON, for suggestions."""
    name = request.query_params.get("field", "")
    if name not in ("assistant", "user", "mark"):
        raise InputError("There are no suggestions for this field.", where="field")
    values = _list_values(get_explorer(request).library.list_sides(), name)
    return JSONResponse([value for value, _ in values])


def list_as_json(request: Request) -> Response:
    """Return a page of the list as JSON."""
    list_filter = ListFilter.read(request.query_params)
    page = read_list(get_explorer(request).library.list_sides(list_filter.data), list_filter)
    sessions = [asdict(one) for one in page.sessions]
    for one in sessions:
        if one["red"] and not has_agreed(request):
            one["task"] = None
    return JSONResponse({"count": page.count, "next": page.after or None, "sessions": sessions})


def _list_values(sides: Mapping[str, Path], name: str) -> list[tuple[str, int]]:
    """Return the values of a field over all conversations. Kept until a side file changes."""
    versions = tuple((path, _read_version(path)) for path in sides.values())
    return _list_values_of(versions, name)


@lru_cache(maxsize=64)
def _list_values_of(versions: tuple[tuple[Path, tuple[int, int]], ...], name: str) -> list[tuple[str, int]]:
    try:
        return count_values([path for path, _ in versions], ListFilter(), name)
    except sqlite3.OperationalError:  # It is being built for the first time.
        return []


def _read_version(path: Path) -> tuple[int, int]:
    """Return something that differs when the side file was written, at most every other second."""
    log = path.with_name(path.name + "-wal")
    stats = [file.stat() for file in (path, log) if file.exists()]
    return sum(one.st_size for one in stats), max((int(one.st_mtime) // 2 for one in stats), default=0)


def _list_active(list_filter: ListFilter) -> Iterator[tuple[str, str, str]]:
    """Yield label, value and the link without it, for each part of the filter."""
    if list_filter.q:
        yield _LABELS["q"], list_filter.q, list_filter.write(q="", sort="")
    for name in list_filter.data:
        yield (
            _LABELS["data"],
            name,
            list_filter.write(data=tuple(one for one in list_filter.data if one != name)),
        )
    for field, value in list_filter.conditions.items():
        if field == "ids":
            yield _LABELS[field], f"{len(value)} conversations", list_filter.write(ids=())
        elif isinstance(value, tuple):
            for code in cast("tuple[str, ...]", value):
                rest = tuple(one for one in getattr(list_filter, field) if one != code)
                yield _LABELS[field], code.replace("_", " "), list_filter.write(**{field: rest})
        elif field == "mark" and value.startswith("-"):
            yield "Without mark", value[1:], list_filter.write(mark="")
        else:
            yield _LABELS[field], str(value), list_filter.write(**{field: None if field in _NUMBERS else ""})


_NUMBERS = frozenset(("least", "most", "cost"))

ROUTES = (
    Route("/conversations", show_list),
    Route("/conversations.json", list_as_json),
    Route("/values", list_values),
)
