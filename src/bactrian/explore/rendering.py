"""Rendering of pages: the template environment, what every page knows, and pictures of societies and searches."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from importlib.resources import files
from io import StringIO
from mimetypes import guess_type
from operator import methodcaller
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs, quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from bactrian.amounts import (
    write_dollars,
    write_duration,
    write_ends,
    write_percent,
    write_percents,
    write_points,
    write_tokens,
)
from bactrian.blocks import make_visible
from bactrian.errors import InputError
from bactrian.explore.facets import FacetCache, FacetIndex
from bactrian.explore.library import DataSet, Library, add_data_set
from bactrian.explore.security import VisitLimit
from bactrian.explore.session_lists import ListFilter, Listing
from bactrian.figures.chart import read_look
from bactrian.files.atomic import is_same_file
from bactrian.records.session import Session
from bactrian.store import open_store

if TYPE_CHECKING:
    from bactrian.explore.layout import Branch, TextView
    from bactrian.explore.playing import LiveStage
    from bactrian.records.turn import Proposal


# Rendering of pages: the template environment, its filters, and what every page knows.


# Bytes of a form.
_LARGEST_FORM = 1 << 20


@dataclass(slots=True)
class Explorer:
    """What the pages share."""

    library: Library
    # True if marks may be written and conversations played.
    edit: bool = False
    port: int = 0
    # Models that may play. Others are refused, because a name may stand for a file.
    models: tuple[str, ...] = ("local",)
    # Files of societies that may be played beside the built-in ones.
    societies: tuple[str, ...] = ()
    # Of these models, in place of the known one; and the limit of all plays together, in US dollars.
    price: str | None = None
    budget: float | None = None
    # The filter of a static copy, as in an address; empty on a server.
    static: str = ""
    # Names and addresses of the maps in a static copy.
    maps: tuple[tuple[str, str], ...] = ()
    # The values by which lists can be narrowed.
    facets: FacetCache = field(default_factory=FacetCache)
    # The conversation that is being played, or was played last.
    stage: LiveStage | None = None
    # US dollars that earlier plays cost.
    spent: float = 0.0
    # Held while a vote is stored.
    voting: asyncio.Lock = field(default_factory=asyncio.Lock)
    # Of each voter.
    votes: VisitLimit = field(default_factory=lambda: VisitLimit(30, 60.0))
    # Invitations that are not valid, by the address of the computer.
    guesses: VisitLimit = field(default_factory=lambda: VisitLimit(20, 60.0))
    # True once the server was told to end: pages that follow something then let go.
    is_ending: Callable[[], bool] = lambda: False
    # Closes what is opened while the server runs.
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    # Repeated by every form, so that no other site can send one.
    csrf: str = field(default_factory=token_urlsafe)

    async def add_played(self, path: Path) -> DataSet:
        """Return the data set at ``path``, created and added to the library if necessary. Raises StoreError."""
        for data_set in self.library.sets.values():
            if is_same_file(data_set.source, path):
                return data_set
        async with open_store(path):
            pass
        return await add_data_set(self.library, path, self.stack)


def get_explorer(request: Request) -> Explorer:
    """Return what the pages share."""
    return cast("Explorer", request.app.state.explorer)


def read_listing(request: Request) -> Listing:
    """Return the conversations that the address of a page names. Raises InputError."""
    return get_explorer(request).library.list_sessions(ListFilter.read(request.query_params))


def read_facets(request: Request) -> FacetIndex:
    """Return which conversations have which values. Raises TooSlow if a query takes too long."""
    explorer = get_explorer(request)
    return explorer.facets.read(explorer.library)


def render_page(request: Request, template: str, status: int = 200, **context: Any) -> HTMLResponse:
    """Render ``template`` for a request."""
    return HTMLResponse(render_text(request, template, **context), status)


def render_text(request: Request, template: str, **context: Any) -> str:
    """Render ``template``, a page or a part of one."""
    context |= {"explorer": get_explorer(request), "path": request.url.path}
    query = request.url.query
    context["address"] = f"{request.url.path}{query and f'?{query}'}"
    context |= {"agreed": has_agreed(request), "owner": is_owner(request)}
    return get_templates().get_template(template).render(context)


def send_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Response:
    """Return a table as a file for spreadsheets."""
    table = StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return PlainTextResponse(table.getvalue(), media_type="text/csv")


def is_owner(request: Request) -> bool:
    """Return True if the request may see all pages, and not only those of voters."""
    return bool(request.scope.get("state", {}).get("is_owner"))


def has_agreed(request: Request) -> bool:
    """Return True if the reader agreed to see sessions that were made to study misuse."""
    return request.cookies.get(name_agreement(request)) == "yes"


class NoticeNeeded(Exception):
    """The reader has to agree to a notice first."""


def check_agreed(request: Request, session: Session) -> None:
    """Raise NoticeNeeded if ``session`` was made to study misuse and the reader did not agree to see such ones."""
    if session.mark and not has_agreed(request):
        raise NoticeNeeded


def name_agreement(request: Request) -> str:
    """Return the name of the cookie that contains the agreement."""
    return f"bactrian_agreed_{get_explorer(request).port}"


async def read_form(request: Request, *, writes: bool = True) -> Mapping[str, str]:
    """Read a form that one of the pages sent.

    Raises:
        HTTPException: it ``writes`` something, and the explorer was started without ``--edit``.
        InputError: it is too large, or does not come from a page of this server.
    """
    if writes and not get_explorer(request).edit:
        raise HTTPException(403, "The explorer was started without --edit.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LARGEST_FORM:
            raise InputError("The form is too large.", next="Shorten the text.")
    try:
        fields = {key: values[-1] for key, values in parse_qs(body.decode(), keep_blank_values=True).items()}
    except UnicodeDecodeError as error:
        raise InputError("The form is not valid UTF-8.", next="Reload the page.") from error
    if fields.pop("csrf", "") != get_explorer(request).csrf:
        raise InputError(
            "The form was made before the explorer was started again.",
            next="Go back, reload the page and send it again; copy your text first.",
        )
    return fields


@cache
def get_templates() -> Environment:
    """Return the environment of all templates."""
    environment = Environment(
        loader=PackageLoader("bactrian.explore"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., Any]] = {
        "number": "{:,}".format,
        "money": write_dollars,
        "arranged": _arrange_proposal,
        "drawn": _draw_search,
        "duration": write_duration,
        "ends": write_ends,
        "percent": write_percent,
        "percents": write_percents,
        "points": write_points,
        "tokens": write_tokens,
        "time": _write_time,
        "visible": make_visible,
        "part": partial(quote, safe=""),
        "words": methodcaller("replace", "_", " "),
    }
    environment.filters |= filters
    environment.globals["asset"] = find_asset
    return environment


# In scripts they contain the types.
_COMMENTS = re.compile(r"/\*.*?\*/ ?|^\s*//[^\n]*\n|^\s+", re.S | re.M)


@cache
def read_asset(name: str) -> str | None:
    """Return a static file as browsers get it, without comments; None if there is none of this name."""
    stored = {file.name: file for file in files("bactrian.explore").joinpath("static").iterdir()}.get(name)
    if stored is None:
        return None
    content = stored.read_text("utf-8")
    return _COMMENTS.sub("", read_look() + content if name == "style.css" else content)


@cache
def find_asset(name: str) -> str:
    """Return the address of a static file. It changes with the content, so that browsers keep it for good."""
    return f"/static/{name}?v={hashlib.sha256((read_asset(name) or '').encode()).hexdigest()[:10]}"


def send_asset(request: Request) -> Response:
    """Send a static file. As its address changes with its content, a browser need not ask again."""
    name = request.path_params["name"]
    if (content := read_asset(name)) is None:
        raise HTTPException(404)
    kept = {"cache-control": "public, max-age=31536000, immutable"} if "v" in request.query_params else {}
    return Response(content, media_type=guess_type(name)[0], headers=kept)


def _arrange_proposal(proposal: Proposal, view: TextView) -> object:
    from bactrian.explore.layout import arrange_proposal

    return arrange_proposal(proposal, view)


def _draw_search(roots: Sequence[Branch]) -> Markup:
    # Imported here: the first page must not wait for it.
    from bactrian.explore.pictures import draw_search

    return draw_search(roots)


def _write_time(seconds: float) -> str:
    with suppress(ValueError, OverflowError, OSError):  # A file may contain any number.
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return "unknown"
