"""What could have been said, and what somebody made of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bactrian.records.choice import Preference
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
    parent: int | None = None
    """In a search, the place of the proposal for the turn before that this one follows; None if it follows what was
    said."""
    fingerprint: str | None = None
    """The endpoint's name for the exact system that answered, if it gives one."""


@dataclass(frozen=True, slots=True)
class Decision:
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
    kept: tuple[int, ...] = ()
    """In a search, the places that it goes on with, best first."""


@dataclass(frozen=True, slots=True)
class Deliberation:
    """All proposals and verdicts of a session that are known, in their order."""

    proposals: tuple[Proposal, ...] = ()
    verdicts: tuple[Decision, ...] = ()

    def of(self, number: int, round_: int) -> tuple[list[Proposal], list[Decision]]:
        """Those of one round of one turn."""
        return (
            [one for one in self.proposals if (one.number, one.round) == (number, round_)],
            [one for one in self.verdicts if (one.number, one.round) == (number, round_)],
        )

    def choices(self) -> Iterator[Preference]:
        """What was chosen over what, in each round whose verdict could be read.

        In a search that is what the best line says over the others that could follow what it had said before.
        """
        ordered = sorted(self.verdicts, key=lambda one: (one.number, one.round, one.attempt))
        last = {(one.number, one.round): one for one in ordered}
        best: tuple[int, int | None] | None = None
        searched: list[Preference] = []
        for (number, round_), verdict in reversed(last.items()):
            proposals, _ = self.of(number, round_)
            if not verdict.kept:
                if (choice := _choice(verdict, proposals)) is not None:
                    searched.append(choice)
                continue
            # From its end back: what was best for one turn is told by what was best for the next one.
            place = best[1] if best is not None and best[0] == number else verdict.kept[0]
            chosen = next((one for one in proposals if one.place == place), None)
            best = None if chosen is None or chosen.parent is None else (number - 1, chosen.parent)
            if chosen is not None:
                rivals = [one for one in proposals if one.parent == chosen.parent]
                if (choice := _choice(replace(verdict, place=place), rivals)) is not None:
                    searched.append(choice)
        yield from reversed(searched)


NOTHING_KNOWN = Deliberation()
"""Of a session that begins."""


def _choice(verdict: Decision, proposals: Sequence[Proposal]) -> Preference | None:
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
    return Preference(verdict.number, verdict.speaker, tuple(texts), index, verdict.chooser, verdict.reason)
