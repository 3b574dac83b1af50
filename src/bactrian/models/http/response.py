"""The answer to one request: HTTP/1.1, read from its bytes however they are cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Literal

_LARGEST_HEAD = 1 << 16
"""Also the longest line of a chunked body."""
_ERROR_BYTES = 1 << 16
"""Of the body of an error, more is not read: its status alone says most."""
_HEX = b"0123456789abcdefABCDEF"
_LONGEST_NUMBER = 16

_CONNECTION = b"\r\nconnection:"
_LENGTH = b"\r\ncontent-length:"
_TRANSFER = b"\r\ntransfer-encoding:"
_ENCODING = b"\r\ncontent-encoding:"


Part = Literal["head", "piece", "whole"]
"""How much of an answer: its head, a piece of its body that was not read yet, or all of it."""


class TransportFault(Exception):
    """A call that got no whole answer."""

    spent: tuple[int, int] = (0, 0)
    """Prompt and completion tokens that it is reckoned to have cost."""
    received = 0
    """Bytes of the body that came."""


class Dropped(TransportFault):
    """The connection was closed before the answer was whole. Its cause, if there is one, is ``__cause__``."""


class NoAnswer(Dropped):
    """The connection was closed before anything of an answer came."""


class NotHttp(TransportFault):
    """What came is no HTTP."""


class Compressed(TransportFault):
    """The answer is in an encoding that was not asked for; ``args`` holds its name."""


class DeadlinePassed(TransportFault):
    """The call has taken longer than it may."""


class IdleTimeout(TransportFault):
    """The server has said nothing for longer than it may."""


class TooLarge(TransportFault):
    """The answer is larger than it may be; ``args`` holds the limit and a part of the answer."""


class Response:
    """The answer to one request. Its body is read to its end, or the response is closed.

    What is known of the answer is here and not with the connection: that serves the next call as soon as the last
    byte of this one is there, which may be before this one's reader has looked. ``most`` is how many bytes the
    body may have, and ``drop`` gives the connection up.
    """

    __slots__ = (
        "_drop",
        "_most",
        "_pieces",
        "_waiter",
        "_wanted",
        "fault",
        "head",
        "received",
        "status",
        "to_the_end",
        "whole",
    )

    def __init__(self, most: int, drop: Callable[[], None]) -> None:
        self._most = most
        self._drop = drop
        self.received = 0
        """Bytes of the body so far."""
        self._pieces: list[bytes] = []
        self._waiter: asyncio.Future[None] | None = None
        self._wanted: Part = "head"
        self.status = 0
        """0 until the head is there."""
        self.head = b""
        """Status line and headers."""
        self.to_the_end = False
        """True once it is known that the body ends with the connection."""
        self.whole = False
        self.fault: TransportFault | None = None

    def header(self, name: str) -> str | None:
        """The value of this header (name in small letters), or the values, with commas; None if there is none."""
        return _header(self.head, self.head.lower(), f"\r\n{name}:".encode())

    async def read(self) -> bytes:
        """The next piece of the body; empty at its end.

        Raises:
            TransportFault: the connection failed before the end.
        """
        await self.read_until("piece")
        return self._given_out()

    def _given_out(self) -> bytes:
        body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        return body

    async def read_all(self) -> bytes:
        """What is left of the body. Raises what :meth:`read` raises."""
        await self.read_until("whole")
        return self._given_out()

    async def read_until(self, part: Part) -> None:
        """Wait until this much of the answer is there. Raises what :meth:`read` raises."""
        while not self._has(part):
            if self.fault is not None:
                if self.status >= 300:
                    self.whole = True  # What there is of an error's body has to do.
                    return
                raise self.fault
            self._wanted = part
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            except asyncio.CancelledError:
                self.close()
                raise
            finally:
                self._waiter = None

    def _has(self, part: Part) -> bool:
        if self.whole:
            return True
        return self.status > 0 if part == "head" else part == "piece" and bool(self._pieces)

    def close(self) -> None:
        """Give the connection up, if the body has not come to its end."""
        if not self.whole:
            self._drop()

    def wake(self) -> None:
        """Tell the reader to look again, if there is what it waits for."""
        waiter = self._waiter
        ready = self.fault is not None or self._has(self._wanted)
        if ready and waiter is not None and not waiter.done():
            waiter.set_result(None)

    def take(self, *, tunnel: bool) -> Generator[None, bytes, bool]:
        """Takes the bytes of the answer as they come, up to its end.

        Returns whether the connection can serve the next call. After ``tunnel``, a good answer has no body.
        A body that ends with the connection is ended by sending nothing.

        Raises:
            TransportFault: this is no answer, or not one to be taken.
        """
        data = yield from self._take_head()
        lower = self.head.lower()
        keep = lower.startswith(b"http/1.1") and "close" not in (_header(lower, lower, _CONNECTION) or "")
        length = _header(lower, lower, _LENGTH)
        transfer = _header(lower, lower, _TRANSFER)
        encoding = _header(lower, lower, _ENCODING)
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
        return keep and not data  # Where something came that nobody asked for, more may follow.

    def _take_head(self) -> Generator[None, bytes, bytes]:
        """Returns what came after the head."""
        data = yield
        while True:
            while (end := data.find(b"\r\n\r\n")) < 0:
                if len(data) > _LARGEST_HEAD or data[:5] != b"HTTP/"[: len(data)]:
                    raise NotHttp("its answer does not begin with a status line and headers")
                data += yield
            head, data = data[:end], data[end + 4 :]
            status = _status(head)
            if status is None or len(head) > _LARGEST_HEAD:
                raise NotHttp("its answer does not begin with a status line and headers")
            if status >= 200:
                self.status, self.head = status, head
                return data
            data = data or (yield)

    def _take_chunks(self, data: bytes) -> Generator[None, bytes, bytes]:
        """Returns what came after the last chunk and the trailers."""
        at = 0
        while True:
            line, data, at = yield from _line(data, at)
            if not (left := _chunk_size(line)):
                break
            while left:
                if at == len(data):
                    data, at = (yield), 0
                piece = data[at : at + left]
                self._add(piece)
                left -= len(piece)
                at += len(piece)
            line, data, at = yield from _line(data, at)
            if line:
                raise NotHttp("a chunk of its answer is longer than it says")
        while line:
            line, data, at = yield from _line(data, at)
        return data[at:]

    def _add(self, piece: bytes) -> None:
        self.received += len(piece)
        if self.received > self._most:
            raise TooLarge(self._most, piece[:2048])
        self._pieces.append(piece)


def _line(data: bytes, at: int) -> Generator[None, bytes, tuple[bytes, bytes, int]]:
    """Returns the line of ``data`` that begins at ``at``, the data, and where the next line begins."""
    while (end := data.find(b"\r\n", at)) < 0:
        if len(data) - at > _LARGEST_HEAD:
            raise NotHttp("a chunk of its answer has no length")
        data, at = data[at:] + (yield), 0
    return data[at:end], data, end + 2


def _chunk_size(line: bytes) -> int:
    size = line.partition(b";")[0].strip()
    if not size or len(size) > _LONGEST_NUMBER or size.strip(_HEX):
        raise NotHttp("a chunk of its answer has no length")
    return int(size, 16)


def _header(head: bytes, lower: bytes, begin: bytes) -> str | None:
    """The values of the headers that begin so; ``lower`` is the head in small letters."""
    values: list[str] = []
    end = 0
    while (start := lower.find(begin, end)) >= 0:
        start += len(begin)
        end = lower.find(b"\r\n", start)
        end = end if end >= 0 else len(head)
        values.append(head[start:end].decode("latin-1").strip())
    return ", ".join(values) if values else None


def _status(head: bytes) -> int | None:
    """The status of a head; None if it is none."""
    line = head.partition(b"\r\n")[0]
    version, _, rest = line.partition(b" ")
    code = rest[:3]
    return int(code) if version in (b"HTTP/1.1", b"HTTP/1.0") and len(code) == 3 and code.isdigit() else None
