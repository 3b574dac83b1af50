"""One call to a model, as it is kept for the record."""

from __future__ import annotations

from dataclasses import dataclass

from bactrian.records.usage import Usage


@dataclass(frozen=True, slots=True)
class Call:
    """One call, whether it was answered or not."""

    session: str
    agent: str
    ordinal: int
    """0-based position among the session's calls; a call that was asked again has the same one."""
    model: str
    """The model as the endpoint named it, or by the user's name for it if it did not answer."""
    seconds: float
    raw: bytes = b""
    """The reply's bytes as they came; after a failure, up to 2 KB of what came instead."""
    error: str | None = None
    """What went wrong; None if the model answered."""
    usage: Usage | None = None
    """None after a failure: what it cost, if anything, nobody said."""
