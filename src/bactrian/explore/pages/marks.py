"""Marks and notes on conversations, kept in the run; only with ``--edit``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from bactrian.errors import InputError
from bactrian.explore.filters import ListFilter
from bactrian.explore.index.lists import list_ids
from bactrian.explore.library import DataSet
from bactrian.explore.pages.conversation import find_session
from bactrian.explore.rendering import get_explorer, read_form, render_page
from bactrian.records.run import Mark
from bactrian.records.text import clean_text
from bactrian.store import open_store

_LONGEST_MARK = 60
_LONGEST_NOTE = 10_000
"""Characters."""
_AT_ONCE = 500


async def save_mark(request: Request) -> Response:
    """Add or remove a mark, or change its note, unless somebody else changed it since the page was loaded."""
    _check_edit(request)
    one, session = await find_session(request)
    form = await read_form(request)
    name, note = _read_name(form.get("mark", "")), clean_text(form.get("note", "")).strip()[:_LONGEST_NOTE]
    seen = form.get("seen", "")
    async with one.writing:
        stored = next((mark for mark in await one.store.marks(session.id) if mark.mark == name), None)
        if stored is not None and f"{stored.created}" != seen and (stored.note != note or "remove" in form):
            return render_page(
                request, "conflict.html", 409, data=one.name, session=session, stored=stored, note=note
            )
        async with open_store(one.run) as store:
            if "remove" in form:
                await store.remove_mark(session.id, name)
            else:
                await store.add_mark(Mark(session.id, name, note, time.time()))
    back = request.url.path.removesuffix("/marks")
    # The list from which the reader came stays the list to go back to.
    query = ListFilter.read(request.query_params).write().removesuffix("?")
    return RedirectResponse(f"{back}{query}#marks", 303)


async def mark_all(request: Request) -> Response:
    """Give a mark to every conversation of a filter."""
    _check_edit(request)
    list_filter = ListFilter.read(request.query_params)
    name = _read_name((await read_form(request)).get("mark", ""))
    for one in get_explorer(request).library.choose(list_filter.data).values():
        ids = await asyncio.to_thread(list_ids, one.side, list_filter)
        await _mark_many(one, ids, name)
    return RedirectResponse(f"/export{ListFilter(mark=name).write()}", 303)


async def _mark_many(one: DataSet, ids: Iterable[str], name: str) -> None:
    async with one.writing:
        have = {mark.session for mark in await one.store.marks() if mark.mark == name}
        missing = [session for session in ids if session not in have]
        if not missing:
            return
        async with open_store(one.run) as store:
            for begin in range(0, len(missing), _AT_ONCE):
                some = missing[begin : begin + _AT_ONCE]
                await asyncio.gather(
                    *(store.add_mark(Mark(session, name, "", time.time())) for session in some)
                )


def _check_edit(request: Request) -> None:
    if not get_explorer(request).edit:
        raise HTTPException(403, "Start the explorer with --edit to write marks.")


def _read_name(text: str) -> str:
    name = " ".join(clean_text(text).split())
    if not 0 < len(name) <= _LONGEST_MARK:
        raise InputError(
            f"A mark has 1 to {_LONGEST_MARK} characters.", next="Go back and give it a short name."
        )
    return name


ROUTES = (
    Route("/c/{data}/{id}/marks", save_mark, methods=["POST"]),
    Route("/marks", mark_all, methods=["POST"]),
)
