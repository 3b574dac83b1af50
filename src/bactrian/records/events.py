"""Events of a session while it is played: terminal, store, pages and tests all consume them."""

from __future__ import annotations

from dataclasses import dataclass

from bactrian.records.session import Ending, Session
from bactrian.records.turn import Decision, Proposal, ToolCall, ToolResult, Turn, record


@dataclass(frozen=True, slots=True)
class Started:
    """A session starts, or resumes with the turns that ``session`` contains already."""

    session: Session


@dataclass(frozen=True, slots=True)
class Proposed:
    """An agent proposed one of several candidates for its turn."""

    proposal: Proposal


@dataclass(frozen=True, slots=True)
class Chose:
    """A critic or a person decided between candidates; the decision may be unreadable."""

    verdict: Decision


@dataclass(frozen=True, slots=True)
class Called:
    """An agent calls a tool during its turn."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class Returned:
    """A tool call returned a result or failed; the agent sees either."""

    result: ToolResult


@record
class Spoke:
    """A turn is complete."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class Ended:
    """The session stopped."""

    ending: Ending
    error: Exception | None = None  # The cause of an ending `failed`.


Event = Started | Proposed | Chose | Called | Returned | Spoke | Ended
