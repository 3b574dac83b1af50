"""What has become of a run's sessions, without the sessions themselves."""

from __future__ import annotations

from dataclasses import dataclass


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
