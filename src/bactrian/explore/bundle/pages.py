"""Requests pages from the application in this process, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from starlette.types import ASGIApp

_HOST = b"127.0.0.1"


@dataclass(frozen=True, slots=True)
class FetchedPage:
    """What the application answered."""

    status: int
    body: bytes
    headers: Mapping[str, str]
    """By name, in small letters."""


async def fetch_page(app: ASGIApp, address: str) -> FetchedPage:
    """Return the page at ``address``, which begins with a slash."""
    parts = urlsplit(address)
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": unquote(parts.path),
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "root_path": "",
        "headers": [(b"host", _HOST)],
        "client": None,
        "server": None,
    }
    status = 0
    headers: dict[str, str] = {}
    body = bytearray()

    requests = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> dict[str, Any]:
        # A response that is sent from a file waits meanwhile for the client to leave, which this one never does.
        return requests.pop() if requests else await asyncio.get_running_loop().create_future()

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)
        headers.update((name.decode().lower(), value.decode()) for name, value in message.get("headers", ()))
        body.extend(message.get("body", b""))

    await app(scope, receive, send)
    return FetchedPage(status, bytes(body), headers)
