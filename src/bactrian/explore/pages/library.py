"""The library: every data set with its size, endings, cost and state; and the help page."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from bactrian.explore.index.side import IMPORT_DONE
from bactrian.explore.library import DataSet
from bactrian.explore.rendering import get_explorer, name_agreement, read_form, render_page


async def show_library(request: Request) -> Response:
    """Show all data sets."""
    trainings = get_explorer(request).library.trainings
    return render_page(request, "library.html", sets=await _describe(request), trainings=trainings)


async def report_status(request: Request) -> Response:
    """Return the numbers of all data sets as JSON, for pages that follow them."""
    return JSONResponse(await _describe(request))


async def show_help(request: Request) -> Response:
    """Show the keys, the language of searches, and links."""
    return render_page(request, "help.html")


async def accept_notice(request: Request) -> Response:
    """Note that the reader agreed to see sessions that were made to study misuse."""
    form = await read_form(request)
    target = form.get("next", "/")
    # A path of this server only: two slashes would begin the name of another one.
    safe = target if target.startswith("/") and not target.startswith(("//", "/\\")) else "/"
    answer = RedirectResponse(safe, 303)
    answer.set_cookie(name_agreement(request), "yes", httponly=True, samesite="strict")
    return answer


async def _describe(request: Request) -> list[dict[str, Any]]:
    return [await _describe_one(one) for one in get_explorer(request).library.sets.values()]


async def _describe_one(one: DataSet) -> dict[str, Any]:
    state = await asyncio.to_thread(one.read_state)
    size = sum(file.stat().st_size for file in (one.run, _find_log(one)) if file.exists())
    endings = sorted(state["endings"].items(), key=lambda pair: (-pair[1], pair[0]))
    return {
        **state,
        "name": one.name,
        "source": str(one.source),
        "megabytes": f"{size / 1e6:,.1f}",
        "endings": endings,
        "state": await _name_state(one, state),
        "problem": _find_problem(one),
    }


def _find_log(one: DataSet) -> Any:
    return one.run.with_name(one.run.name + "-wal")


async def _name_state(one: DataSet, state: dict[str, Any]) -> str:
    imported: str = state.get("import") or ""
    if one.is_imported:
        if imported.startswith(IMPORT_DONE):
            return imported
        return f"being imported: {imported or 'it begins'}"
    if await one.store.is_open():
        return "live: being written, or interrupted"
    return "closed"


def _find_problem(one: DataSet) -> str:
    if one.upkeep is not None and one.upkeep.has_failed:
        return "The index is incomplete; what it contains is shown. Start the explorer again to continue."
    return ""


ROUTES = (
    Route("/", show_library),
    Route("/status", report_status),
    Route("/help", show_help),
    Route("/agree", accept_notice, methods=["POST"]),
)
