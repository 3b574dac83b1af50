"""Candidate turns, and the decisions of a critic or a person on them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bactrian.records.text import Text
from bactrian.records.turn import Finish, Speaker
from bactrian.records.usage import Usage


@dataclass(frozen=True, slots=True)
class Preference:
    """Several candidates for one turn, and the one that a critic, a person or a judge preferred."""

    number: int
    """Of the turn, from 1."""
    speaker: Speaker
    """Whose turn it is."""
    texts: tuple[str, ...]
    index: int
    """0-based position of the chosen one in ``texts``."""
    chooser: str
    """Who chose: the role of a critic, ``human`` or ``judge``, or a model's name."""
    reason: str = ""


Unreadable = Literal["first", "fail"]
"""What follows a choice that cannot be read: the first proposal is taken, or the session fails."""

CRITERIA = "it improves how well the task is done"
"""What a critic looks for unless it is told; the paper's default."""


@dataclass(frozen=True, slots=True)
class CriticSettings:
    """A critic who chooses what is said (paper, section 3.2)."""

    role: str
    proposals: int = 3
    """Candidates for each turn."""
    rounds: int = 1
    """Most rounds of proposals for a turn; from the second on, each needs feedback on the one before."""
    criteria: str = CRITERIA
    unreadable: Unreadable = "first"
    """What follows a choice that cannot be read, twice."""
    width: int = 1
    """Lines that a search keeps alive; with ``depth`` 1, too, there is no search."""
    depth: int = 1
    """Turns that a search looks ahead."""

    @property
    def searches(self) -> bool:
        """True if it looks further than the next turn, or at more than one line."""
        return (self.width, self.depth) != (1, 1)

    def count_settled(self, turns: int) -> int:
        """How many of so many turns a session that is taken up again need not look at any more."""
        return turns // self.depth * self.depth


def read_search(text: str) -> tuple[int, int]:
    """Width and depth of ``beam:WIDTHxDEPTH``.

    Raises:
        ValueError: it is none, or searches nothing.
    """
    match = re.fullmatch(r"beam:([1-9]\d?)x([1-9]\d?)", text)
    if match is None:
        raise ValueError("a search is beam:WIDTHxDEPTH, each from 1 to 99, for example beam:2x3")
    return int(match[1]), int(match[2])


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
    thought: str = ""
    """What a reasoning model thought before it spoke."""


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
