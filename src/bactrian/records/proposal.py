"""What could have been said, and what somebody made of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from bactrian.records.choice import Choice
from bactrian.records.text import Text
from bactrian.records.turn import Finish, Speaker
from bactrian.records.usage import Usage


@dataclass(frozen=True, slots=True)
class Proposal:
    """One of several candidates for a turn."""

    number: int
    """Of the turn, from 1."""
    round: int
    """1 for the first candidates of a turn; feedback begins another round."""
    place: int
    """Among the candidates of its round, from 1."""
    speaker: Speaker
    text: Text
    usage: Usage
    """Of its own call; of several that came from one call, the first has it all."""
    seconds: float
    model: str
    """The model as the endpoint named it."""
    finish: Finish
    lossy: bool = False
    """True if bytes or characters that no store can hold were replaced in ``text``."""
    fingerprint: str | None = None
    """The endpoint's name for the exact system that answered, if it gives one."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a critic or a person said about the proposals of a round."""

    number: int
    """Of the turn, from 1."""
    round: int
    attempt: int
    """From 1; an answer that could not be read is asked for again."""
    speaker: Speaker
    """Whose proposals they are."""
    chooser: str
    """Name of the role that chose."""
    text: Text
    """The answer as it came."""
    place: int | None
    """Place of the chosen proposal; None if the answer could not be read, or ``instead`` is what it chose."""
    reason: str = ""
    feedback: str = ""
    """What would be better; empty if the chosen one is good enough."""
    instead: Text | None = None
    """What a person wrote in place of all proposals."""
    problem: str = ""
    """Why the answer could not be read."""
    usage: Usage = Usage()
    seconds: float = 0.0
    model: str = ""


@dataclass(frozen=True, slots=True)
class Deliberation:
    """All proposals and verdicts of a session that are known, in their order."""

    proposals: tuple[Proposal, ...] = ()
    verdicts: tuple[Verdict, ...] = ()

    def of(self, number: int, round_: int) -> tuple[list[Proposal], list[Verdict]]:
        """Those of one round of one turn."""
        return (
            [one for one in self.proposals if (one.number, one.round) == (number, round_)],
            [one for one in self.verdicts if (one.number, one.round) == (number, round_)],
        )

    def choices(self) -> Iterator[Choice]:
        """What was chosen over what, in each round whose verdict could be read."""
        ordered = sorted(self.verdicts, key=lambda one: (one.number, one.round, one.attempt))
        for (number, round_), verdicts in groupby(ordered, key=lambda one: (one.number, one.round)):
            last = list(verdicts)[-1]
            proposals, _ = self.of(number, round_)
            if (choice := _choice(last, proposals)) is not None:
                yield choice


NOTHING_KNOWN = Deliberation()
"""Of a session that begins."""


def _choice(verdict: Verdict, proposals: Sequence[Proposal]) -> Choice | None:
    offered = [proposal for proposal in proposals if proposal.text.strip()]
    texts = [proposal.text for proposal in offered]
    places = [proposal.place for proposal in offered]
    if verdict.instead is not None:
        texts.append(verdict.instead)
        index = len(texts) - 1
    elif verdict.place in places:
        index = places.index(verdict.place)
    else:
        return None
    return Choice(verdict.number, verdict.speaker, tuple(texts), index, verdict.chooser, verdict.reason)
