"""An HTTP/1.1 connection: sends requests, receives responses.

Every paid call uses it, so it is our own code: it does only what a chat-completions client needs, at about a third of
the cost of a general client. The pool (:mod:`bactrian.models.http.pool`) enforces the timeouts of all calls, because a
timer per call would cost as much as parsing its reply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import cast

from bactrian.models.http.response import Dropped, NoAnswer, Response, TransportFault


class Connection(asyncio.BufferedProtocol):
    """A connection that serves one call after another; it calls ``idle`` when it is ready for the next one.

    Bytes are received into ``room``, a buffer that the connections of one event loop share: by default, asyncio
    allocates 256 KB each time, which costs ten times as much as receiving.
    """

    __slots__ = ("_idle", "_response", "_room", "_taker", "_tunnel", "begun", "heard", "transport")

    def __init__(self, idle: Callable[[Connection], None], room: memoryview) -> None:
        self._room = room
        self._idle = idle
        self._response: Response | None = None
        self._taker: Generator[None, bytes, bool] | None = None
        self._tunnel = False
        self.transport: asyncio.Transport | None = None
        self.begun = 0.0
        """Start of the last call, by the loop's clock."""
        self.heard = 0.0
        """Time of the last received bytes of its answer; 0 before the first."""

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

    def send(self, request: bytes, *, most: int, tunnel: bool = False) -> Response:
        """Send ``request`` and return its response, which is still empty.

        ``most`` limits the bytes of the body. With ``tunnel``, a successful answer has no body.
        """
        assert self.transport is not None
        response = self._response = Response(most, self.abort)
        self._taker = response.take(tunnel=tunnel)
        self._tunnel = tunnel
        next(self._taker)
        self.begun = asyncio.get_running_loop().time()
        self.heard = 0.0
        self.transport.write(request)
        return response

    def excuse(self, seconds: float) -> None:
        """Exclude so many seconds from the timeouts, because this process did not run."""
        self.begun += seconds
        self.heard = self.heard and self.heard + seconds

    def abort(self, fault: TransportFault | None = None) -> None:
        """Close the connection; a pending response fails with ``fault``."""
        self._fail(fault or Dropped())
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if exc is None and self._response is not None and self._response.to_the_end:
            self._take(b"")
        fault = Dropped() if self.heard else NoAnswer()
        fault.__cause__ = exc
        self._fail(fault)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (asyncio's word for it)
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        self.heard = asyncio.get_running_loop().time()
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
        except TransportFault as fault:
            self.abort(fault)
        response.wake()

    def _end(self, *, keep: bool) -> None:
        if self._tunnel:
            return  # A tunnel: the connection is not idle, TLS follows inside it.
        if keep and self.usable:
            self._idle(self)
        elif self.transport is not None:
            self.transport.close()

    def _fail(self, fault: TransportFault) -> None:
        response = self._response
        self._response = self._taker = None
        if response is not None:
            fault.received = response.received
            response.fault = fault
            response.wake()
