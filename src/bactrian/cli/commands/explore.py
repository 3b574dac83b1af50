"""``bactrian explore``: runs and their conversations as local web pages."""

from __future__ import annotations

import asyncio
import webbrowser
from importlib.util import find_spec
from pathlib import Path
from secrets import token_urlsafe
from typing import Annotated
from urllib.parse import quote

import typer

from bactrian.cli.options import declare_option
from bactrian.cli.run_async import run_async
from bactrian.cli.terminal.console import open_output, to_printable
from bactrian.errors import MissingExtra

_NEEDED = ("starlette", "uvicorn")


def explore(
    paths: Annotated[
        list[Path], typer.Argument(metavar="RUN…", help="Runs; exports and archives of chats, too.")
    ],
    host: Annotated[
        str,
        declare_option(
            "--host", "Address to listen at. Any but this computer's own needs a token, which is shown."
        ),
    ] = "127.0.0.1",
    port: Annotated[int, declare_option("--port", "Port to listen at.", min=1, max=65_535)] = 8642,
    show: Annotated[bool, declare_option("--open", "Open the page in the browser.")] = False,
    edit: Annotated[bool, declare_option("--edit", "Let pages write marks, and play.")] = False,
) -> None:
    """Look at runs and conversations in the browser: filter, search, read."""
    if any(find_spec(name) is None for name in _NEEDED):
        raise MissingExtra("explore", "The explorer")
    run_async(_explore(paths, host, port, show=show, edit=edit), resume="The runs are as they were.")


async def _explore(paths: list[Path], host: str, port: int, *, show: bool, edit: bool) -> int:
    from bactrian.explore.security import is_loopback
    from bactrian.explore.server import build_app, open_explorer, serve

    token = "" if is_loopback(host) else token_urlsafe(24)
    written = f"[{host}]" if ":" in host else host
    address = f"http://{written}:{port}/{f'?token={quote(token)}' if token else ''}"

    def tell() -> None:
        open_output().print(to_printable(f"{address}\nPress Ctrl-C to stop."))
        if show:
            webbrowser.open(address)

    async with open_explorer(paths, port=port, edit=edit) as explorer:
        app = build_app(explorer, host=host, token=token)
        # In a task of its own: the server takes over Ctrl-C, and ends by it.
        await asyncio.create_task(serve(app, host, port, tell))
    return 0
