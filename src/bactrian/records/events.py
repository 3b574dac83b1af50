"""What happens while a session is played. Terminal, store, web page and tests all read these."""

from __future__ import annotations

from dataclasses import dataclass

from bactrian.records.ending import Ending
from bactrian.records.session import Session
from bactrian.records.turn import Speaker, Turn


@dataclass(frozen=True, slots=True)
class Started:
    """A session begins, or is taken up again with the turns that ``session`` holds already."""

    session: Session


@dataclass(frozen=True, slots=True)
class Proposed:
    """An agent made several candidate turns for a critic to choose from."""

    number: int
    speaker: Speaker
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chose:
    """One candidate was chosen."""

    number: int
    index: int
    """0-based position in the texts of the :class:`Proposed` before it."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Spoke:
    """A turn was said."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class Ended:
    """The session stopped."""

    ending: Ending
    error: Exception | None = None
    """The fault behind an ending ``failed``."""


Event = Started | Proposed | Chose | Spoke | Ended
