"""Several proposals for a turn, one of which is chosen: the paper's critic in the loop (section 3.2, appendix)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from bactrian.errors import BadReply, ModelError
from bactrian.play.agent import Agent, View
from bactrian.play.critic.candidates import CandidateRequest, Proposer
from bactrian.records.candidate import NOTHING_KNOWN, Decision, Deliberation, Proposal, Unreadable
from bactrian.records.events import Chose, Proposed, Spoke
from bactrian.records.message import Message
from bactrian.records.text import Text
from bactrian.records.turn import Speaker, Turn
from bactrian.records.usage import Usage


@dataclass(frozen=True, slots=True)
class ChoiceQuestion:
    """What a chooser is asked."""

    session: str
    call_index: int
    turns: Sequence[Turn]
    """What was said before."""
    speaker: Agent
    """Whose turn it is."""
    proposals: Sequence[Proposal]
    """At least one; all different, and each says something."""
    heard: Sequence[Decision]
    """Its earlier answers to this question, none of which could be read."""
    feedback: bool
    """True if it may ask for another round of proposals."""
    keep: int = 1
    """How many are wanted, best first; more than one only in a search."""
    ways: Mapping[int, Sequence[Turn]] | None = None
    """In a search, where each place leads to from the end of ``turns``."""

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

    def choose(self, question: ChoiceQuestion) -> AsyncGenerator[Decision]:
        """Give a verdict; another one only if the one before could not be read.

        Nothing is asked of a model before the verdict that came before has been taken.
        """
        ...


@dataclass(frozen=True, slots=True)
class TurnChoice:
    """How turns are chosen."""

    chooser: Chooser
    of: frozenset[Speaker]
    """Whose turns are chosen; the others say what first comes to them."""
    proposals: int = 3
    """Candidates for each turn."""
    rounds: int = 1
    """Most rounds of proposals for a turn; from the second on, each needs feedback on the one before."""
    unreadable: Unreadable = "first"
    known: Deliberation = NOTHING_KNOWN
    """What a session that is taken up again has of the turns after its last full ``depth``."""
    width: int = 1
    """Lines that a search keeps alive."""
    depth: int = 1
    """Turns that it looks ahead."""

    def __post_init__(self) -> None:
        if self.proposals < 1 or self.rounds < 1:
            raise ValueError("A turn has at least one proposal and one round of them.")
        if self.width < 1 or self.depth < 1 or (self.searches and self.rounds > 1):
            raise ValueError(
                "A search is at least one line wide and one turn deep, and has one round a turn."
            )

    @property
    def searches(self) -> bool:
        """True if it looks further than the next turn, or at more than one line."""
        return (self.width, self.depth) != (1, 1)


@dataclass(frozen=True, slots=True)
class TurnContext:
    """Where a session stands when a turn is to be chosen."""

    session: str
    call_index: int
    turns: Sequence[Turn]
    view: View

    @property
    def number(self) -> int:
        """Of the turn that comes, from 1."""
        return len(self.turns) + 1


async def choose_turn(
    critique: TurnChoice, proposer: Proposer, stage: TurnContext
) -> AsyncGenerator[Proposed | Chose | Spoke]:
    """Have proposals made until one is good enough, or the last round is over; then it is spoken.

    Raises:
        ModelError: a model does not answer, or no proposal says anything, or the choice cannot be read.
    """
    agent = stage.view.agent
    notes: list[Message] = []
    usage, seconds = Usage(), 0.0
    round_ = 0
    while True:
        round_ += 1
        proposals, verdicts = critique.known.of(stage.number, round_)
        for proposal in proposals:
            yield Proposed(proposal)
        for verdict in verdicts:
            yield Chose(verdict)
        wanted = CandidateRequest(
            stage.session,
            stage.call_index,
            stage.number,
            round_,
            tuple(one.place for one in proposals),
            notes,
        )
        async with aclosing(proposer.propose(stage.view, wanted)) as made:
            async for proposal in made:
                yield Proposed(proposal)
                proposals.append(proposal)
        options = list_offered(proposals)
        question = ChoiceQuestion(
            stage.session, stage.call_index, stage.turns, agent, options, verdicts, round_ < critique.rounds
        )
        if is_open(verdicts, critique.unreadable):
            async with aclosing(critique.chooser.choose(question)) as said:
                async for verdict in said:
                    yield Chose(verdict)
                    verdicts.append(verdict)
        usage = sum((one.usage for one in (*proposals, *verdicts)), usage)
        seconds += max(one.seconds for one in proposals) + sum(one.seconds for one in verdicts)
        last = verdicts[-1] if verdicts else None
        check_readable(verdicts, critique.unreadable)
        chosen = _chosen(options, last)
        if round_ == critique.rounds or last is None or not last.feedback or last.instead is not None:
            break
        notes += _note(chosen, last)
    yield Spoke(agent.turn(chosen, usage=usage, seconds=seconds))


def list_offered(proposals: Sequence[Proposal]) -> list[Proposal]:
    """Those that say something, each text once, in the order of their places."""
    texts: dict[str, Proposal] = {}
    for proposal in sorted(proposals, key=lambda one: one.place):
        if proposal.text.strip() or proposal.finish == "content_filter":
            texts.setdefault(proposal.text, proposal)
    if not texts:
        raise BadReply(
            f"The model answered turn {proposals[0].number} with nothing, {len(proposals)} times.",
            where=proposals[0].model,
            next="Try another model or other sampling; the session can be taken up again.",
        )
    return list(texts.values())


def is_open(verdicts: Sequence[Decision], unreadable: Unreadable) -> bool:
    """True if the question must still be asked: an even number of unreadable answers has been dealt with."""
    if not verdicts:
        return True
    return bool(verdicts[-1].problem) and (len(verdicts) % 2 == 1 or unreadable == "fail")


def check_readable(verdicts: Sequence[Decision], unreadable: Unreadable) -> None:
    """Fail if the last verdict cannot be read and that is not to be passed over.

    Raises:
        ModelError: as is wished.
    """
    if not verdicts or not verdicts[-1].problem or unreadable == "first":
        return
    last = verdicts[-1]
    raise ModelError(
        f"The choice of {last.chooser} for turn {last.number} cannot be read. {last.problem}",
        where=last.model,
        next="Use a model that keeps to a form, or let the first proposal be taken.",
        sample=last.text.encode(),
    )


def _chosen(options: Sequence[Proposal], verdict: Decision | None) -> Proposal:
    """The proposal that is spoken: the chosen one, or the first if nobody chose readably."""
    first = options[0]
    if verdict is None:
        return first
    if verdict.instead is not None:
        return Proposal(
            first.number,
            first.round,
            len(options) + 1,
            first.speaker,
            verdict.instead,
            Usage(),
            0.0,
            verdict.model,
            "stop",
        )
    return next((one for one in options if one.place == verdict.place), first)


def _note(chosen: Proposal, verdict: Decision) -> list[Message]:
    """What the speaker is told before it tries again."""
    return [
        Message("assistant", chosen.text),
        Message(
            "user",
            Text(
                f"This is a draft that has not been sent. {verdict.chooser} has read it and says: "
                f"{verdict.feedback}\n\nWrite the whole message again in the same form, with that put right. "
                "Do not mention the draft."
            ),
        ),
    ]
