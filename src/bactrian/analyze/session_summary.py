"""The summary of a session: all numbers that the report needs, without texts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from bactrian.analyze.behaviours.catalogue import find_behaviours
from bactrian.analyze.behaviours.own import OwnBehaviour
from bactrian.records.finding import Behaviour, Finding
from bactrian.records.session import Kind, Session, find_kind
from bactrian.records.turn import Solution, Speaker
from bactrian.records.usage import Usage

UNFINISHED = "unfinished"
"""The code of unfinished sessions."""


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """A turn with a finding."""

    behaviour: Behaviour
    speaker: Speaker
    turn: int

    @property
    def round(self) -> int:
        """Number of the round (instruction and solution), from 1."""
        return (self.turn + 1) // 2


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """The numbers of a session."""

    id: str
    kind: Kind
    assistant: str
    user: str
    ending: str
    user_turns: int
    assistant_turns: int
    solved: int
    """Turns that are solutions by the inception protocol."""
    usage: Usage
    seen: tuple[ShownTurn, ...]
    job: bytes = b""
    """Hash of id, roles and original task: sessions of two runs with the same one are on the same job."""
    task: bytes = b""
    """Hash of the task as both agents saw it."""

    @property
    def messages(self) -> int:
        """Turns of all agents."""
        return self.user_turns + self.assistant_turns

    @property
    def behaviours(self) -> frozenset[Behaviour]:
        """The behaviours found in it."""
        return frozenset(one.behaviour for one in self.seen)


def _hash(*texts: str) -> bytes:
    """Return 8 bytes that differ for different texts: one pair in 10¹⁹ would not."""
    return hashlib.blake2b("\0".join(texts).encode(errors="surrogatepass"), digest_size=8).digest()


def summarize(
    session: Session, own: Sequence[OwnBehaviour] = (), *, explain: bool = True
) -> tuple[SessionSummary, tuple[Finding, ...]]:
    """Return the summary of ``session``, with built-in behaviours and those of ``own``, and its findings.

    Unless they ``explain``, some findings have no quote and no reason.
    """
    findings = find_behaviours(session, own=own, explain=explain)
    # In a group chat, all agents count as not instructing.
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
        job=_hash(session.id, session.assistant.name, session.user.name, session.task.original),
        task=_hash(session.task.text),
    )
    return facts, findings
