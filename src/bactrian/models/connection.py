"""One HTTP/1.1 connection: bytes out, a response in.

The path of every paid call, and so our own: it does what a chat-completions client needs and nothing else, at
about a third of the cost of a general client. The limits of a call are kept by whoever watches the connections
(:mod:`bactrian.models.pool`), because a timer for each call would cost as much as parsing its reply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import cast

_LARGEST_HEAD = 1 << 16
_ERROR_BYTES = 1 << 16
"""Of the body of an error, more is not read: its status alone says most."""


class TransportFault(Exception):
    """A call that got no whole answer."""


class Dropped(TransportFault):
    """The connection was closed before the answer was whole. Its cause, if there is one, is ``__cause__``."""


class NotHttp(TransportFault):
    """What came is no HTTP."""


class Overdue(TransportFault):
    """The call has taken longer than it may."""


class Silent(TransportFault):
    """The server has said nothing for longer than it may."""


class TooLarge(TransportFault):
    """The answer is larger than it may be; ``args`` holds the limit and the beginning of the answer."""


class _Body(Enum):
    HEAD = "the head is not whole yet"
    COUNTED = "as long as Content-Length says"
    CHUNKED = "in chunks"
    TO_THE_END = "until the connection is closed"
    WHOLE = "whole"


class Response:
    """The answer to one request. Its body is read to its end, or the response is closed.

    What is known of the answer is here and not with the connection: that serves the next call as soon as the last
    byte of this one is there, which may be before this one's reader has looked.
    """

    __slots__ = ("_connection", "_waiter", "fault", "head", "pieces", "status", "whole")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiter: asyncio.Future[None] | None = None
        self.status = 0
        """0 until the head is there."""
        self.head = b""
        """Status line and headers."""
        self.pieces: list[bytes] = []
        """Of the body, what has come and was not read."""
        self.whole = False
        self.fault: TransportFault | None = None

    def header(self, name: str) -> str | None:
        """The value of the first header of this name, in small letters; None if there is none."""
        return _header(self.head, self.head.lower(), name)

    async def read(self) -> bytes:
        """The next piece of the body; empty at its end.

        Raises:
            TransportFault: the connection failed before the end.
        """
        while not self.pieces and not self.whole:
            await self.wait()
        body = self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)
        self.pieces.clear()
        return body

    async def read_all(self) -> bytes:
        """What is left of the body. Raises what :meth:`read` raises."""
        while not self.whole:
            await self.wait()
        return await self.read()

    def close(self) -> None:
        """Give the connection up, if the body has not come to its end."""
        if not self.whole:
            self._connection.abort()

    async def wait(self) -> None:
        """Wait for more. Raises TransportFault if no more will come."""
        if self.fault is not None:
            if self.status >= 300:
                self.whole = True  # What there is of an error's body has to do.
                return
            raise self.fault
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._waiter = None

    def wake(self) -> None:
        """Tell the reader to look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Connection(asyncio.Protocol):
    """A connection that serves one call after another. ``idle`` is told each time it is ready for the next."""

    __slots__ = (
        "_chunk",
        "_idle",
        "_keep",
        "_left",
        "_most",
        "_received",
        "_response",
        "_rest",
        "_state",
        "_tunnel",
        "_whole",
        "begun",
        "broken",
        "heard",
        "silence",
        "transport",
    )

    def __init__(self, idle: Callable[[Connection], None]) -> None:
        self._idle = idle
        self.transport: asyncio.Transport | None = None
        self.broken = False
        self._state = _Body.WHOLE
        self._response: Response | None = None
        self._rest = b""
        self._keep = False
        self.begun = self.heard = 0.0
        """When the call began, and when something of its answer last came, by the loop's clock."""
        self.silence = float("inf")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name.

    @property
    def usable(self) -> bool:
        """True while a call can be made."""
        return not self.broken and self.transport is not None and not self.transport.is_closing()

    async def call(
        self,
        request: bytes,
        now: float,
        *,
        most: int,
        whole: bool,
        silence: float = float("inf"),
        tunnel: bool = False,
    ) -> Response:
        """Send ``request``. Returns when the answer is whole, or with ``whole`` false when its head is there.

        ``most`` is how many bytes its body may have; after ``tunnel``, a good answer has none.

        Raises:
            TransportFault: no whole answer came.
        """
        assert self.transport is not None
        response = self._response = Response(self)
        self._state = _Body.HEAD
        self._rest = b""
        self._received = 0
        self._most = most
        self._whole = whole
        self._tunnel = tunnel
        self.begun = self.heard = now
        self.silence = silence
        self.transport.write(request)
        del request  # It holds the whole conversation, and the wait is long.
        while not response.status or (whole and not response.whole):
            await response.wait()
        return response

    def abort(self, fault: TransportFault | None = None) -> None:
        """Close the connection; whoever waits on it is told ``fault``."""
        self._break(fault or Dropped())
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._state is _Body.TO_THE_END and exc is None and not self.broken:
            self._keep = False
            self._finish()
            if self._response is not None:
                self._response.wake()
            return
        fault = Dropped()
        fault.__cause__ = exc
        self._break(fault)

    def data_received(self, data: bytes) -> None:
        if self._state is _Body.WHOLE or self._response is None:
            self.abort()  # Nobody asked for anything.
            return
        response = self._response
        if self._state is _Body.HEAD:
            data = self._take_head(data, response)
        if data and response.status and not response.whole:
            if self._state is _Body.CHUNKED:
                self._take_chunks(data, response)
            else:
                self._take(data, response)
        if not self._whole or response.whole or response.fault:
            response.wake()

    def _break(self, fault: TransportFault) -> None:
        self.broken = True
        response = self._response
        if response is not None and not response.whole and response.fault is None:
            response.fault = fault
            response.wake()

    def _take_head(self, data: bytes, response: Response) -> bytes:
        """Read the head as soon as it is whole. Gives what comes after it."""
        data = self._rest + data
        self._rest = b""
        while (end := data.find(b"\r\n\r\n")) >= 0:
            head, data = data[:end], data[end + 4 :]
            status = _status(head)
            if status is None or len(head) > _LARGEST_HEAD:
                break
            if status >= 200:
                response.status, response.head = status, head
                self._begin_body(status, head.lower())
                return data
        else:
            if len(data) <= _LARGEST_HEAD and data[:5] == b"HTTP/"[: len(data)]:
                self._rest = data
                return b""
        self.abort(NotHttp("its answer does not begin with a status line and headers"))
        return b""

    def _begin_body(self, status: int, head: bytes) -> None:
        self._keep = b"\r\nconnection: close" not in head and head.startswith(b"http/1.1")
        length = _header(head, head, "content-length")
        if status in (204, 304) or (self._tunnel and status < 300):
            self._finish()
        elif "chunked" in (_header(head, head, "transfer-encoding") or ""):
            self._state = _Body.CHUNKED
            self._chunk = -1
        elif length is None:
            self._state = _Body.TO_THE_END
            self._left = -1
        elif not length.isascii() or not length.isdigit():
            self.abort(NotHttp(f"its Content-Length is {length[:40]!r}"))
        else:
            self._state = _Body.COUNTED
            self._left = int(length)
            if not self._left:
                self._finish()

    def _take(self, data: bytes, response: Response) -> None:
        """Take a piece of a body that is counted or runs to the end."""
        if self._state is _Body.COUNTED:
            if len(data) > self._left:
                self._keep = False  # Nobody asked for more: such a connection is not used again.
                data = data[: self._left]
            self._left -= len(data)
        self._add(data, response)
        if self._left == 0 and not response.whole and response.fault is None:
            self._finish()

    def _take_chunks(self, data: bytes, response: Response) -> None:
        """Take what may be half a chunk, or several."""
        data = self._rest + data
        self._rest = b""
        position = 0
        while not response.whole and response.fault is None:
            if self._chunk > 0:
                piece = data[position : position + self._chunk]
                if not piece:
                    break
                self._chunk -= len(piece)
                position += len(piece)
                self._add(piece, response)
                continue
            end = data.find(b"\r\n", position)
            if end < 0:
                if len(data) - position > _LARGEST_HEAD:
                    self.abort(NotHttp("a chunk of its answer has no length"))
                self._rest = data[position:]
                break
            line = data[position:end]
            position = end + 2
            if self._chunk == 0 and not line:
                self._chunk = -1  # The line end after a chunk.
            elif self._chunk == -2:  # Trailers, up to an empty line.
                if not line:
                    self._keep = self._keep and position == len(data)
                    self._finish()
            else:
                self._begin_chunk(line)

    def _begin_chunk(self, line: bytes) -> None:
        size = line.partition(b";")[0].strip()
        try:
            if self._chunk == 0 or not size.isalnum():
                raise ValueError
            length = int(size, 16)
        except ValueError:
            self.abort(NotHttp("a chunk of its answer has no length"))
            return
        self._chunk = length or -2

    def _add(self, piece: bytes, response: Response) -> None:
        self.heard = asyncio.get_running_loop().time()
        self._received += len(piece)
        response.pieces.append(piece)
        if response.status >= 300 and self._received > _ERROR_BYTES:
            self._keep = False
            self._finish()
        elif self._received > self._most:
            self.abort(TooLarge(self._most, piece[:2048]))

    def _finish(self) -> None:
        self._state = _Body.WHOLE
        if self._response is not None:
            self._response.whole = True
        if self._tunnel:
            return  # Not for the next call, but for what is to be inside it.
        if self._keep and self.transport is not None and not self.transport.is_closing():
            self._idle(self)
        elif self.transport is not None:
            self.transport.close()


def _header(head: bytes, lower: bytes, name: str) -> str | None:
    """The value of the first header of this name; ``lower`` is the head in small letters."""
    start = lower.find(f"\r\n{name}:".encode())
    if start < 0:
        return None
    start += len(name) + 3
    end = lower.find(b"\r\n", start)
    return head[start : end if end >= 0 else None].decode("latin-1").strip()


def _status(head: bytes) -> int | None:
    """The status of a head; None if it is none."""
    line = head.partition(b"\r\n")[0]
    version, _, rest = line.partition(b" ")
    code = rest[:3]
    return int(code) if version in (b"HTTP/1.1", b"HTTP/1.0") and len(code) == 3 and code.isdigit() else None
