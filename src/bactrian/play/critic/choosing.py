"""The choice of one of several candidates for a turn: the question to a critic, and the rounds of its answers.

Paper, section 3.2, "critic in the loop", and appendix.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bactrian.errors import BadReply, ModelError
from bactrian.play.agent import Agent
from bactrian.prompts.engine import EnginePrompts, load_engine_prompts
from bactrian.records.candidate import (
    NOTHING_KNOWN,
    CriticSettings,
    Decision,
    Deliberation,
    Proposal,
    Unreadable,
)
from bactrian.records.tool import Use
from bactrian.records.turn import Speaker, Turn
from bactrian.records.usage import Usage


@dataclass(frozen=True, slots=True)
class CriticQuestion:
    """The question to a critic."""

    session: str
    call_index: int
    turns: Sequence[Turn]
    """The conversation so far."""
    speaker: Agent
    """The agent whose turn it is."""
    proposals: Sequence[Proposal]
    """At least one; all different and not empty."""
    heard: Sequence[Decision]
    """Earlier answers to this question, all unreadable."""
    feedback: bool
    """True if the critic may ask for another round of proposals."""
    keep: int = 1
    """How many candidates to rank, best first; more than one only in a search."""
    ways: Mapping[int, Sequence[Turn]] | None = None
    """In a search, the turns by which each candidate continues ``turns``."""
    uses: Sequence[Use] = ()
    """The speaker's tool calls before its proposals; all proposals take the results into account."""

    @property
    def places(self) -> list[int]:
        """Indices of the candidates."""
        return [one.place for one in self.proposals] if self.ways is None else list(self.ways)

    @property
    def number(self) -> int:
        """Number of the turn, from 1."""
        return self.proposals[0].number


class Chooser(Protocol):
    """Chooses one of several proposals: a critic, a person or a function."""

    def choose(self, question: CriticQuestion) -> AsyncGenerator[Decision]:
        """Yield a decision; a further one only if the previous one is unreadable.

        No request is sent before the caller asks for the next decision.
        """
        ...


@dataclass(frozen=True, slots=True)
class SessionCritic:
    """The critic of a session, with its settings.

    Raises:
        ValueError: the settings contradict each other.
    """

    chooser: Chooser
    of: frozenset[Speaker]
    """The agents whose turns are chosen; the others speak their model's first reply."""
    settings: CriticSettings
    known: Deliberation = NOTHING_KNOWN
    """What a resumed session has stored for its unfinished turns."""
    prompts: EnginePrompts = field(default_factory=load_engine_prompts)

    def __post_init__(self) -> None:
        settings = self.settings
        if settings.proposals < 1 or settings.rounds < 1:
            raise ValueError("A turn has at least one proposal and at least one round.")
        if settings.width < 1 or settings.depth < 1 or (settings.searches and settings.rounds > 1):
            raise ValueError(
                "A search is at least one line wide and one turn deep, and has one round a turn."
            )


@dataclass(slots=True)
class Round:
    """The proposals of one round, and the decisions on them."""

    proposals: list[Proposal] = field(default_factory=list[Proposal])
    decisions: list[Decision] = field(default_factory=list[Decision])

    @property
    def usage(self) -> Usage:
        """Tokens of all requests of the round."""
        return sum((one.usage for one in (*self.proposals, *self.decisions)), Usage())

    @property
    def seconds(self) -> float:
        """Time of the slowest proposal and of all decisions."""
        slowest = max((one.seconds for one in self.proposals), default=0.0)
        return slowest + sum(one.seconds for one in self.decisions)

    def must_ask(self, unreadable: Unreadable) -> bool:
        """Return True if the critic has to be asked: after two unreadable answers only with ``unreadable="fail"``."""
        if not self.decisions:
            return True
        return bool(self.decisions[-1].problem) and (len(self.decisions) % 2 == 1 or unreadable == "fail")

    def check_readable(self, unreadable: Unreadable) -> None:
        """Raise if the last decision is unreadable and the settings do not accept that.

        Raises:
            ModelError: the last decision is unreadable.
        """
        if not self.decisions or not self.decisions[-1].problem or unreadable == "first":
            return
        last = self.decisions[-1]
        raise ModelError(
            f"The choice of {last.chooser} for turn {last.number} cannot be read. {last.problem}",
            where=last.model,
            next="Use a model that keeps to the format, or let the first proposal be taken.",
            sample=last.text.encode(),
        )


def list_options(proposals: Sequence[Proposal]) -> list[Proposal]:
    """Return the proposals that are not empty, each text once, in the order of their indices.

    Raises:
        BadReply: all of them are empty.
    """
    texts: dict[str, Proposal] = {}
    for proposal in sorted(proposals, key=lambda one: one.place):
        if proposal.text.strip() or proposal.finish == "content_filter":
            texts.setdefault(proposal.text, proposal)
    if not texts:
        raise BadReply(
            f"The model answered turn {proposals[0].number} with nothing, {len(proposals)} times.",
            where=proposals[0].model,
            next="Try another model or other sampling; the session can be resumed.",
        )
    return list(texts.values())
