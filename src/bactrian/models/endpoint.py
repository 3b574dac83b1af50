"""The way to a server: its address, how long to wait for it, and one pool of connections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from bactrian.errors import Denied, InputError, ModelError

OFFICIAL_HOST = "api.openai.com"


@dataclass(frozen=True, slots=True)
class Limits:
    """How long to wait for an endpoint, in seconds, and how much to take from it."""

    connect: float = 5.0
    """Longest wait for a connection: name lookup, TCP and TLS together."""
    silence: float = 300.0
    """Longest wait for the first byte of a streamed reply, and between two of its bytes. A reply that is not
    streamed comes at once when it is done: only ``total`` limits the wait for it."""
    total: float = 600.0
    """Longest time for one request, however it is answered."""
    max_reply_bytes: int = 1 << 20
    """A larger reply is cut off and the connection closed. A stream may have sixteen times as many bytes,
    because its framing takes far more room than its text."""
    window: int | None = None
    """The model's context window in tokens, if known: requests that cannot fit are then not sent."""

    @property
    def whole(self) -> aiohttp.ClientTimeout:
        """The deadlines of a reply that is not streamed."""
        return aiohttp.ClientTimeout(total=self.total, connect=self.connect)

    @property
    def streamed(self) -> aiohttp.ClientTimeout:
        """The deadlines of a streamed reply. Watching for silence costs a timer for every piece of it."""
        return aiohttp.ClientTimeout(total=self.total, connect=self.connect, sock_read=self.silence)


class Body(aiohttp.Payload):
    """A JSON request body that is put together when it is written, and let go at once.

    Bodies hold whole conversations, and most of a request's life is spent waiting: for a connection before,
    for the reply after.
    """

    _value: Sequence[bytes]
    _autoclose = True

    def __init__(self, parts: Sequence[bytes]) -> None:
        super().__init__(parts, content_type="application/json")
        self.length = self._size = sum(map(len, parts))

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return b"".join(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        parts, self._value = self._value, ()
        await writer.write(b"".join(parts))


class Intake:
    """Takes in a reply piece by piece, and no more than ``most`` bytes of it."""

    def __init__(self, content: aiohttp.StreamReader, most: int) -> None:
        self._content = content
        self._most = most
        self._taken = 0

    async def read(self) -> bytes:
        """Return the next piece; empty at the end of the reply."""
        piece = await self._content.readany()
        self._taken += len(piece)
        if self._taken > self._most:
            raise ModelError(
                f"The reply is larger than {self._most:,} bytes.",
                next="Set max_tokens, or allow larger replies.",
                sample=piece,
            )
        return piece

    async def read_all(self) -> bytes:
        """Return what is left of the reply."""
        pieces: list[bytes] = []
        while piece := await self.read():
            pieces.append(piece)
        return b"".join(pieces)


def checked_url(base_url: str) -> URL:
    """Return ``base_url`` without a slash at its end.

    Raises:
        InputError: it is not the address of a web server.
    """
    try:
        url = URL(base_url.strip().rstrip("/"))
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise InputError(
            "This base URL is not the address of an endpoint.",
            where=base_url,
            next="Give one like http://127.0.0.1:8000/v1.",
        )
    return url


def check_key(url: URL, key: str) -> None:
    """Refuse a key that cannot be sent, and the lack of one where it is known to be needed.

    Servers on one's own machines mostly want no key, so only the official endpoint is known to need one.
    """
    if not key and url.host == OFFICIAL_HOST:
        raise Denied(
            f"{OFFICIAL_HOST} needs a key.",
            next="Set OPENAI_API_KEY, or give --base-url for another endpoint.",
        )
    if not (key.isascii() and key.isprintable()):
        raise Denied("The key holds characters that no key has.", next="Check OPENAI_API_KEY.")


def is_loopback(host: str) -> bool:
    """Tell whether ``host`` is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def proxy_for(url: URL) -> str | None:
    """Return the proxy that the environment names for ``url``; none ever for this machine itself."""
    host = url.host or ""
    if is_loopback(host) or proxy_bypass(host):
        return None
    proxies = getproxies()
    return proxies.get(url.scheme) or proxies.get("all")


def open_session(url: URL, key: str, limits: Limits) -> aiohttp.ClientSession:
    """Open a pool of connections to ``url``. It must be closed."""
    headers = {"Accept-Encoding": "identity", "User-Agent": "bactrian"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    return aiohttp.ClientSession(
        # How many requests are in flight is for the caller to limit, not for the pool.
        connector=aiohttp.TCPConnector(limit=0),
        timeout=limits.whole,
        headers=headers,
        cookie_jar=aiohttp.DummyCookieJar(),
        # Looked up once: aiohttp's own ``trust_env`` starts a thread for every request.
        proxy=proxy_for(url),
    )
