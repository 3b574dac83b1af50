"""The response to a request: incremental parsers of HTTP/1.1 and of server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Literal

_LARGEST_HEAD = 1 << 16  # Maximum bytes of the head, and of a line of a chunked body
_ERROR_BYTES = 1 << 16  # Maximum bytes read from the body of an error
_HEX = b"0123456789abcdefABCDEF"
_LONGEST_NUMBER = 16

_CONNECTION = b"\r\nconnection:"
_LENGTH = b"\r\ncontent-length:"
_TRANSFER = b"\r\ntransfer-encoding:"
_ENCODING = b"\r\ncontent-encoding:"


# How much of a response: its head, an unread piece of its body, or all of it.
Part = Literal["head", "piece", "whole"]


class TransportFault(Exception):
    """A call without a complete response."""

    spent: tuple[int, int] = (0, 0)  # Prompt and completion tokens that it is reckoned to have cost
    received = 0  # Bytes of the body that came


class Dropped(TransportFault):
    """The connection was closed before the response was complete. The cause, if known, is ``__cause__``."""


class NoAnswer(Dropped):
    """The connection was closed before the first byte of a response."""


class NotHttp(TransportFault):
    """The response is not valid HTTP."""


class Compressed(TransportFault):
    """The response has an unsolicited encoding; ``args`` contains its name."""


class DeadlinePassed(TransportFault):
    """The call exceeded the total timeout."""


class IdleTimeout(TransportFault):
    """The server was silent for longer than the timeout."""


class TooLarge(TransportFault):
    """The response exceeds the size limit; ``args`` contains the limit and a part of the response."""


class Response:
    """The response to one request. The caller must read the body to its end or close the response.

    The state is kept here and not in the connection, which may serve the next call as soon as the last byte arrives,
    even before the reader has consumed this response. ``most`` limits the bytes of the body; ``drop`` closes the
    connection.
    """

    __slots__ = (
        "_awaited",
        "_drop",
        "_most",
        "_pieces",
        "_waiter",
        "fault",
        "head",
        "received",
        "status",
        "tier",
        "to_the_end",
        "whole",
    )

    def __init__(self, most: int, drop: Callable[[], None]) -> None:
        self._most = most
        self._drop = drop
        self.received = 0  # Bytes of the body so far
        self._pieces: list[bytes] = []
        self._waiter: asyncio.Future[None] | None = None
        self._awaited: Part = "head"
        self.status = 0  # 0 until the head has arrived
        self.head = b""  # Status line and headers
        self.tier = ""  # At which it was served, if it arrived by another way
        self.to_the_end = False  # True if the body ends when the connection is closed
        self.whole = False
        self.fault: TransportFault | None = None

    @classmethod
    def of(cls, status: int, body: bytes, tier: str) -> Response:
        """Return a response that has arrived by another way, which was served at ``tier``."""
        response = cls(len(body), lambda: None)
        response.status, response.received, response.whole, response.tier = status, len(body), True, tier
        response._pieces.append(body)
        return response

    def header(self, name: str) -> str | None:
        """Return the value of the header ``name`` (lower case), several values joined by commas; None if not found."""
        return _find_header(self.head, self.head.lower(), f"\r\n{name}:".encode())

    async def read(self) -> bytes:
        """Return the next piece of the body; empty at its end.

        Raises:
            TransportFault: the connection failed before the end.
        """
        await self.read_until("piece")
        return self.take_body()

    def take_body(self) -> bytes:
        """Return what has arrived of the body since it was read last."""
        body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        return body

    async def read_all(self) -> bytes:
        """Return the rest of the body. Raises the errors of :meth:`read`."""
        await self.read_until("whole")
        return self.take_body()

    async def read_until(self, part: Part) -> None:
        """Wait until ``part`` of the response has arrived. Raises the errors of :meth:`read`."""
        while not self._has(part):
            if self.fault is not None:
                if self.status >= 300:
                    self.whole = True  # A partial body is enough for an error.
                    return
                raise self.fault
            self._awaited = part
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            except asyncio.CancelledError as error:
                error.args = (self,)  # The request was sent, and may be paid for.
                self.close()
                raise
            finally:
                self._waiter = None

    def _has(self, part: Part) -> bool:
        if self.whole:
            return True
        return self.status > 0 if part == "head" else part == "piece" and bool(self._pieces)

    def close(self) -> None:
        """Close the connection unless the body is complete."""
        if not self.whole:
            self._drop()

    def wake(self) -> None:
        """Wake the reader if the part that it waits for has arrived."""
        waiter = self._waiter
        ready = self.fault is not None or self._has(self._awaited)
        if ready and waiter is not None and not waiter.done():
            waiter.set_result(None)

    def take(self, *, tunnel: bool) -> Generator[None, bytes, bool]:
        """Parse the bytes of the response as they arrive, up to its end.

        Returns True if the connection can serve the next call. With ``tunnel``, a successful response has no body.
        Sending empty bytes signals the end of the connection.

        Raises:
            TransportFault: the response is invalid or not acceptable.
        """
        data = yield from self._take_head()
        lower = self.head.lower()
        keep = lower.startswith(b"http/1.1") and "close" not in (
            _find_header(lower, lower, _CONNECTION) or ""
        )
        length = _find_header(lower, lower, _LENGTH)
        transfer = _find_header(lower, lower, _TRANSFER)
        encoding = _find_header(lower, lower, _ENCODING)
        if self.status >= 300:
            self._most = _ERROR_BYTES
        if self.status in (204, 304) or (tunnel and self.status < 300):
            pass
        elif encoding not in (None, "", "identity"):
            raise Compressed(encoding)
        elif transfer is not None:
            if transfer != "chunked":
                raise NotHttp(f"its Transfer-Encoding is {transfer[:40]!r}")
            data = yield from self._take_chunks(data)
            keep = keep and length is None
        elif length is None:
            self.to_the_end = True
            data = data or (yield)
            while data:
                self._add(data)
                data = yield
            keep = False
        elif len(length) <= _LONGEST_NUMBER and length.isascii() and length.isdigit():
            left = int(length)
            while left:
                data = data or (yield)
                piece = data[:left]
                self._add(piece)
                left -= len(piece)
                data = data[len(piece) :]
        else:
            raise NotHttp(f"its Content-Length is {length[:40]!r}")
        self.whole = True
        return keep and not data  # After unsolicited bytes, more may follow.

    def _take_head(self) -> Generator[None, bytes, bytes]:
        """Parse the head; return the bytes after it."""
        data = yield
        while True:
            while (end := data.find(b"\r\n\r\n")) < 0:
                if len(data) > _LARGEST_HEAD or data[:5] != b"HTTP/"[: len(data)]:
                    raise NotHttp("its answer does not begin with a status line and headers")
                data += yield
            head, data = data[:end], data[end + 4 :]
            status = _parse_status(head)
            if status is None or len(head) > _LARGEST_HEAD:
                raise NotHttp("its answer does not begin with a status line and headers")
            if status >= 200:
                self.status, self.head = status, head
                return data
            data = data or (yield)

    def _take_chunks(self, data: bytes) -> Generator[None, bytes, bytes]:
        """Parse a chunked body; return the bytes after the last chunk and the trailers."""
        at = 0
        while True:
            line, data, at = yield from _read_line(data, at)
            if not (left := _parse_chunk_size(line)):
                break
            while left:
                if at == len(data):
                    data, at = (yield), 0
                piece = data[at : at + left]
                self._add(piece)
                left -= len(piece)
                at += len(piece)
            line, data, at = yield from _read_line(data, at)
            if line:
                raise NotHttp("a chunk of its answer is longer than its declared length")
        while line:
            line, data, at = yield from _read_line(data, at)
        return data[at:]

    def _add(self, piece: bytes) -> None:
        self.received += len(piece)
        if self.received > self._most:
            raise TooLarge(self._most, piece[:2048])
        self._pieces.append(piece)


def _read_line(data: bytes, at: int) -> Generator[None, bytes, tuple[bytes, bytes, int]]:
    """Return the line of ``data`` that begins at ``at``, the data, and the start of the next line."""
    while (end := data.find(b"\r\n", at)) < 0:
        if len(data) - at > _LARGEST_HEAD:
            raise NotHttp("a chunk of its answer has no length")
        data, at = data[at:] + (yield), 0
    return data[at:end], data, end + 2


def _parse_chunk_size(line: bytes) -> int:
    size = line.partition(b";")[0].strip()
    if not size or len(size) > _LONGEST_NUMBER or size.strip(_HEX):
        raise NotHttp("a chunk of its answer has no length")
    return int(size, 16)


def _find_header(head: bytes, lower: bytes, begin: bytes) -> str | None:
    """Return the values of the headers that start with ``begin``; ``lower`` is ``head`` in lower case."""
    values: list[str] = []
    end = 0
    while (start := lower.find(begin, end)) >= 0:
        start += len(begin)
        end = lower.find(b"\r\n", start)
        end = end if end >= 0 else len(head)
        values.append(head[start:end].decode("latin-1").strip())
    return ", ".join(values) if values else None


def _parse_status(head: bytes) -> int | None:
    """Return the status of a head; None if the status line is invalid."""
    line = head.partition(b"\r\n")[0]
    version, _, rest = line.partition(b" ")
    code = rest[:3]
    return int(code) if version in (b"HTTP/1.1", b"HTTP/1.0") and len(code) == 3 and code.isdigit() else None


# A parser for server-sent events.


class EventReader:
    """Splits a stream of bytes into the data of its events.

    Works on bytes, so that a character split over two chunks is complete before decoding. Comments, event names and ids
    are ignored. Lines may end in LF or CRLF.
    """

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # Of a line that has not ended; joined once, since it may be endless
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add the next chunk; return the data of the events that it completes."""
        self._rest.append(chunk)
        if b"\n" not in chunk:
            return []
        *lines, rest = b"".join(self._rest).split(b"\n")
        self._rest = [rest]
        complete: list[bytes] = []
        for raw_line in lines:
            line = raw_line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line:
                data, self._data = b"\n".join(self._data), []
                complete += [data] if data else []
        return complete

    def end(self) -> list[bytes]:
        """Return the data of an event that the end of the stream completes."""
        return self.feed(b"\n\n")
