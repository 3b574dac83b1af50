"""Proposals and the decisions on them, as trees: one for each round of a turn, or one for a whole search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bactrian.records.candidate import CriticSettings, Decision, Deliberation, Proposal
from bactrian.records.turn import Turn


@dataclass(slots=True)
class Branch:
    """A proposal, and those that continue it."""

    proposal: Proposal
    chosen: bool
    """True if it was spoken."""
    survives: bool
    """True if a search went on with it."""
    children: list[Branch] = field(default_factory=list["Branch"])


@dataclass(frozen=True, slots=True)
class ChoiceRound:
    """The proposals of a round, or of a search over several turns, as a tree, with the decisions."""

    number: int
    """Of the round, from 1."""
    count: int
    roots: Sequence[Branch]
    verdicts: Sequence[Decision]
    last: int = 0
    """The last turn of a search; 0 if it is none."""


def list_rounds(
    known: Deliberation, number: int, critic: CriticSettings | None, turns: Sequence[Turn]
) -> Iterator[ChoiceRound]:
    """Yield the rounds of proposals for turn ``number``; a whole search with the first of its turns.

    Args:
        known: All proposals and decisions of the session.
        number: The turn.
        critic: The settings of the session.
        turns: All turns of the session, which tell what was spoken without a decision: all proposals were the same.
    """
    if critic is not None and critic.searches:
        if (number - 1) % critic.depth == 0 and (made := _build_search(known, number, critic.depth, turns)):
            yield made
        return
    for round_ in sorted({one.round for one in known.proposals if one.number == number}):
        proposals, verdicts = known.of(number, round_)
        place = verdicts[-1].place if verdicts else None
        branches = [Branch(one, one.place == place, survives=False) for one in proposals]
        if not verdicts:
            _mark_spoken(branches, turns)
        yield ChoiceRound(round_, len(proposals), branches, verdicts)


def _build_search(known: Deliberation, first: int, depth: int, turns: Sequence[Turn]) -> ChoiceRound | None:
    """Return the tree of a search that began with turn ``first``; None if nothing was proposed."""
    nodes: dict[tuple[int, int], Branch] = {}
    roots: list[Branch] = []
    verdicts: list[Decision] = []
    for number in range(first, first + depth):
        proposals, decisions = known.of(number, 1)
        kept = decisions[-1].kept if decisions else ()
        for one in proposals:
            branch = nodes[number, one.place] = Branch(one, chosen=False, survives=one.place in kept)
            parent = None if one.parent is None else nodes.get((number - 1, one.parent))
            (roots if parent is None else parent.children).append(branch)
        verdicts += decisions
    if not nodes:
        return None
    if verdicts:
        _mark_best(nodes, verdicts[-1])
    else:
        _mark_spoken(roots, turns)
    return ChoiceRound(1, len(nodes), roots, verdicts, max(number for number, _ in nodes))


def _mark_best(nodes: dict[tuple[int, int], Branch], last: Decision) -> None:
    """Mark the line that was spoken: backwards from what the last decision ranks first."""
    place = last.kept[0] if last.kept else last.place
    number = last.number
    while place is not None and (best := nodes.get((number, place))) is not None:
        best.chosen = True
        place, number = best.proposal.parent, number - 1


def _mark_spoken(branches: Sequence[Branch], turns: Sequence[Turn]) -> None:
    """Mark the first proposal with the text that was spoken, and likewise below it."""
    for branch in branches:
        number = branch.proposal.number
        if number <= len(turns) and turns[number - 1].text == branch.proposal.text:
            branch.chosen = True
            _mark_spoken(branch.children, turns)
            return
