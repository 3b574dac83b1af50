"""What happens while a session is played. Terminal, store, web page and tests all read these."""

from __future__ import annotations

from dataclasses import dataclass

from bactrian.records.candidate import Decision, Proposal
from bactrian.records.ending import Ending
from bactrian.records.session import Session
from bactrian.records.tool import ToolCall, ToolResult
from bactrian.records.turn import Turn


@dataclass(frozen=True, slots=True)
class Started:
    """A session begins, or is taken up again with the turns that ``session`` holds already."""

    session: Session


@dataclass(frozen=True, slots=True)
class Proposed:
    """An agent made a candidate for its turn; it has others or will have them."""

    proposal: Proposal


@dataclass(frozen=True, slots=True)
class Chose:
    """A critic or a person answered which candidate to take, readably or not."""

    verdict: Decision


@dataclass(frozen=True, slots=True)
class Called:
    """An agent calls a tool in the course of its turn."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class Returned:
    """A call has a result, or went wrong; the agent is told either."""

    result: ToolResult


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


Event = Started | Proposed | Chose | Called | Returned | Spoke | Ended
