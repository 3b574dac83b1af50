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
    """The agent that takes the turn."""
    texts: tuple[str, ...]
    index: int
    """0-based position of the chosen one in ``texts``."""
    chooser: str
    """The role of the critic, ``human``, ``judge`` or a model's name."""
    reason: str = ""


Unreadable = Literal["first", "fail"]
"""Policy for a decision that cannot be parsed: take the first proposal, or fail the session."""

CRITERIA = "it improves how well the task is done"
"""Default criteria of a critic, from the paper."""


@dataclass(frozen=True, slots=True)
class CriticSettings:
    """Settings of the critic that chooses among candidate turns (paper, section 3.2)."""

    role: str
    proposals: int = 3
    """Candidates for each turn."""
    rounds: int = 1
    """Maximum rounds of proposals per turn; each round after the first requires feedback on the one before."""
    criteria: str = CRITERIA
    unreadable: Unreadable = "first"
    """Policy for a decision that cannot be parsed twice in a row."""
    width: int = 1
    """Beam width of a search; width 1 and depth 1 mean no search."""
    depth: int = 1
    """Number of turns that a search looks ahead."""

    @property
    def searches(self) -> bool:
        """True if the critic looks further than the next turn or follows more than one line."""
        return (self.width, self.depth) != (1, 1)

    def count_settled(self, turns: int) -> int:
        """Return how many of ``turns`` stored turns a resumed search need not visit again."""
        return turns // self.depth * self.depth


def read_search(text: str) -> tuple[int, int]:
    """Parse the width and depth of ``beam:WIDTHxDEPTH``.

    Raises:
        ValueError: ``text`` does not have this form.
    """
    match = re.fullmatch(r"beam:([1-9]\d?)x([1-9]\d?)", text)
    if match is None:
        raise ValueError("a search is beam:WIDTHxDEPTH, each from 1 to 99, for example beam:2x3")
    return int(match[1]), int(match[2])


@dataclass(frozen=True, slots=True)
class Proposal:
    """A candidate for a turn."""

    number: int
    """Of the turn, from 1."""
    round: int
    """1 for the first candidates of a turn; feedback begins another round."""
    place: int
    """Position among the candidates of its round, from 1."""
    speaker: Speaker
    text: Text
    usage: Usage
    """Tokens of its call; if one call returned several candidates, the first one has the full usage."""
    seconds: float
    model: str
    """The model as the endpoint named it."""
    finish: Finish
    lossy: bool = False
    """True if bytes or characters that cannot be stored were replaced in ``text``."""
    parent: int | None = None
    """In a search, the place of the proposal for the previous turn that this one continues; None if it continues the
    stored conversation."""
    fingerprint: str | None = None
    """The endpoint's name for the exact system that answered, if it gives one."""
    thought: str = ""
    """Thoughts of a reasoning model before its reply."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of a critic or a person on the proposals of a round."""

    number: int
    """Of the turn, from 1."""
    round: int
    attempt: int
    """From 1; a decision that could not be parsed is requested again."""
    speaker: Speaker
    """The agent that made the proposals."""
    chooser: str
    """Name of the role that chose."""
    text: Text
    """The unparsed answer."""
    place: int | None
    """Place of the chosen proposal; None if the answer could not be parsed or ``instead`` replaces the proposals."""
    reason: str = ""
    feedback: str = ""
    """Suggested improvement; empty if the chosen proposal is good enough."""
    instead: Text | None = None
    """A person's own text instead of all proposals."""
    problem: str = ""
    """The reason why the answer could not be parsed."""
    usage: Usage = Usage()
    seconds: float = 0.0
    model: str = ""
    kept: tuple[int, ...] = ()
    """In a search, the places of the lines that continue, best first."""
    thought: str = ""
    """Thoughts of a reasoning model before its answer."""


@dataclass(frozen=True, slots=True)
class Deliberation:
    """The stored proposals and decisions of a session, in order."""

    proposals: tuple[Proposal, ...] = ()
    verdicts: tuple[Decision, ...] = ()

    def of(self, number: int, round_: int) -> tuple[list[Proposal], list[Decision]]:
        """Return the proposals and decisions of one round of one turn."""
        return (
            [one for one in self.proposals if (one.number, one.round) == (number, round_)],
            [one for one in self.verdicts if (one.number, one.round) == (number, round_)],
        )

    def choices(self) -> Iterator[Preference]:
        """Yield a preference for each round whose decision could be parsed.

        In a search, the turn of the best line is preferred over its siblings, which continue the same line.
        """
        ordered = sorted(self.verdicts, key=lambda one: (one.number, one.round, one.attempt))
        last = {(one.number, one.round): one for one in ordered}
        best: tuple[int, int | None] | None = None
        searched: list[Preference] = []
        for (number, round_), verdict in reversed(last.items()):
            proposals, _ = self.of(number, round_)
            if not verdict.kept:
                if (choice := _make_preference(verdict, proposals)) is not None:
                    searched.append(choice)
                continue
            # Backwards from the end: the best proposal for a turn is the parent of the best one for the next turn.
            place = best[1] if best is not None and best[0] == number else verdict.kept[0]
            chosen = next((one for one in proposals if one.place == place), None)
            best = None if chosen is None or chosen.parent is None else (number - 1, chosen.parent)
            if chosen is not None:
                rivals = [one for one in proposals if one.parent == chosen.parent]
                if (choice := _make_preference(replace(verdict, place=place), rivals)) is not None:
                    searched.append(choice)
        yield from reversed(searched)


NOTHING_KNOWN = Deliberation()
"""The deliberation of a new session."""


def _make_preference(verdict: Decision, proposals: Sequence[Proposal]) -> Preference | None:
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
