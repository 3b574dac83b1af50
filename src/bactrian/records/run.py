"""What a run keeps beside its sessions: calls, lists and progress."""

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


@dataclass(frozen=True, slots=True)
class ItemList:
    """The items of an axis, as far as they are known."""

    id: str
    items: tuple[str, ...]
    complete: bool
    """False while some are missing; they were given up if no call brings new ones."""
    usage: Usage
    calls: int


@dataclass(frozen=True, slots=True)
class Progress:
    """What has become of a session."""

    id: str
    ending: str | None
    turns: int | None
    """Turns at its ending; None if it has not ended."""
    prompt: int | None
    """Tokens in all, once it has ended."""
    completion: int | None
    cached: int | None


@dataclass(frozen=True, slots=True)
class Failure:
    """A session that failed, and what came back instead of its next turn."""

    session: str
    turns: int
    """That it has."""
    reason: str
    error: str | None
    """What went wrong at its last call that failed; None if none did."""
    raw: bytes
    """Up to 2 KB of what that call was answered with."""
