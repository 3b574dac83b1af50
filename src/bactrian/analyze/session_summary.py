"""What is kept of a session once it has been read: enough for every number of the report, and none of its text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bactrian.analyze.behaviours.catalogue import find_behaviours
from bactrian.analyze.behaviours.own import OwnBehaviour
from bactrian.records.finding import Behaviour, Finding
from bactrian.records.session import Kind, Session, find_kind
from bactrian.records.turn import Solution, Speaker
from bactrian.records.usage import Usage

UNFINISHED = "unfinished"
"""Stands for the ending of a session that has none yet."""


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """A turn that shows a behaviour."""

    behaviour: Behaviour
    speaker: Speaker
    turn: int

    @property
    def round(self) -> int:
        """The instruction and the solution to it that the turn belongs to, from 1 on."""
        return (self.turn + 1) // 2


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A session without its words."""

    id: str
    kind: Kind
    assistant: str
    user: str
    ending: str
    user_turns: int
    assistant_turns: int
    solved: int
    """Turns that the inception protocol reads as a solution."""
    usage: Usage
    seen: tuple[ShownTurn, ...]

    @property
    def messages(self) -> int:
        """Turns of both."""
        return self.user_turns + self.assistant_turns

    @property
    def behaviours(self) -> frozenset[Behaviour]:
        """What it shows at least once."""
        return frozenset(one.behaviour for one in self.seen)


def summarize(
    session: Session, own: Sequence[OwnBehaviour] = ()
) -> tuple[SessionSummary, tuple[Finding, ...]]:
    """Read ``session`` for its facts and for the behaviours that it shows, those of ``own`` included."""
    findings = find_behaviours(session, own=own)
    # Whoever speaks in a talk of several counts with those who do not instruct.
    speakers: dict[int, Speaker] = {
        turn.number: "user" if turn.speaker == "user" else "assistant" for turn in session.turns
    }
    user_turns = sum(speaker == "user" for speaker in speakers.values())
    facts = SessionSummary(
        id=session.id,
        kind=find_kind(session),
        assistant=session.assistant.name,
        user=session.user.name,
        ending=session.ending.code if session.ending else UNFINISHED,
        user_turns=user_turns,
        assistant_turns=len(speakers) - user_turns,
        solved=sum(isinstance(turn.said, Solution) for turn in session.turns),
        usage=session.usage,
        seen=tuple(ShownTurn(found.behaviour, speakers[found.turn], found.turn) for found in findings),
    )
    return facts, findings
