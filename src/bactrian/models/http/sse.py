"""A parser for server-sent events."""

from __future__ import annotations


class EventReader:
    """Splits a stream of bytes into the data of its events.

    Works on bytes, so that a character split over two chunks is complete before decoding. Comments, event names and ids
    are ignored. Lines may end in LF or CRLF.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add the next chunk; return the data of the events that it completes."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        complete: list[bytes] = []
        for raw_line in lines:
            line = raw_line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line:
                complete += self._finish_event()
        return complete

    def end(self) -> list[bytes]:
        """Return the data of an event that the end of the stream completes."""
        return self.feed(b"\n\n")

    def _finish_event(self) -> list[bytes]:
        data, self._data = b"\n".join(self._data), []
        return [data] if data else []
