"""The web application: its pages, static files and errors, and the server that runs it."""

from __future__ import annotations

import asyncio
import errno
import socket
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Match, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from bactrian.errors import BactrianError, InputError
from bactrian.explore.library import open_library
from bactrian.explore.rendering import Explorer, render_page
from bactrian.explore.security import HEADERS, Guard, is_wildcard, make_access_rules, name_computer
from bactrian.explore.side_file import TooSlow


class LazyPages(BaseRoute):
    """The routes ``ROUTES`` of a module of pages, imported with its first request: so the first page comes soon."""

    def __init__(self, module: str, addresses: Sequence[str]) -> None:
        self._module = module
        self._exact = frozenset(addresses)
        self._below = tuple(one for one in addresses if one.endswith("/") and one != "/")

    @cached_property
    def routes(self) -> Sequence[BaseRoute]:
        """The routes of the module, which is imported."""
        return import_module(f"bactrian.explore.{self._module}_pages").ROUTES

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return how well one of the routes fits; the module is not imported for other addresses."""
        path = scope.get("path", "")
        if path not in self._exact and not path.startswith(self._below):
            return Match.NONE, {}
        partial: tuple[Match, Scope] = (Match.NONE, {})
        for route in self.routes:
            match, more = route.matches(scope)
            if match is Match.FULL:
                return match, {**more, "route": route}
            if match is Match.PARTIAL:
                partial = match, {**more, "route": route}
        return partial

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request with the route that fits."""
        await scope["route"].handle(scope, receive, send)


PAGES: Sequence[BaseRoute] = (
    LazyPages(
        "list",
        (
            *("/", "/status", "/help", "/agree", "/conversations", "/conversations.json", "/values"),
            *("/compare", "/compare/", "/export", "/export/"),
        ),
    ),
    LazyPages("statistics", ("/statistics", "/statistics.json", "/training/")),
    LazyPages("map", ("/map", "/map/", "/map.csv", "/map.svg")),
    LazyPages("play", ("/play", "/play/")),
    LazyPages("vote", ("/vote", "/vote/", "/votes")),
    LazyPages("conversation", ("/c/", "/marks")),
    LazyPages("list", ("/c/",)),
    LazyPages("play", ("/c/",)),
)
"""The pages by the beginnings of their addresses; one that ends with a slash stands for all addresses below it."""


_LATER = 1.5
"""Seconds after the start."""


class _Assets(StaticFiles):
    """Static files. Their addresses change with their content, so that a browser need not ask again."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        if b"v=" in scope["query_string"]:
            response.headers["cache-control"] = "public, max-age=31536000, immutable"
        return response


def build_app(explorer: Explorer, *, host: str, token: str = "") -> Starlette:
    """Return the application for ``explorer``, answered at ``host`` and the explorer's port only."""
    app = Starlette(
        routes=[*PAGES, Mount("/static", _Assets(packages=[("bactrian.explore", "static")]), name="static")],
        middleware=[
            Middleware(Guard, rules=make_access_rules(host, explorer.port, token)),
            Middleware(GZipMiddleware, minimum_size=1000, compresslevel=6),
        ],
        exception_handlers={
            HTTPException: _explain_http,
            BactrianError: _explain,
            TooSlow: _explain_slow,
            OverflowError: _explain_overflow,
            sqlite3.Error: _explain_database,
            Exception: _explain_unexpected,
        },
    )
    app.state.explorer = explorer
    return app


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where and how to serve."""

    host: str = "127.0.0.1"
    port: int = 8642
    token: str = ""
    """Needed by every request, if not empty."""
    edit: bool = False
    """True to let pages write marks and play conversations."""
    models: tuple[str, ...] = ("local",)
    """Models that pages may play with."""

    @property
    def address(self) -> str:
        """The address to open, with the token."""
        name = name_computer() if is_wildcard(self.host) else self.host
        host = f"[{name}]" if ":" in name else name
        return f"http://{host}:{self.port}/{f'?token={quote(self.token)}' if self.token else ''}"


async def run_server(paths: Sequence[Path], options: ServerOptions, ready: Callable[[], None]) -> int:
    """Serve the data sets at ``paths`` until a signal arrives; call ``ready`` when the address answers. Return 0.

    Raises:
        InputError: a path or the address cannot be used.
        StoreError: a run is damaged, or of a newer version.
    """
    with open_address(options.host, options.port) as listening:
        async with open_library(paths) as opened, AsyncExitStack() as stack:
            explorer = Explorer(opened, options.edit, options.port, options.models, stack=stack)
            stack.push_async_callback(_stop_playing, explorer)
            app = build_app(explorer, host=options.host, token=options.token)
            # In a task of its own: the server takes over Ctrl-C, and ends by it.
            await asyncio.create_task(_serve(app, listening, ready))
    return 0


def open_address(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address. It is opened before anything else: an address in use is told at once.

    Raises:
        InputError: the address is in use, or not this computer's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        raise _explain_address(error, host, port) from error
    # asyncio does this only for sockets that name their protocol. Without it, the second packet of a page waits 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _explain_address(error: OSError, host: str, port: int) -> InputError:
    other = f"Choose another port: --port {port + 1 if 1024 <= port < 65_535 else 8642}"
    match error.errno:
        case errno.EADDRINUSE:
            what = f"Port {port} is in use: another program, maybe another explorer, has it."
        case errno.EACCES:
            what = f"Port {port} is reserved for the system."
        case _:
            what, other = (
                f"{host} is not an address of this computer.",
                "Choose another one: --host 127.0.0.1",
            )
    return InputError(what, where=f"{host}:{port}", next=other)


def _prepare_conversation() -> None:
    from bactrian.explore.conversation_pages import prepare_pages

    prepare_pages()


async def _stop_playing(explorer: Explorer) -> None:
    if explorer.stage is not None:
        from bactrian.explore.playing import stop_play

        await stop_play(explorer.stage)


async def _serve(app: Starlette, listening: socket.socket, ready: Callable[[], None]) -> None:
    config = uvicorn.Config(
        app, log_level="error", access_log=False, lifespan="off", timeout_graceful_shutdown=2
    )
    server = uvicorn.Server(config)
    config.load()
    ready()
    # What a conversation needs takes a second to import; the first page must not wait for it.
    later = threading.Timer(_LATER, _prepare_conversation)
    later.daemon = True
    later.start()
    await server.serve(sockets=[listening])


def _show_error(request: Request, status: int, title: str, what: str, next: str) -> Response:
    return render_page(request, "error.html", status, title=title, what=what, next=next)


def _explain_http(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 404:
        detail = getattr(error, "detail", "")
        what = detail if detail != "Not Found" else "There is no page at this address."
        return _show_error(request, 404, "Not found", what, "Go back, or begin at the library.")
    return _show_error(request, status, "This did not work", "The request was not understood.", "Go back.")


def _explain(request: Request, error: Any) -> Response:
    status = 400 if isinstance(error, InputError) else 500
    what = f"{error.where}: {error.what}" if error.where else error.what
    return _show_error(request, status, "This did not work", what, error.next or "Go back.")


def _explain_slow(request: Request, _: Exception) -> Response:
    return _show_error(
        request,
        503,
        "This took too long",
        "The query was stopped.",
        "Narrow the filter, or search for rarer words.",
    )


def _explain_overflow(request: Request, _: Exception) -> Response:
    return _show_error(
        request,
        400,
        "This did not work",
        "A number in the address is too large.",
        "Go back, and give a smaller one.",
    )


def _explain_database(request: Request, error: Exception) -> Response:
    return _show_error(
        *(request, 503, "The index cannot be read", f"SQLite says: {error}."),
        "Reload in a moment. If it stays so, delete the side file (its name ends in .explore); it is built again.",
    )


def _explain_unexpected(request: Request, error: Exception) -> Response:
    """Explain a fault of this program; the server then writes its traceback to the terminal."""
    what = f"The explorer met something that it does not know: {type(error).__name__}. Nothing that was stored is lost."
    next_step = (
        "Reload the page. If it stays so, report it with the last lines of the terminal in which the explorer runs,"
        " and with what `bactrian doctor` prints."
    )
    try:
        answer = _show_error(request, 500, "This is a fault of the explorer", what, next_step)
    except Exception:  # noqa: BLE001 (the fault may lie in the templates)
        answer = PlainTextResponse(f"{what} {next_step}\n", 500)
    # This answer does not pass the guard, which adds these.
    answer.headers.update(HEADERS)
    return answer
