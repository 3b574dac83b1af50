"""The web application: its pages, static files and errors, and the server that runs it."""

from __future__ import annotations

import asyncio
import errno
import socket
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import cache
from http import HTTPStatus
from importlib import import_module
from pathlib import Path
from secrets import token_urlsafe
from typing import cast
from urllib.parse import quote

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from bactrian.errors import BactrianError, InputError
from bactrian.explore.library import open_library
from bactrian.explore.library_index import TooSlow
from bactrian.explore.rendering import Explorer, NoticeNeeded, render_page, send_asset
from bactrian.explore.security import Guard, is_wildcard, make_access_rules, name_computer

# The module of pages by the first part of their addresses; all others are in ``list_pages``.
_MODULES: Mapping[str, str] = {
    "c": "conversation",
    "compare": "comparison",
    "export": "share",
    "label": "label",
    "labels": "label",
    "map": "map",
    "marks": "conversation",
    "page": "share",
    "play": "play",
    "statistics": "statistics",
    "training": "statistics",
    "views": "share",
    "vote": "vote",
    "votes": "vote",
}


@cache
def _load_pages(module: str) -> Router:
    return Router(import_module(f"bactrian.explore.{module}_pages").ROUTES)


async def find_page(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request by the page at its address. Its module is imported now: so the first page comes soon."""
    first = scope["path"].split("/")[1].partition(".")[0]
    await _load_pages(_MODULES.get(first, "list"))(scope, receive, send)


# Seconds after the start.
_LATER = 1.5


def build_app(explorer: Explorer) -> Starlette:
    """Return the application for ``explorer``. It answers whoever calls it: :class:`Guard` belongs before it."""
    app = Starlette(
        routes=[Route("/static/{name}", send_asset), Mount("", find_page)],
        middleware=[Middleware(GZipMiddleware, minimum_size=1000, compresslevel=6)],
        exception_handlers={
            **dict.fromkeys(
                (HTTPException, BactrianError, TooSlow, OverflowError, sqlite3.Error), _explain_error
            ),
            NoticeNeeded: _show_notice,
            # Nobody reads it any more.
            ClientDisconnect: lambda _, __: Response(status_code=400),
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
    # Needed by every request.
    token: str = field(default_factory=lambda: token_urlsafe(24))
    # Needed by the first request of the browser that is opened here.
    once: str = field(default_factory=lambda: token_urlsafe(24))
    # True to let pages write marks and play conversations.
    edit: bool = False
    # Models that pages may play with.
    models: tuple[str, ...] = ("local",)
    # Files of societies that pages may play beside the built-in ones.
    societies: tuple[str, ...] = ()
    # Of the models, and the limit of what is played, in US dollars.
    price: str | None = None
    budget: float | None = None
    # True if pages of this computer, such as a notebook, may show the explorer in a frame.
    framed: bool = False

    def write_address(self, token: str) -> str:
        """Return the address to open, with a token."""
        name = name_computer() if is_wildcard(self.host) else self.host
        host = f"[{name}]" if ":" in name else name
        return f"http://{host}:{self.port}/?token={quote(token)}"


async def run_server(paths: Sequence[Path], options: ServerOptions, ready: Callable[[], None]) -> int:
    """Serve the data sets at ``paths`` until a signal arrives; call ``ready`` when the address answers. Return 0.

    Raises:
        InputError: a path or the address cannot be used.
        StoreError: a run is damaged, or of a newer version.
    """
    with open_address(options.host, options.port) as listening:
        async with open_library(paths) as opened, AsyncExitStack() as stack:
            may = options.edit, options.port, options.models, options.societies, options.price, options.budget
            explorer = Explorer(opened, *may, stack=stack)
            stack.push_async_callback(_stop_playing, explorer)
            if options.edit:
                # Imported here: the first page does not wait for it where nobody can play.
                from bactrian.models.open import ModelOptions, open_model

                for name in options.models:  # A wrong name is told at once.
                    await open_model(name, ModelOptions()).close()
            rules = make_access_rules(options.host, options.port, options.token, options.once)
            rules = replace(rules, framed=options.framed)
            app = Guard(build_app(explorer), rules)
            await _serve(app, explorer, listening, ready)
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
    from bactrian.explore.message_html import render_markdown

    _load_pages("conversation")
    render_markdown("```python\npass\n```")  # imports the parser and the highlighter


async def _stop_playing(explorer: Explorer) -> None:
    if explorer.stage is not None:
        await explorer.stage.interrupt()


# Seconds in which a client sends a whole request, and in which it takes a part of an answer.
_SENDING, _TAKING = 20.0, 60.0
_MOST_CONNECTIONS = 200
# Bytes of a request that are taken, whoever sends it; the largest form has half of them, so that its sender is told.
_LARGEST_REQUEST = 1 << 21


class TimedConnection(H11Protocol):
    """A connection that ends if its client is too slow.

    If there are too many, the one that has waited longest for its request makes room: a crowd of them shuts nobody out.
    """

    _sending: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None
    _received = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._time_request()
        if len(self.connections) > _MOST_CONNECTIONS:
            min(cast("set[TimedConnection]", self.connections), key=TimedConnection.find_deadline).end()

    def find_deadline(self) -> float:
        """Return when it ends if no request comes, in seconds of the loop; infinite if one came."""
        return self._sending.when() if self._sending is not None else float("inf")

    def data_received(self, data: bytes) -> None:
        """Take a part of a request; end the connection if it goes on and on, whether or not it was answered."""
        super().data_received(data)
        self._time_request()
        self._received = self._received + len(data) if self.conn.their_state is h11.SEND_BODY else 0
        if self._received > _LARGEST_REQUEST:
            self.end()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._time_request()

    def pause_writing(self) -> None:
        """Begin to wait until the client takes what was sent."""
        super().pause_writing()
        self._taking = self.loop.call_later(_TAKING, self.end)

    def resume_writing(self) -> None:
        """Stop waiting: the client took it."""
        super().resume_writing()
        if self._taking is not None:
            self._taking.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self.end()

    def _time_request(self) -> None:
        is_sending = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        if is_sending and self._sending is None:
            self._sending = self.loop.call_later(_SENDING, self.end)
        elif self._sending is not None and not is_sending:
            self._sending.cancel()
            self._sending = None

    def end(self) -> None:
        """End the connection at once."""
        for timer in filter(None, (self._sending, self._taking)):
            timer.cancel()
        self._sending = None
        self.transport.abort()


async def _serve(
    app: ASGIApp, explorer: Explorer, listening: socket.socket, ready: Callable[[], None]
) -> None:
    config = uvicorn.Config(
        app,
        http=TimedConnection,
        ws="none",
        log_level="error",
        access_log=False,
        lifespan="off",
        # What a client says of another address is not believed.
        proxy_headers=False,
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)
    explorer.is_ending = lambda: server.should_exit
    config.load()
    ready()
    # What a conversation needs takes a second to import; the first page must not wait for it.
    later = threading.Timer(_LATER, _prepare_conversation)
    later.daemon = True
    later.start()
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        # By Ctrl-C, which the server hears, too: it ends its answers before its task ends.
        server.should_exit = True
        await serving
        raise


def _show_notice(request: Request, _: Exception) -> Response:
    return render_page(request, "notice.html", 403, next=request.url.path if request.method == "GET" else "/")


def _explain_error(request: Request, error: Exception) -> Response:
    status, title, next_step = 500, "This did not work", "Go back."
    match error:
        case HTTPException(status_code=404):
            status, title, next_step = 404, "Not found", "Go back, or begin at the library."
            what = error.detail if error.detail != "Not Found" else "There is no page at this address."
        case HTTPException():
            status = error.status_code
            is_explained = error.detail != HTTPStatus(status).phrase
            what = error.detail if is_explained else "The request was not understood."
        case BactrianError():
            status = 400 if isinstance(error, InputError) else 503
            what = error.report
            next_step = error.next or next_step
        case TooSlow():
            status, title, what = 503, "This took too long", "The query was stopped."
            next_step = "Narrow the filter, or search for rarer words."
        case OverflowError():
            status, what = 400, "A number in the address is too large."
            next_step = "Go back, and give a smaller one."
        case _:  # Of SQLite.
            status, title, what = 503, "The index cannot be read", f"SQLite says: {error}."
            index = request.app.state.explorer.library.index
            next_step = f"Reload in a moment. If it stays so, stop all explorers and delete {index}; it is built again."
    return render_page(request, "error.html", status, title=title, what=what, next=next_step)


def _explain_unexpected(request: Request, error: Exception) -> Response:
    """Explain a fault of this program; the server then writes its traceback to the terminal."""
    what = f"The explorer met something that it does not know: {type(error).__name__}. Nothing that was stored is lost."
    next_step = (
        "Reload the page. If it stays so, report it with the last lines of the terminal in which the explorer runs,"
        " and with what `bactrian doctor` prints."
    )
    title = "This is a fault of the explorer"
    try:
        return render_page(request, "error.html", 500, title=title, what=what, next=next_step)
    except Exception:  # noqa: BLE001 (the fault may lie in the templates)
        return PlainTextResponse(f"{what} {next_step}\n", 500)
