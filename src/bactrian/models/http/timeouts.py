"""Time and size limits of requests to an endpoint."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Limits of a request; times are in seconds."""

    connect: float = 5.0
    """Maximum time for opening a connection: name lookup, TCP and TLS together."""
    silence: float = 300.0
    """Maximum wait for the first byte of a reply, and between two bytes. An unstreamed reply arrives when it is
    complete, so this is also the maximum time for generating it."""
    total: float = 600.0
    """Maximum time for one request."""
    max_reply_bytes: int = 1 << 20
    """A larger reply is aborted. A stream may have sixteen times as many bytes, because its framing is much larger than
    its text."""
    window: int | None = None
    """The model's context window in tokens, if known: requests that do not fit are not sent."""
