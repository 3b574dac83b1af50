"""The connections to one endpoint: opened when there is none to spare, kept, and watched over."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence

from bactrian.models.address import Address, proxy_for
from bactrian.models.connection import (
    Connection,
    Dropped,
    NotHttp,
    Overdue,
    Response,
    Silent,
    TransportFault,
)
from bactrian.models.limits import Limits

_PROXY_ANSWER = 1 << 16


class NoConnection(TransportFault):
    """No connection came about. The cause is ``__cause__``; None if it took too long."""


class NoWayThroughProxy(NoConnection):
    """The proxy on the way could not be reached."""


class ProxyRefused(TransportFault):
    """The proxy on the way refused; ``args`` holds the status and the words of its answer."""


class Pool:
    """Makes calls to ``address``, each on a connection of its own. Belongs to the event loop of its first call.

    Without ``keep``, each connection serves one call.
    """

    def __init__(self, address: Address, authorization: str, limits: Limits, *, keep: bool = True) -> None:
        self._address = address
        self._limits = limits
        self._proxy = proxy_for(address)
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._watch: asyncio.TimerHandle | None = None
        self._tls: ssl.SSLContext | None = None
        self._tick = min(1.0, limits.total / 5, limits.silence / 5)
        origin = str(address)[: -len(address.path) or None]
        # A proxy for plain HTTP is asked for whole addresses; through a tunnel nobody sees them.
        self._target = (origin if self._forwarded else "") + address.path
        lines = [f" HTTP/1.1\r\nHost: {address.place}", "User-Agent: bactrian", "Accept-Encoding: identity"]
        if authorization:
            lines.append(f"Authorization: {authorization}")
        if not keep:
            lines.append("Connection: close")
        if self._forwarded and self._proxy and self._proxy.credentials:
            lines.append(f"Proxy-Authorization: {self._proxy.credentials}")
        self._head = "\r\n".join(lines)

    @property
    def _forwarded(self) -> bool:
        return self._proxy is not None and self._address.scheme == "http"

    async def post(
        self, path: str, parts: Sequence[bytes], length: int, *, most: int, stream: bool = False
    ) -> Response:
        """Post JSON, given in ``parts`` of ``length`` bytes in all, to ``path`` below the address.

        Returns when the answer is whole, or with ``stream`` when it begins. ``most`` is how many bytes it may have.

        Raises:
            TransportFault: no whole answer came.
        """
        head = (
            f"POST {self._target}{path}{self._head}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {length}\r\n\r\n"
        )
        connection = await self._connected()
        return await connection.call(
            b"".join((head.encode(), *parts)),
            asyncio.get_running_loop().time(),
            most=most,
            whole=not stream,
            silence=self._limits.silence if stream else float("inf"),
        )

    async def get(self, path: str, *, most: int) -> Response:
        """Get ``path`` below the address. Raises what :meth:`post` raises."""
        connection = await self._connected()
        head = f"GET {self._target}{path}{self._head}\r\n\r\n"
        return await connection.call(head.encode(), asyncio.get_running_loop().time(), most=most, whole=True)

    async def close(self) -> None:
        """Close all connections."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        for connection in self._all:
            connection.abort()
        self._all.clear()
        self._idle.clear()
        await asyncio.sleep(0)  # The loop closes their sockets now.

    async def _connected(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
            self._all.discard(connection)
        connection = await self._open()
        self._all.add(connection)
        if self._watch is None:
            self._watch = asyncio.get_running_loop().call_later(self._tick, self._look)
        return connection

    async def _open(self) -> Connection:
        way = self._proxy or self._address
        try:
            async with asyncio.timeout(self._limits.connect):
                if self._proxy is None or self._forwarded:
                    return await self._dial(way, self._context(way))
                return await self._tunnel(way)
        except TimeoutError as error:
            raise NoConnection from (error.__cause__ if isinstance(error.__cause__, OSError) else None)
        except OSError as error:
            raise (NoConnection if self._proxy is None else NoWayThroughProxy) from error

    async def _dial(self, way: Address, context: ssl.SSLContext | None) -> Connection:
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(self._idle.append),
            way.host,
            way.port,
            ssl=context,
            server_hostname=way.host if context else None,
        )
        return connection

    async def _tunnel(self, proxy: Address) -> Connection:
        """A connection that the proxy passes on as it is, with TLS inside it."""
        connection = await self._dial(proxy, self._context(proxy))
        target = f"{self._address.host}:{self._address.port}"
        head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n"
        if proxy.credentials:
            head += f"Proxy-Authorization: {proxy.credentials}\r\n"
        loop = asyncio.get_running_loop()
        try:
            answer = await connection.call(
                f"{head}\r\n".encode(), loop.time(), most=_PROXY_ANSWER, whole=True, tunnel=True
            )
        except (Dropped, NotHttp) as error:
            raise NoWayThroughProxy from error
        if answer.status >= 300:
            words = answer.head.partition(b"\r\n")[0].decode("latin-1").split(" ", 2)
            connection.abort()
            raise ProxyRefused(answer.status, words[2] if len(words) > 2 else "")
        assert connection.transport is not None
        connection.transport = await loop.start_tls(
            connection.transport,
            connection,
            self._context(self._address) or ssl.create_default_context(),
            server_hostname=self._address.host,
        )
        return connection

    def _context(self, way: Address) -> ssl.SSLContext | None:
        if way.scheme != "https":
            return None
        self._tls = self._tls or ssl.create_default_context()
        return self._tls

    def _look(self) -> None:
        """End the calls that have taken too long: one look at all of them costs less than a timer for each."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        limits = self._limits
        idle = set(self._idle)
        for connection in [one for one in self._all if one not in idle]:
            if not connection.usable:
                self._all.discard(connection)
            elif now - connection.begun > limits.total:
                connection.abort(Overdue())
            elif now - connection.heard > connection.silence:
                connection.abort(Silent())
        self._watch = loop.call_later(self._tick, self._look) if self._all else None
