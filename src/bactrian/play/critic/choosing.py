"""Choosing one of several candidates for a turn: what a critic is asked, and what follows from its answers.

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
    """What a critic is asked."""

    session: str
    call_index: int
    turns: Sequence[Turn]
    """What was said before."""
    speaker: Agent
    """Whose turn it is."""
    proposals: Sequence[Proposal]
    """At least one; all different, and each says something."""
    heard: Sequence[Decision]
    """Earlier answers to this question, none of which could be read."""
    feedback: bool
    """True if the critic may ask for another round of proposals."""
    keep: int = 1
    """How many are wanted, best first; more than one only in a search."""
    ways: Mapping[int, Sequence[Turn]] | None = None
    """In a search, where each place leads to from the end of ``turns``."""
    uses: Sequence[Use] = ()
    """The tools that the speaker used before it made its proposals; all of them know the results."""

    @property
    def places(self) -> list[int]:
        """What can be chosen."""
        return [one.place for one in self.proposals] if self.ways is None else list(self.ways)

    @property
    def number(self) -> int:
        """Of the turn, from 1."""
        return self.proposals[0].number


class Chooser(Protocol):
    """Chooses one of several proposals: a critic, a person or a function."""

    def choose(self, question: CriticQuestion) -> AsyncGenerator[Decision]:
        """Yield a decision; another one only if the one before could not be read.

        No model is asked before the decision that came before has been taken.
        """
        ...


@dataclass(frozen=True, slots=True)
class SessionCritic:
    """A critic at work in a session.

    Raises:
        ValueError: the settings contradict each other.
    """

    chooser: Chooser
    of: frozenset[Speaker]
    """Whose turns are chosen; the others say the first thing that their models reply."""
    settings: CriticSettings
    known: Deliberation = NOTHING_KNOWN
    """What a resumed session has stored of the turns after its last full ``depth``."""
    prompts: EnginePrompts = field(default_factory=load_engine_prompts)

    def __post_init__(self) -> None:
        wish = self.settings
        if wish.proposals < 1 or wish.rounds < 1:
            raise ValueError("A turn has at least one proposal and one round of them.")
        if wish.width < 1 or wish.depth < 1 or (wish.searches and wish.rounds > 1):
            raise ValueError(
                "A search is at least one line wide and one turn deep, and has one round a turn."
            )


@dataclass(slots=True)
class Round:
    """The proposals that were made at one time, and the decisions on them."""

    proposals: list[Proposal] = field(default_factory=list[Proposal])
    decisions: list[Decision] = field(default_factory=list[Decision])

    @property
    def usage(self) -> Usage:
        """Of all requests that it took."""
        return sum((one.usage for one in (*self.proposals, *self.decisions)), Usage())

    @property
    def seconds(self) -> float:
        """Of the slowest proposal and all decisions."""
        slowest = max((one.seconds for one in self.proposals), default=0.0)
        return slowest + sum(one.seconds for one in self.decisions)

    def must_ask(self, unreadable: Unreadable) -> bool:
        """Return True if the question is still open: a pair of unreadable answers has been dealt with."""
        if not self.decisions:
            return True
        return bool(self.decisions[-1].problem) and (len(self.decisions) % 2 == 1 or unreadable == "fail")

    def check_readable(self, unreadable: Unreadable) -> None:
        """Fail if the last decision cannot be read and that is not to be passed over.

        Raises:
            ModelError: as the settings want it.
        """
        if not self.decisions or not self.decisions[-1].problem or unreadable == "first":
            return
        last = self.decisions[-1]
        raise ModelError(
            f"The choice of {last.chooser} for turn {last.number} cannot be read. {last.problem}",
            where=last.model,
            next="Use a model that keeps to a form, or let the first proposal be taken.",
            sample=last.text.encode(),
        )


def list_options(proposals: Sequence[Proposal]) -> list[Proposal]:
    """Return the proposals that say something, each text once, in the order of their places.

    Raises:
        BadReply: none of them says anything.
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
