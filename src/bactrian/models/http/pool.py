"""A pool of connections to one endpoint: opens, reuses and supervises them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Sequence

from bactrian.models.http.address import Address, find_proxy
from bactrian.models.http.connection import Connection
from bactrian.models.http.response import (
    DeadlinePassed,
    Dropped,
    IdleTimeout,
    NoAnswer,
    NotHttp,
    Part,
    Response,
    TransportFault,
)
from bactrian.models.http.timeouts import Timeouts

_PROXY_ANSWER = 1 << 16
_ROOM = 1 << 16
"""Maximum bytes received in one step."""
_DOORS = 128
"""Maximum connections being opened at once: a thousand would exceed their own timeout on handshakes and name lookups,
and overflow a server's queue."""
_LOST = 1.0
"""Seconds by which a check is late from which the process counts as stopped, or blocked."""
_SPARE = 60.0
"""Seconds that an idle connection is kept: networks drop connections that are idle for minutes."""


class NoConnection(TransportFault):
    """The connection could not be established. The cause is ``__cause__``; None after a timeout."""


class NoWayThroughProxy(NoConnection):
    """The proxy could not be reached."""


class ProxyRefused(TransportFault):
    """The proxy refused; ``args`` contains the status and the reason of its answer."""


class Pool:
    """Calls ``address``, each call on its own connection. Bound to the event loop of the first call.

    ``header`` is the authorization header; empty for none. Without ``keep``, each connection serves one call.
    """

    def __init__(self, address: Address, header: str, limits: Timeouts, *, keep: bool = True) -> None:
        self._address = address
        self._limits = limits
        self._proxy = find_proxy(address)
        self._doors = asyncio.Semaphore(_DOORS)
        self._room = memoryview(bytearray(_ROOM))
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._closed = False
        self.before_again: Callable[[], Awaitable[object]] = _at_once
        """Awaited before a request is sent once more."""
        self._watch: asyncio.TimerHandle | None = None
        self._tls: ssl.SSLContext | None = None
        self._due = 0.0
        """Time of the next check."""
        self._tick = min(1.0, limits.total / 5, limits.silence / 5)
        # A proxy for plain HTTP needs absolute addresses; a tunnel does not.
        self._target = str(address) if self._forwarded else address.path
        lines = [f" HTTP/1.1\r\nHost: {address.place}", "User-Agent: bactrian", "Accept-Encoding: identity"]
        if header:
            lines.append(header)
        if not keep:
            lines.append("Connection: close")
        if self._forwarded and self._proxy and self._proxy.credentials:
            lines.append(f"Proxy-Authorization: {self._proxy.credentials}")
        self._head = "\r\n".join(lines).encode()
        self._post_head = self._head + b"\r\nContent-Type: application/json\r\nContent-Length: "

    @property
    def _forwarded(self) -> bool:
        return self._proxy is not None and self._address.scheme == "http"

    def post(
        self, path: str, parts: Sequence[bytes], length: int, *, most: int, stream: bool = False
    ) -> Coroutine[None, None, Response]:
        """Post JSON, given as ``parts`` of ``length`` bytes in total, to ``path`` below the address.

        Returns when the answer is complete, or with ``stream`` when it begins. ``most`` limits its bytes.

        Raises:
            TransportFault: no complete answer was received.
        """
        head = (f"POST {self._target}{path}".encode(), self._post_head, b"%d\r\n\r\n" % length)
        return self._call((*head, *parts), most, "head" if stream else "whole")

    async def get(self, path: str, *, most: int) -> Response:
        """Get ``path`` below the address. Raises the errors of :meth:`post`."""
        head = (f"GET {self._target}{path}".encode(), self._head, b"\r\n\r\n")
        return await self._call(head, most, "whole")

    async def close(self) -> None:
        """Close all connections, including those being opened."""
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        for connection in self._all:
            connection.abort()
        self._all.clear()
        self._idle.clear()
        await asyncio.sleep(0)  # The loop closes their sockets now.

    async def _call(self, request: Sequence[bytes], most: int, until: Part) -> Response:
        while self._idle:
            connection = self._idle.pop()
            if not connection.usable:
                continue
            response = connection.send(b"".join(request), most=most)
            try:
                await response.read_until(until)
            except NoAnswer:
                await self.before_again()  # The server closed the idle connection at this moment.
                break
            return response
        connection = await self._open()
        response = connection.send(b"".join(request), most=most)
        await response.read_until(until)
        return response

    async def _open(self) -> Connection:
        async with self._doors:
            connection = await self._connect()
        if self._closed:
            connection.abort()
            raise Dropped
        self._all.add(connection)
        if self._watch is None:
            self._schedule_check()
        return connection

    async def _connect(self) -> Connection:
        target = self._proxy or self._address
        try:
            async with asyncio.timeout(self._limits.connect):
                if self._proxy is None or self._forwarded:
                    return await self._dial(target)
                return await self._tunnel(target)
        except TimeoutError as error:
            raise NoConnection from (error.__cause__ if isinstance(error.__cause__, OSError) else None)
        except OSError as error:
            raise (NoConnection if self._proxy is None else NoWayThroughProxy) from error

    async def _dial(self, target: Address) -> Connection:
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(self._idle.append, self._room),
            target.host,
            target.port,
            ssl=self._get_tls_context() if target.scheme == "https" else None,
        )
        return connection

    async def _tunnel(self, proxy: Address) -> Connection:
        """Open a tunnel through the proxy, with TLS inside it."""
        connection = await self._dial(proxy)
        host = f"[{self._address.host}]" if ":" in self._address.host else self._address.host
        target = f"{host}:{self._address.port}"
        head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n"
        if proxy.credentials:
            head += f"Proxy-Authorization: {proxy.credentials}\r\n"
        try:
            answer = connection.send(f"{head}\r\n".encode(), most=_PROXY_ANSWER, tunnel=True)
            await answer.read_until("whole")
        except (Dropped, NotHttp) as error:
            raise NoWayThroughProxy from error
        if answer.status >= 300:
            words = answer.head.partition(b"\r\n")[0].decode("latin-1").split(" ", 2)
            connection.abort()
            raise ProxyRefused(answer.status, words[2] if len(words) > 2 else "")
        assert connection.transport is not None
        connection.transport = await asyncio.get_running_loop().start_tls(
            connection.transport, connection, self._get_tls_context(), server_hostname=self._address.host
        )
        return connection

    def _get_tls_context(self) -> ssl.SSLContext:
        self._tls = self._tls or ssl.create_default_context()
        return self._tls

    def _check_timeouts(self) -> None:
        """Abort the calls that exceed a timeout: one check of all calls is cheaper than a timer for each."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if (lost := now - self._due) > _LOST:
            # First read what arrived meanwhile: the server did not cause this delay.
            for connection in self._all:
                connection.excuse(lost)
            self._schedule_check()
            return
        for connection in self._all:
            if not connection.busy:
                if now - connection.heard > _SPARE:
                    connection.abort()
            elif now - connection.begun > self._limits.total:
                connection.abort(DeadlinePassed())
            elif now - (connection.heard or connection.begun) > self._limits.silence:
                connection.abort(IdleTimeout())
        self._all = {connection for connection in self._all if connection.usable}
        self._idle[:] = [connection for connection in self._idle if connection.usable]
        if self._all:
            self._schedule_check()
        else:
            self._watch = None

    def _schedule_check(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = loop.time() + self._tick
        self._watch = loop.call_at(self._due, self._check_timeouts)


async def _at_once() -> None:
    """Wait for nothing."""
