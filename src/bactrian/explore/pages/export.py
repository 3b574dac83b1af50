"""Export of a filter: the command that does it, and a download."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from bactrian.explore.filters import ListFilter
from bactrian.explore.index.lists import count_total, list_ids
from bactrian.explore.library import DataSet
from bactrian.explore.rendering import get_explorer, has_agreed, render_page
from bactrian.export.format import ExportContext
from bactrian.export.formats.messages import build_row
from bactrian.export.system_prompts import SystemPrompts


def show_export(request: Request) -> Response:
    """Show how to export the conversations of a filter."""
    wanted = ListFilter.read(request.query_params)
    library = get_explorer(request).library
    sets = library.choose(wanted.data)
    return render_page(
        request,
        "export.html",
        filter=wanted,
        total=count_total(library.list_sides(wanted.data).values(), wanted),
        commands=[_write_command(one.run, wanted) for one in sets.values()] if _is_sayable(wanted) else [],
    )


def _is_sayable(wanted: ListFilter) -> bool:
    """Return True if the words of ``export`` can say the whole filter."""
    unsaid = wanted.conditions.keys() - {"assistant", "user", "ending", "mark", "ids"}
    one_role = bool(wanted.assistant) != bool(wanted.user)
    without = wanted.mark.startswith("-")
    return not unsaid and not without and wanted.match is None and not one_role and len(wanted.ids) < 20


def _write_command(run: Path, wanted: ListFilter) -> str:
    return shlex.join(
        [
            "bactrian",
            "export",
            str(run),
            "--format",
            "messages",
            "--out",
            "chosen.jsonl",
            *_list_words(wanted),
        ]
    )


def _list_words(wanted: ListFilter) -> Iterator[str]:
    for code in wanted.ending:
        if code == "unfinished":
            yield "--unfinished"
        else:
            yield from ("--only", f"ending={code}")
    if wanted.assistant and wanted.user:
        yield from ("--pair", f"{wanted.assistant} x {wanted.user}")
    if wanted.mark:
        yield from ("--mark", wanted.mark)
    for one in wanted.ids:
        yield from ("--id", one)


async def download_messages(request: Request) -> Response:
    """Send the conversations of a filter as JSON lines, in the format ``messages``."""
    wanted = ListFilter.read(request.query_params)
    sets = get_explorer(request).library.choose(wanted.data)
    lines = _write_lines(sets, wanted, agreed=has_agreed(request))
    headers = {"content-disposition": 'attachment; filename="chosen.jsonl"'}
    return StreamingResponse(lines, media_type="application/jsonl", headers=headers)


async def _write_lines(
    sets: Mapping[str, DataSet], wanted: ListFilter, *, agreed: bool
) -> AsyncIterator[bytes]:
    for one in sets.values():
        prompts = await asyncio.to_thread(SystemPrompts, await one.store.recipe())
        context = ExportContext(one.name, prompts, "assistant", thoughts=False)
        for session_id in await asyncio.to_thread(list_ids, one.side, wanted):
            session = await one.store.session(session_id)
            if session is None or (session.mark and not agreed):
                continue
            row = build_row(session, context, tools=True)
            if row is not None:
                yield to_json(row) + b"\n"


ROUTES = (Route("/export", show_export), Route("/export/messages.jsonl", download_messages))
