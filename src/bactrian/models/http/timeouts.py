"""How long to wait for an endpoint, and how much to take from it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Times are in seconds."""

    connect: float = 5.0
    """Longest wait for a connection: name lookup, TCP and TLS together."""
    silence: float = 300.0
    """Longest wait for the first byte of a reply, and between two of its bytes. A reply that is not streamed comes
    when it is done, so this is also how long a server may think about one."""
    total: float = 600.0
    """Longest time for one request, however it is answered."""
    max_reply_bytes: int = 1 << 20
    """A larger reply is cut off and the connection closed. A stream may have sixteen times as many bytes,
    because its framing takes far more room than its text."""
    window: int | None = None
    """The model's context window in tokens, if known: requests that cannot fit are then not sent."""
