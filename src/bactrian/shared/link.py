"""Messages between the process of a command and those that play for it."""

from __future__ import annotations

import asyncio
import pickle
import struct
from collections.abc import Callable
from typing import Any, cast

Message = tuple[Any, ...]
"""Its kind, then what belongs to it."""

_HEAD = struct.Struct(">Q")


class Link(asyncio.Protocol):
    """One end of a socket between two processes of a command. Messages of one turn of the event loop travel together.

    Both ends are this program, so that messages may be any objects: no other process can write to the socket.
    """

    def __init__(self, take: Callable[[Message], None], lose: Callable[[], None]) -> None:
        """Give each message that arrives to ``take``, and call ``lose`` once the other end is closed."""
        self._take = take
        self._lose = lose
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Message] = []
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  asyncio's word for it
        self._lose()

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        start = 0
        while len(received) >= start + _HEAD.size:
            (size,) = _HEAD.unpack_from(received, start)
            stop = start + _HEAD.size + size
            if len(received) < stop:
                break
            with memoryview(received) as view:
                messages: list[Message] = pickle.loads(view[start + _HEAD.size : stop])  # noqa: S301  ours
            start = stop
            for message in messages:
                self._take(message)
        del received[:start]

    def send(self, *message: Any) -> None:
        """Send a message, after those before it."""
        self._waiting.append(message)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self._transport is None or not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        try:
            body = pickle.dumps(waiting, pickle.HIGHEST_PROTOCOL)
        except BaseException:
            self._transport.abort()  # Better than to wait for ever for what was not sent.
            raise
        self._transport.write(_HEAD.pack(len(body)) + body)

    def close(self) -> None:
        """Send what waits, and close this end."""
        self._flush()
        if self._transport is not None:
            self._transport.close()
