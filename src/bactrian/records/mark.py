"""Marks: names that a person gives to sessions, with a note, so that they are found again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mark:
    """A name that a person gave to a session, such as ``good`` or ``look-again``."""

    session: str
    """The session's id."""
    mark: str
    """The name. A session has a mark once."""
    note: str
    """What the person wrote about it; may be empty."""
    created: float
    """Seconds since 1970 when the mark was set or its note changed."""
