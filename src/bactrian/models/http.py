"""The HTTP client: a pool of connections to one endpoint, which it opens, reuses and supervises.

It sends one JSON request at a time on a connection and reads one answer, with a tenth of a millisecond of CPU
(docs/performance.md). Only ``models`` imports it, and it leaves out what only general clients need. It never

- follows a redirect: prompts and keys go where the user sent them,
- repeats a request by itself, except on a reused connection that the server closed before any byte of the answer,
- turns off the verification of certificates, or uses another trust store than OpenSSL's (``SSL_CERT_FILE``),
- sends a request for this computer through a proxy,
- asks for compressed replies, or decompresses one,
- reads more of a reply than the limit, or waits longer than the time-out,
- keeps cookies, reads ``.netrc``, or uses HTTP/2, pipelining or WebSockets,
- logs or prints anything.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import cast
from urllib.parse import SplitResult, quote, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from bactrian.errors import InputError
from bactrian.models import http_response

# An HTTP/1.1 connection: sends requests, receives responses.
#
# Every paid call uses it, so it is our own code: it does only what a chat-completions client needs, at about
# a third of the cost of a general client. The pool enforces the timeouts
# of all calls, because a timer per call would cost as much as parsing its reply.


class Connection(asyncio.BufferedProtocol):
    """A connection that serves one call after another; it calls ``idle`` when it is ready for the next one.

    Bytes are received into ``room``, a buffer that the connections of one event loop share: by default, asyncio
    allocates 256 KB each time, which costs ten times as much as receiving.
    """

    __slots__ = ("_idle", "_response", "_room", "_taker", "_tunnel", "begun", "last_received", "transport")

    def __init__(self, idle: Callable[[Connection], None], room: memoryview) -> None:
        self._room = room
        self._idle = idle
        self._response: http_response.Response | None = None
        self._taker: Generator[None, bytes, bool] | None = None
        self._tunnel = False
        self.transport: asyncio.Transport | None = None
        self.begun = 0.0  # Start of the last call, by the loop's clock
        self.last_received = 0.0  # Time of the last received bytes of its answer; 0 before the first

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's class does not inherit from it.

    @property
    def usable(self) -> bool:
        """True while the connection is open."""
        return self.transport is not None and not self.transport.is_closing()

    @property
    def busy(self) -> bool:
        """True until the answer is complete."""
        return self._response is not None

    def send(self, request: bytes, *, most: int, tunnel: bool = False) -> http_response.Response:
        """Send ``request`` and return its response, which is still empty.

        ``most`` limits the bytes of the body. With ``tunnel``, a successful answer has no body.
        """
        assert self.transport is not None
        response = self._response = http_response.Response(most, self.abort)
        self._taker = response.take(tunnel=tunnel)
        self._tunnel = tunnel
        next(self._taker)
        self.begun = asyncio.get_running_loop().time()
        self.last_received = 0.0
        self.transport.write(request)
        return response

    def excuse(self, seconds: float) -> None:
        """Exclude so many seconds from the timeouts, because this process did not run."""
        self.begun += seconds
        self.last_received = self.last_received and self.last_received + seconds

    def abort(self, fault: http_response.TransportFault | None = None) -> None:
        """Close the connection; a pending response fails with ``fault``."""
        self._fail(fault or http_response.Dropped())
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if exc is None and self._response is not None and self._response.to_the_end:
            self._take(b"")
        fault = http_response.Dropped() if self.last_received else http_response.NoAnswer()
        fault.__cause__ = exc
        self._fail(fault)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (asyncio's word for it)
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        self.last_received = asyncio.get_running_loop().time()
        self._take(bytes(self._room[:nbytes]))

    def _take(self, data: bytes) -> None:
        response = self._response
        if response is None or self._taker is None:
            self.abort()  # Unsolicited bytes.
            return
        try:
            self._taker.send(data)
        except StopIteration as end:
            self._response = self._taker = None
            self._end(keep=end.value)
        except http_response.TransportFault as fault:
            self.abort(fault)
        response.wake()

    def _end(self, *, keep: bool) -> None:
        if self._tunnel:
            return  # A tunnel: the connection is not idle, TLS follows inside it.
        if keep and self.usable:
            self._idle(self)
        elif self.transport is not None:
            self.transport.close()

    def _fail(self, fault: http_response.TransportFault) -> None:
        response = self._response
        self._response = self._taker = None
        if response is not None:
            fault.received = response.received
            response.fault = fault
            response.wake()


# Time and size limits of requests to an endpoint.


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Limits of a request; times are in seconds."""

    connect: float = 5.0  # Maximum time for opening a connection: name lookup, TCP and TLS together
    # Maximum wait for the first byte of a reply, and between two bytes. An unstreamed reply arrives when it
    # is complete, so this is also the maximum time for generating it.
    silence: float = 300.0
    total: float = 600.0  # Maximum time for one request
    # A larger reply is aborted. A stream may have sixteen times as many bytes, because its framing is much
    # larger than its text.
    max_reply_bytes: int = 1 << 20
    # The model's context window in tokens, if known: requests that do not fit are not sent.
    window: int | None = None


# HTTP addresses and proxies.


_PORTS = {"http": 80, "https": 443}
# A host name or an IP address, without characters that could end a header or a line.
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?")


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed HTTP address."""

    scheme: str
    host: str  # Host name or IP address, without brackets
    port: int
    path: str  # Without a trailing slash
    credentials: str = ""  # `Basic` credentials for a header; empty if not given

    @property
    def origin(self) -> str:
        """Host, with the port unless it is the scheme's default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.origin}{self.path}"


def read_address(url: str) -> Address:
    """Parse ``url``.

    Raises:
        InputError: ``url`` is not the address of a web server.
    """
    try:
        parts = urlsplit(url.strip())
        host = (parts.hostname or "").encode("ascii" if ":" in (parts.hostname or "") else "idna").decode()
        usual = _PORTS[parts.scheme]
        port = parts.port or usual
    except (ValueError, KeyError):
        host, port, parts = "", 0, SplitResult("", "", "", "", "")
    if not _HOST.fullmatch(host) or any(character.isspace() for character in parts.path):
        raise InputError(
            "This base URL is not the address of an endpoint.",
            where=hide_credentials(url),
            next="Use an address like http://127.0.0.1:8000/v1.",
        ) from None
    if parts.query or parts.fragment:
        raise InputError(
            "This base URL has a part behind ? or #, which would not be sent.",
            where=hide_credentials(url),
            next="Leave that part out; a key belongs into the provider's environment variable.",
        )
    path = quote(parts.path.rstrip("/"), safe="/%:@!$&'()*+,;=~-._")
    credentials = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        credentials = f"Basic {b64encode(pair.encode()).decode()}"
    return Address(parts.scheme, host, port, path, credentials)


def split_addresses(urls: str) -> list[str]:
    """Return the addresses in a text that has one, or several with commas between them."""
    return re.split(r"\s*,\s*(?=https?://)", urls.strip())


def write_addresses(urls: str) -> str:
    """Return addresses in one way of writing, without users and passwords.

    Raises:
        InputError: one of them is not the address of a web server.
    """
    return ",".join(str(read_address(url)) for url in split_addresses(urls))


def hide_credentials(url: str, instead: str = "…@") -> str:
    """Return ``url``, which need not be one, with ``instead`` of user name and password, without query and fragment."""
    plain = re.sub(r"^([^/@]*//)?.*@", rf"\1{instead}", url, count=1, flags=re.DOTALL)
    return re.split(r"[?#]", plain, maxsplit=1)[0]


def is_loopback(host: str) -> bool:
    """Return True if ``host`` is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def find_proxy(address: Address) -> Address | None:
    """Return the proxy that the environment sets for ``address``; always None for this machine.

    Raises:
        InputError: the value is not the address of an HTTP proxy.
    """
    if is_loopback(address.host) or proxy_bypass(address.host):
        return None
    proxies = getproxies()
    url = proxies.get(address.scheme) or proxies.get("all")
    if not url:
        return None
    try:
        return read_address(url if "://" in url else f"http://{url}")
    except InputError:
        raise InputError(  # Without the URL, which may contain a password.
            "The proxy in the environment is not the address of an HTTP proxy.",
            where=f"{address.scheme}_proxy or all_proxy",
            next=f"Use an address like http://proxy:3128, or put {address.host} into no_proxy.",
        ) from None


_PROXY_ANSWER = 1 << 16
_ROOM = 1 << 16  # Maximum bytes received in one step
# Maximum connections being opened at once: a thousand would exceed their own timeout on handshakes and name
# lookups, and overflow a server's queue.
_DOORS = 128
_LOST = 1.0  # Seconds by which a check is late from which the process counts as stopped, or blocked
_SPARE = 60.0  # Seconds that an idle connection is kept: networks drop connections that are idle for minutes


class NoConnection(http_response.TransportFault):
    """The connection could not be established. The cause is ``__cause__``; None after a timeout."""


class NoWayThroughProxy(NoConnection):
    """The proxy could not be reached."""


class ProxyRefused(http_response.TransportFault):
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
        # Awaited before a request is sent once more.
        self.before_again: Callable[[], Awaitable[object]] = _at_once
        self._watch: asyncio.TimerHandle | None = None
        self._tls: ssl.SSLContext | None = None
        self._due = 0.0  # Time of the next check
        self._tick = min(1.0, limits.total / 5, limits.silence / 5)
        # A proxy for plain HTTP needs absolute addresses; a tunnel does not.
        self._target = str(address) if self._forwarded else address.path
        lines = [f" HTTP/1.1\r\nHost: {address.origin}", "User-Agent: bactrian", "Accept-Encoding: identity"]
        if header:
            lines.append(header)
        if not keep:
            lines.append("Connection: close")
        if self._forwarded and self._proxy and self._proxy.credentials:
            lines.append(f"Proxy-Authorization: {self._proxy.credentials}")
        self._head = "\r\n".join(lines).encode()
        self._post_head = self._head + b"\r\nContent-Type: "

    @property
    def _forwarded(self) -> bool:
        return self._proxy is not None and self._address.scheme == "http"

    def post(
        self,
        path: str,
        parts: Sequence[bytes],
        length: int,
        *,
        most: int,
        stream: bool = False,
        content: bytes = b"application/json",
        header: bytes = b"",
    ) -> Coroutine[None, None, http_response.Response]:
        """Post ``content``, given as ``parts`` of ``length`` bytes in total, to ``path`` below the address.

        Returns when the answer is complete, or with ``stream`` when it begins. ``most`` limits its bytes. ``header`` is
        a line of this request alone, with its end.

        Raises:
            TransportFault: no complete answer was received.
        """
        kind = b"%b\r\nContent-Length: %d\r\n%b\r\n" % (content, length, header)
        head = (f"POST {self._target}{path}".encode(), self._post_head, kind)
        return self._call((*head, *parts), most, "head" if stream else "whole")

    async def get(self, path: str, *, most: int) -> http_response.Response:
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

    async def _call(
        self, request: Sequence[bytes], most: int, until: http_response.Part
    ) -> http_response.Response:
        while self._idle:
            connection = self._idle.pop()
            if not connection.usable:
                continue
            response = connection.send(b"".join(request), most=most)
            try:
                await response.read_until(until)
            except http_response.NoAnswer:
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
            raise http_response.Dropped
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
        except (http_response.Dropped, http_response.NotHttp) as error:
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
        now = asyncio.get_running_loop().time()
        if (lost := now - self._due) > _LOST:
            # First read what arrived meanwhile: the server did not cause this delay.
            for connection in self._all:
                connection.excuse(lost)
            self._schedule_check()
            return
        for connection in self._all:
            if not connection.busy:
                if now - connection.last_received > _SPARE:
                    connection.abort()
            elif now - connection.begun > self._limits.total:
                connection.abort(http_response.DeadlinePassed())
            elif now - (connection.last_received or connection.begun) > self._limits.silence:
                connection.abort(http_response.IdleTimeout())
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
