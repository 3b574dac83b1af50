"""The list of conversations: filters, orders, search."""

from __future__ import annotations

import asyncio
import shlex
import sqlite3
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from bactrian.analyze.aggregate import UNFINISHED
from bactrian.errors import InputError
from bactrian.explore.conversation_pages import find_named_session, find_session, name_roles, show_turns
from bactrian.explore.library import DataSet, list_kept_files
from bactrian.explore.rendering import get_explorer, has_agreed, name_agreement, read_form, render_page
from bactrian.explore.session_findings import read_known
from bactrian.explore.session_lists import (
    PAGE,
    SORTS,
    ListFilter,
    count_stages,
    count_total,
    count_values,
    list_ids,
    read_list,
)
from bactrian.explore.side_file import IMPORT_DONE
from bactrian.export.dialogue import SystemPrompts
from bactrian.export.format import ExportContext, dump_line
from bactrian.export.formats import CHAT_MESSAGES, build_row
from bactrian.records.session import find_kind
from bactrian.records.turn import NOTHING_KNOWN
from bactrian.stats.intervals import Proportion
from bactrian.tables.tables import add_extra

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


# The library: every data set with its size, endings, cost and state; and the help page.


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


# Two filters side by side, with differences and their intervals; and conversations side by side.


_SECTIONS = (("ending", "Endings"), ("behaviour", "Behaviours"))
_MOST = 4
"""Conversations side by side."""


@dataclass(frozen=True, slots=True)
class ComparedRate:
    """A share in both filters, and the difference with its 95 % interval (Newcombe)."""

    label: str
    before: Proportion
    after: Proportion

    @property
    def difference(self) -> float:
        """The second share minus the first."""
        return self.after.rate - self.before.rate

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of the difference."""
        return self.after.difference_interval(self.before)

    @property
    def is_clear(self) -> bool:
        """True if the interval does not contain 0."""
        low, high = self.interval
        return low > 0 or high < 0


def compare_filters(request: Request) -> Response:
    """Compare the rates of two filters, such as two runs."""
    names = list(get_explorer(request).library.sets)
    queries = [request.query_params.get(key, "") for key in ("one", "two")]
    if not any(queries) and len(names) > 1:
        queries = [f"data={name}" for name in names[:2]]
    filters = [ListFilter.read(QueryParams(query)) for query in queries]
    sections: list[tuple[str, list[ComparedRate]]] = []
    totals: list[int] = []
    if all(queries):
        sides = [list(get_explorer(request).library.list_sides(one.data).values()) for one in filters]
        totals = [count_total(*pair) for pair in zip(sides, filters, strict=True)]
        # A conversation that was not searched yet does not tell whether it shows a behaviour.
        searched = [count_total(*pair, searched=True) for pair in zip(sides, filters, strict=True)]
        sections = [
            (title, _compare(sides, filters, searched if name == "behaviour" else totals, name))
            for name, title in _SECTIONS
        ]
    return render_page(
        request,
        "compare.html",
        queries=queries,
        filters=filters,
        names=names,
        totals=totals,
        sections=[(title, rates) for title, rates in sections if rates],
    )


def _compare(
    sides: Sequence[Sequence[Path]], filters: Sequence[ListFilter], totals: Sequence[int], name: str
) -> list[ComparedRate]:
    before, after = (dict(count_values(*pair, name)) for pair in zip(sides, filters, strict=True))
    codes = sorted({*before, *after}, key=lambda code: -(before.get(code, 0) + after.get(code, 0)))
    return [
        ComparedRate(
            code.replace("_", " "),
            Proportion(before.get(code, 0), totals[0]),
            Proportion(after.get(code, 0), totals[1]),
        )
        for code in codes
    ]


async def compare_conversations(request: Request) -> Response:
    """Show two to four conversations in columns, message by message."""
    chosen = list(dict.fromkeys(request.query_params.getlist("pick")))[:_MOST]
    if len(chosen) < 2:
        raise InputError(
            "Two conversations are needed.", next="Go back, tick two to four in the list, and compare them."
        )
    columns: list[dict[str, Any]] = []
    for pick in chosen:
        data, _, session_id = pick.partition("/")
        one, session = await find_named_session(request, data, session_id)
        if session.mark and not has_agreed(request):
            raise HTTPException(403)
        known = await asyncio.to_thread(read_known, one.side, session)
        columns.append(
            {
                "data": one.name,
                "session": session,
                "roles": name_roles(session),
                "turns": list(show_turns(session, session.turns[:100], known.findings, NOTHING_KNOWN)),
                "findings": len(known.findings),
            }
        )
    return render_page(request, "side_by_side.html", columns=columns)


# Export of a filter: the command that does it, and a download.


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
            if (
                session is None
                or (session.mark and not agreed)
                or find_kind(session) not in CHAT_MESSAGES.kinds
            ):
                continue
            row = build_row(session, context, tools=True)
            if row is not None:
                yield f"{dump_line(add_extra(row, session))}\n".encode()


# The files that an embodied agent made: pictures are shown, anything else is downloaded.


async def send_file(request: Request) -> Response:
    """Send one file of a session. Its name is looked up in the folder, so that no path leads out of it."""
    one, session = await find_session(request)
    if session.mark and not has_agreed(request):
        raise HTTPException(403)
    name = request.path_params["name"]
    files = await asyncio.to_thread(list_kept_files, one.run, session.id)
    found = next((file for file in files if file.name == name), None)
    if found is None:
        raise HTTPException(404, f"The conversation has no file {name!r}.")
    # Opened as a page of its own, a picture of lines (.svg) could run scripts: only ``img`` shows it.
    return FileResponse(
        found.path,
        media_type=found.picture or "application/octet-stream",
        filename=found.name,
        content_disposition_type="attachment",
    )


ROUTES = (
    Route("/conversations", show_list),
    Route("/conversations.json", list_as_json),
    Route("/values", list_values),
    Route("/", show_library),
    Route("/status", report_status),
    Route("/help", show_help),
    Route("/agree", accept_notice, methods=["POST"]),
    Route("/compare", compare_filters),
    Route("/compare/conversations", compare_conversations),
    Route("/export", show_export),
    Route("/export/messages.jsonl", download_messages),
    Route("/c/{data}/{id}/files/{name}", send_file),
)
