"""The library, the list of conversations with its filters, orders and search, and saved views."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from bactrian.errors import InputError, explain_os_errors
from bactrian.explore.library import DataSet
from bactrian.explore.library_index import IMPORT_DONE
from bactrian.explore.rendering import (
    get_explorer,
    has_agreed,
    name_agreement,
    read_facets,
    read_form,
    read_listing,
    render_page,
)
from bactrian.explore.session_lists import MOST_COUNTED, NUMBERS, PAGE, ListFilter, Listing
from bactrian.files.recent_runs import find_state_folder
from bactrian.records.run import WRITTEN, name_state
from bactrian.records.session import UNFINISHED
from bactrian.store.care import is_locked

# Saved views: names for the addresses of pages, in a small file of the user.


_MOST, _LONGEST_NAME, _LONGEST_ADDRESS = 100, 60, 4000


def _find_file() -> Path:
    return find_state_folder() / "explorer-views.json"


def is_address(text: str) -> bool:
    """Return True for the address of a page on this server, such as ``/statistics?ending=task_done``."""
    parts = urlsplit(text) if len(text) <= _LONGEST_ADDRESS and text.isprintable() else None
    # Two slashes would begin the name of another server.
    return parts is not None and text[:1] == "/" and text[1:2] not in ("/", "\\") and not parts.netloc


def read_views() -> dict[str, str]:
    """Return the addresses by name, in the order of saving; what is damaged is left out."""
    with suppress(OSError, ValueError):
        stored: object = json.loads(_find_file().read_text("utf-8"))
        if isinstance(stored, dict):
            return {
                str(name): address  # pyright: ignore[reportUnknownArgumentType]
                for name, address in stored.items()  # pyright: ignore[reportUnknownVariableType]
                if isinstance(address, str) and is_address(address)
            }
    return {}


def save_view(name: str, address: str) -> None:
    """Save a view.

    Raises:
        InputError: the name or the address cannot be used, another view has the name, there are too many, or the file
            cannot be written.
    """
    name = " ".join(name.split())
    if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise InputError(
            f"The name of a view has 1 to {_LONGEST_NAME} characters.",
            next="Go back and give it a short name.",
        )
    if not is_address(address):
        raise InputError("This is not an address of a page.", where="address", next="Save it from its page.")
    views = read_views()
    if views.get(name, address) != address:
        raise InputError(
            f"Another view has the name {name!r}.",
            next="Go back and give another name, or remove that view in the library.",
        )
    if len(views) >= _MOST and name not in views:
        raise InputError(f"There are {_MOST} saved views.", next="Remove one in the library.")
    _write({**views, name: address})


def remove_view(name: str) -> None:
    """Remove a view, if there is one of this name. Raises InputError if the file cannot be written."""
    _write({other: address for other, address in read_views().items() if other != name})


def _write(views: dict[str, str]) -> None:
    file = _find_file()
    with explain_os_errors("The view cannot be saved", file, "Make room on its disk."):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, part = tempfile.mkstemp(dir=file.parent, prefix=file.name)
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            json.dump(views, out, indent=1)
        Path(part).replace(file)


# The library, and the list of conversations with its filters, orders and search.


# Seconds that a list waits for the counts of its filter.
_PATIENCE = 0.1


def show_list(request: Request) -> Response:
    """Show a page of the conversations that fit the filter."""
    listing = read_listing(request)
    list_filter = listing.filter
    if not all(
        value for _, value in request.query_params.multi_items()
    ):  # As a form sends what was left empty.
        return RedirectResponse(f"/conversations{list_filter.write(after=list_filter.after)}", 303)
    with listing.open_once() as opened:
        stages, page, readings = opened.count_stages(), opened.read_page(), _describe_readings(opened)
    explorer = get_explorer(request)
    counted = None if explorer.static else explorer.facets.peek(explorer.library, _PATIENCE)
    return render_page(
        request,
        "conversations.html",
        filter=list_filter,
        page=page,
        most=MOST_COUNTED,
        size=PAGE,
        sets=list(explorer.library.sets),
        facets=None if counted is None else list(counted.list_facets(list_filter)),
        readings=readings,
        active=list(_list_active(list_filter)),
        total=stages.read,
        writing=[] if explorer.static else explorer.library.list_writing(list_filter.data),
        reading=stages.describe(list_filter),
        narrow=False,
    )


def _describe_readings(listing: Listing) -> Mapping[str, str]:
    """Return in words, by behaviour, how many findings that were read are right."""
    if not listing.count_readings():
        return {}
    # Imported here: the first page must not wait for it.
    from bactrian.explore.statistics_pages import describe_readings

    return describe_readings(listing)


def show_newest(request: Request) -> Response:
    """Show the newest conversation of a filter: the one that is being written, or else the last."""
    listing = read_listing(request)
    newest = replace(listing.filter, sort="newest", after="")
    for list_filter in (replace(newest, ending=(UNFINISHED,)), newest):
        for head in replace(listing, filter=list_filter).read_page().sessions[:1]:
            path = "/".join(quote(head[name], safe="") for name in ("data", "id"))
            return RedirectResponse(f"/c/{path}{newest.write()}&follow=1", 303)
    return RedirectResponse(f"/conversations{newest.write()}", 303)


def list_values(request: Request) -> Response:
    """Return the commonest values of a field as JSON, for suggestions."""
    name = request.query_params.get("field", "")
    if name not in ("assistant", "user", "mark"):
        raise InputError("There are no suggestions for this field.", where="field")
    facets = read_facets(request)
    return JSONResponse([value for value, _ in facets.count(name, facets.everything)])


def list_as_json(request: Request) -> Response:
    """Return a page of the list as JSON."""
    page = read_listing(request).read_page()
    for session in page.sessions:
        if session["red"] and not has_agreed(request):
            session["task"] = None
    return JSONResponse({"count": page.count, "next": page.after or None, "sessions": page.sessions})


def _list_active(list_filter: ListFilter) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and the query without it, for each part of the filter."""
    for field, value in list_filter.values.items():
        if field in ("need", "sort", "view", "after"):
            continue
        if field in ("ids", "pick"):
            yield field, f"{len(value)} conversations", list_filter.write(**{field: ()})
        elif isinstance(value, tuple):
            for code in cast("tuple[str, ...]", value):
                rest = tuple(other for other in getattr(list_filter, field) if other != code)
                shown = code.replace("_", " ") if field in ("ending", "behaviour") else code
                shown = f"without {shown[1:]}" if field == "behaviour" and code.startswith("-") else shown
                yield field, shown, list_filter.write(**{field: rest})
        elif field == "mark" and value.startswith("-"):
            yield "without", value[1:], list_filter.write(mark="")
        else:
            # What is searched for also decides which orders there are.
            more = {"sort": ""} if field == "q" else {}
            yield field, str(value), list_filter.write(**{field: None if field in NUMBERS else ""}, **more)


# The library: every data set with its size, endings, cost and state; and the help page.


async def show_library(request: Request) -> Response:
    """Show all data sets."""
    trainings = get_explorer(request).library.trainings
    sets = await _describe(request)
    written = await asyncio.to_thread(get_explorer(request).library.list_writing, ())
    told = {of["name"]: of for of in written}
    sets = [{**entry, "told": told.get(entry["name"])} for entry in sets]
    return render_page(request, "library.html", sets=sets, trainings=trainings, views=read_views())


async def report_status(request: Request) -> Response:
    """Return the numbers of all data sets as JSON, for pages that follow them."""
    return JSONResponse(await _describe(request))


async def show_help(request: Request) -> Response:
    """Show the keys, the language of searches, and links."""
    return render_page(request, "help.html")


async def accept_notice(request: Request) -> Response:
    """Note that the reader agreed to see sessions that were made to study misuse."""
    target = (await read_form(request, writes=False)).get("next", "/")
    # A path of this server only: two slashes would begin the name of another one.
    safe = target if target.startswith("/") and not target.startswith(("//", "/\\")) else "/"
    answer = RedirectResponse(safe, 303)
    answer.set_cookie(name_agreement(request), "yes", httponly=True, samesite="strict")
    return answer


async def _describe(request: Request) -> list[dict[str, Any]]:
    return [await _describe_set(data_set) for data_set in get_explorer(request).library.sets.values()]


async def _describe_set(data_set: DataSet) -> dict[str, Any]:
    state = await asyncio.to_thread(data_set.read_state)
    run, failed = data_set.run, data_set.upkeep is not None and data_set.upkeep.has_failed
    size = sum(file.stat().st_size for file in (run, run.with_name(f"{run.name}-wal")) if file.exists())
    told: dict[str, Any] = json.loads(state.pop("status") or "{}")
    facts: dict[str, str] = dict(told.get("facts", ()))
    return {
        **state,
        "tokens": told.get("total_tokens"),
        "tokens_text": facts.get("tokens", "unknown"),
        "cost": told.get("usd"),
        "cost_text": facts.get("cost", "unknown"),
        "models": told.get("models", []),
        "name": data_set.name,
        "source": str(data_set.source),
        "megabytes": f"{size / 1e6:,.1f}",
        "endings": sorted(state["endings"].items(), key=lambda pair: (-pair[1], pair[0])),
        "state": await _name_state(data_set, state, told),
        "problem": _INCOMPLETE if failed else state["problem"] or told.get("problem"),
    }


async def _name_state(data_set: DataSet, state: Mapping[str, Any], told: Mapping[str, Any]) -> str:
    """Return the state of a run as `bactrian status` names it, or how far it has been imported or read."""
    imported: str = state["import"] or "it begins"
    if data_set.is_imported and not imported.startswith(IMPORT_DONE):
        return f"being imported: {imported}"
    if state["problem"] or "problem" in told:
        return "unknown"
    if not told or state["sessions"] < state["size"]:
        return "being read"
    if data_set.is_imported:
        return imported
    if await asyncio.to_thread(is_locked, data_set.run):
        return WRITTEN
    # Nobody writes it any more: a process that did may have been killed.
    return told["state"] if told["state"] != WRITTEN else name_state(told["left"])


_INCOMPLETE = "The index is incomplete; what it contains is shown. Start the explorer again to continue."


ROUTES = (
    Route("/conversations", show_list),
    Route("/conversations.json", list_as_json),
    Route("/newest", show_newest),
    Route("/values", list_values),
    Route("/", show_library),
    Route("/status", report_status),
    Route("/help", show_help),
    Route("/agree", accept_notice, methods=["POST"]),
)
