"""Export of a filter: the command that does it, and a download."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Collection, Iterator, Mapping

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from bactrian.analyze.session_summary import UNFINISHED
from bactrian.explore.filters import ListFilter
from bactrian.explore.index.lists import count_stages, count_total, count_values, list_ids
from bactrian.explore.library import DataSet
from bactrian.explore.rendering import get_explorer, has_agreed, render_page
from bactrian.export.format import ExportContext
from bactrian.export.formats.messages import FORMAT, build_row
from bactrian.export.system_prompts import SystemPrompts
from bactrian.export.writers.json_lines import to_line
from bactrian.records.session import find_kind
from bactrian.tables.lineage import add_extra


def show_export(request: Request) -> Response:
    """Show how to export the conversations of a filter."""
    list_filter = ListFilter.read(request.query_params)
    library = get_explorer(request).library
    sides = library.list_sides(list_filter.data)
    total, unread, unseen = count_stages(sides.values())
    return render_page(
        request,
        "export.html",
        filter=list_filter,
        total=count_total(sides.values(), list_filter),
        known=total,
        unread=unread if list_filter.match else 0,
        unseen=unseen if list_filter.behaviour else 0,
        commands=list(_list_commands(library.choose(list_filter.data), list_filter)),
    )


def _is_sayable(list_filter: ListFilter) -> bool:
    """Return True if the words of ``export`` can say the whole filter."""
    unsaid = list_filter.conditions.keys() - {"assistant", "user", "ending", "behaviour", "mark", "ids"}
    if UNFINISHED in list_filter.ending:
        return False
    # In its words for roles and ids, these characters stand for others.
    names = (list_filter.assistant, list_filter.user, *list_filter.ids)
    literal = not any(sign in name for name in names for sign in "*?[") and " x " not in list_filter.assistant
    # That mark may come from the recipe, which ``export`` does not count as one.
    by_person = list_filter.mark.removeprefix("-") != "red-team"
    return not unsaid and list_filter.match is None and literal and by_person and len(list_filter.ids) < 20


def _list_commands(sets: Mapping[str, DataSet], list_filter: ListFilter) -> Iterator[str]:
    """Yield a command for each data set that has some of the conversations."""
    if not _is_sayable(list_filter):
        return
    having = [one for one in sets.values() if one.side.exists() and count_total([one.side], list_filter)]
    for one in having:
        out = "chosen.jsonl" if len(having) == 1 else f"chosen-{one.name}.jsonl"
        words = ("bactrian", "export", str(one.run), "--format", "messages", "--out", out)
        marks = [name for name, _ in count_values([one.side], ListFilter(), "mark")]
        yield shlex.join([*words, *_list_words(list_filter, marks)])


def _list_words(list_filter: ListFilter, marks: Collection[str]) -> Iterator[str]:
    """Yield the words of ``export`` for a filter of a run with these marks."""
    if not list_filter.ending:
        yield "--unfinished"
    for code in list_filter.ending:
        yield from ("--only", f"ending={code}")
    for code in list_filter.behaviour:
        yield from ("--only", f"finding={code}")
    if list_filter.assistant or list_filter.user:
        yield from ("--pair", f"{list_filter.assistant or '*'} x {list_filter.user or '*'}")
    if not list_filter.mark.startswith("-"):
        yield from ("--mark", list_filter.mark) if list_filter.mark else ()
    elif list_filter.mark[1:] in marks:
        yield from ("--drop", f"mark={list_filter.mark[1:]}")
    for one in list_filter.ids:
        yield from ("--id", one)


async def download_messages(request: Request) -> Response:
    """Send the conversations of a filter as JSON lines, in the format ``messages``."""
    list_filter = ListFilter.read(request.query_params)
    sets = get_explorer(request).library.choose(list_filter.data)
    lines = _write_lines(sets, list_filter, agreed=has_agreed(request))
    headers = {"content-disposition": 'attachment; filename="chosen.jsonl"'}
    return StreamingResponse(lines, media_type="application/jsonl", headers=headers)


async def _write_lines(
    sets: Mapping[str, DataSet], list_filter: ListFilter, *, agreed: bool
) -> AsyncIterator[bytes]:
    for one in sets.values():
        prompts = await asyncio.to_thread(SystemPrompts, await one.store.recipe())
        name = one.name if one.is_imported else one.run.stem
        context = ExportContext(name, prompts, "assistant", thoughts=False)
        for session_id in await asyncio.to_thread(list_ids, one.side, list_filter):
            session = await one.store.session(session_id)
            if session is None or (session.mark and not agreed) or find_kind(session) not in FORMAT.kinds:
                continue
            row = build_row(session, context, tools=True)
            if row is not None:
                yield f"{to_line(add_extra(row, session))}\n".encode()


ROUTES = (Route("/export", show_export), Route("/export/messages.jsonl", download_messages))
