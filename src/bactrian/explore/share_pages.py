"""What leaves the explorer: a filter as an export, a copy or one page, a view as one page, and saved views."""

from __future__ import annotations

import asyncio
import shlex
import shutil
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import parse_qs, unquote, urlsplit

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from bactrian.api.exchange import export_session_data
from bactrian.api.selection import render_page as render_sessions
from bactrian.errors import InputError, explain_os_errors
from bactrian.explore.bundle import MOST, copy_pages, fetch_page, make_single_page, make_slug
from bactrian.explore.library import Library
from bactrian.explore.list_pages import is_address, remove_view, save_view
from bactrian.explore.rendering import get_explorer, has_agreed, read_form, read_listing, render_page
from bactrian.explore.server import build_app
from bactrian.explore.session_lists import ListFilter, Listing
from bactrian.export.formats import CHAT_MESSAGES, FORMATS, find_format
from bactrian.records.run import Finding
from bactrian.records.session import UNFINISHED, Session

# Conversations on one page, at most.
MOST_ON_PAGE = 200


# Export of a filter: the command that does it, and downloads.


async def show_export(request: Request) -> Response:
    """Show how to export the conversations of a filter, in the formats that can have some of them."""
    listing = read_listing(request)
    explorer = get_explorer(request)
    kinds = {kind for kind, _ in await asyncio.to_thread(listing.count_values, "kind")}
    stores = [data_set.store for data_set in explorer.library.choose(listing.filter.data).values()]
    has_choices = any([await store.has_choices() for store in stores])
    return render_page(
        request,
        "export.html",
        filter=listing.filter,
        total=await asyncio.to_thread(listing.count),
        formats=[
            name
            for name, form in FORMATS.items()
            if form.kinds & kinds and ("choices" not in form.needs or has_choices)
        ],
        on_page=MOST_ON_PAGE,
        in_copy=MOST,
        reading=listing.count_stages().describe(listing.filter),
        commands=await asyncio.to_thread(lambda: list(_list_commands(explorer.library, listing))),
    )


def _is_sayable(list_filter: ListFilter) -> bool:
    """Return True if the words of ``export`` can say the whole filter."""
    unsaid = list_filter.conditions.keys() - {"assistant", "user", "ending", "behaviour", "mark", "ids"}
    if UNFINISHED in list_filter.ending or list_filter.need:
        return False
    # In its words for roles and ids, these characters stand for others.
    names = (list_filter.assistant, list_filter.user, *list_filter.ids)
    literal = not any(sign in name for name in names for sign in "*?[") and " x " not in list_filter.assistant
    # That mark may come from the recipe, which ``export`` does not count as one.
    by_person = list_filter.mark.removeprefix("-") != "red-team"
    return not unsaid and list_filter.match is None and literal and by_person and len(list_filter.ids) < 20


def _list_commands(library: Library, listing: Listing) -> Iterator[str]:
    """Yield a command for each data set that has some of the conversations."""
    if not _is_sayable(listing.filter):
        return
    parts = [replace(listing, names={run: name}) for run, name in listing.names.items()]
    having = [part for part in parts if part.count()]
    for part in having:
        (name,) = part.names.values()
        out = "chosen.jsonl" if len(having) == 1 else f"chosen-{name}.jsonl"
        words = ("bactrian", "export", str(library.sets[name].run), "--format", "messages", "--out", out)
        marks = [mark for mark, _ in replace(part, filter=ListFilter()).count_values("mark")]
        yield shlex.join([*words, *_list_words(listing.filter, marks)])


def _list_words(list_filter: ListFilter, marks: Collection[str]) -> Iterator[str]:
    """Yield the words of ``export`` for a filter of a run with these marks."""
    if not list_filter.ending:
        yield "--unfinished"
    for code in list_filter.ending:
        yield from ("--only", f"ending={code}")
    for code in list_filter.behaviour:
        lacks = code.startswith("-")
        yield from ("--drop" if lacks else "--only", f"finding={code.removeprefix('-')}")
    if list_filter.assistant or list_filter.user:
        yield from ("--pair", f"{list_filter.assistant or '*'} x {list_filter.user or '*'}")
    if not list_filter.mark.startswith("-"):
        yield from ("--mark", list_filter.mark) if list_filter.mark else ()
    elif list_filter.mark[1:] in marks:
        yield from ("--drop", f"mark={list_filter.mark[1:]}")
    for session in list_filter.ids:
        yield from ("--id", session)


async def download_export(request: Request) -> Response:
    """Send the conversations of a filter in any format, as ``bactrian export`` writes them, with their manifests."""
    list_filter = ListFilter.read(request.query_params)
    form = find_format(request.query_params.get("format", CHAT_MESSAGES.name))
    agreed = has_agreed(request)

    async def write(folder: Path) -> None:
        problem, written = InputError("No conversation fits the filter.", next="Change it."), False
        for data_set in get_explorer(request).library.choose(list_filter.data).values():
            if ids := await asyncio.to_thread(data_set.list_ids, list_filter, red=agreed):
                try:
                    # With a loop of its own, so that pages are answered meanwhile.
                    await asyncio.to_thread(
                        asyncio.run,
                        export_session_data(
                            data_set.run,
                            form,
                            folder / f"{data_set.name}{form.suffix}",
                            more={"unfinished": True},
                            ids=ids,
                        ),
                    )
                    written = True
                except InputError as error:
                    problem = error  # Another data set may have something for this format.
        if not written:
            raise problem

    return await _send_folder(write, f"{form.name}.zip")


async def download_copy(request: Request) -> Response:
    """Send a copy to publish of a filter."""
    listing = read_listing(request)
    if lacking := listing.count_stages().describe(ListFilter(), behaviours=True):
        raise InputError(lacking, next="Wait until the index is complete.")

    async def write(folder: Path) -> None:
        await copy_pages(get_explorer(request).library, listing.filter, folder, MOST)

    return await _send_folder(write, "copy.zip")


async def _send_folder(write: Callable[[Path], Awaitable[None]], name: str) -> Response:
    """Send what ``write`` puts into a folder as a .zip."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="bactrian-")))
        content = folder / "content"
        room = "Make room there, or start the explorer with another TMPDIR."
        with explain_os_errors(f"{name} cannot be made", folder.parent, room):
            content.mkdir()
            await write(content)
            await asyncio.to_thread(shutil.make_archive, str(folder / "made"), "zip", content)
        keep = stack.pop_all()
    return FileResponse(folder / "made.zip", filename=name, background=BackgroundTask(keep.close))


async def download_sessions(request: Request) -> Response:
    """Send the conversations of a filter as one page that needs nothing else."""
    listing = read_listing(request)
    if (count := listing.count()) > MOST_ON_PAGE:
        raise InputError(
            f"{count:,} conversations fit, and one page contains at most {MOST_ON_PAGE}.",
            next="Narrow the filter, or tick those that you need.",
        )
    chosen: list[tuple[Session, tuple[Finding, ...]]] = []
    for data_set in get_explorer(request).library.choose(listing.filter.data).values():
        for session_id in await asyncio.to_thread(data_set.list_ids, listing.filter):
            session = await data_set.store.session(session_id)
            if session is not None and (not session.mark or has_agreed(request)):
                known = await data_set.read_known(session)
                chosen.append((session, known.findings))
    page = await asyncio.to_thread(render_sessions, chosen, "Conversations")
    return _send_page(page, "conversations.html")


async def download_view(request: Request) -> Response:
    """Send a page of the explorer as one file that needs nothing else."""
    address = request.query_params.get("of", "")
    if not is_address(address):
        raise InputError("This is not an address of a page.", where="of", next="Use the link on the page.")
    # As in a static copy: without what asks the server for something.
    app = build_app(replace(get_explorer(request), static="?", edit=False))
    page = await fetch_page(app, address)
    if page.status != 200 or "text/html" not in page.headers.get("content-type", ""):
        raise InputError("There is no page at this address.", where=address, next="Use the link on the page.")
    path, query = urlsplit(address).path.removeprefix("/c/"), parse_qs(urlsplit(address).query)
    # Of a run and a conversation, or of a view of some runs.
    parts = [*(query.get("data", ()) if path[:1] == "/" else ()), *unquote(path).split("/")]
    name = "-".join(map(make_slug, filter(None, parts))) or "library"
    return _send_page(make_single_page(page.body.decode(), address), f"{name}.html")


def _send_page(page: str, name: str) -> Response:
    return HTMLResponse(page, headers={"content-disposition": f'attachment; filename="{name}"'})


async def keep_view(request: Request) -> Response:
    """Save or remove a view, which is a name for the address of a page."""
    form = await read_form(request, writes=False)
    if name := form.get("remove"):
        remove_view(name)
    else:
        save_view(form.get("name", ""), form.get("address", ""))
    return RedirectResponse("/#views", 303)


ROUTES = (
    Route("/export", show_export),
    Route("/export/data.zip", download_export),
    Route("/export/copy.zip", download_copy),
    Route("/export/conversations.html", download_sessions),
    Route("/page.html", download_view),
    Route("/views", keep_view, methods=["POST"]),
)
