"""Decides which pair of solutions a voter is shown next, and which of the two on the left.

Everything follows from the voter's pseudonym and the votes so far, so that a voter can stop and resume at any time.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from bactrian.errors import InputError
from bactrian.evaluate.agents.verdict_jobs import join_pair, read_solutions, split_pair
from bactrian.models.seeds import derive_seed
from bactrian.records.run import Vote
from bactrian.records.session import Session
from bactrian.store import open_store

QUOTA = 3
"""Votes on a pair, by different people, after which others come first."""
CHECKED = 0.1
"""Share of the pairs that are shown a second time, the other way round."""
GUIDELINE: tuple[str, ...] = (
    "The aim is to learn which of two solutions of a task helps more.",
    "Read the task and both solutions, then give one vote for each pair.",
    "Look at four things: is it clear, correct, complete and useful?",
    "You are not told who wrote what, and your votes carry only a pseudonym.",
    "Be fair: neither length nor style nor the side decides.",
    "Vote on as many pairs as you like. Some come twice.",
    "You may add a comment to your vote.",
)
"""How to vote, in seven points."""


@dataclass(frozen=True, slots=True)
class SolutionPair:
    """Two solutions of a task."""

    session: str
    task: str
    pair: str
    """The two ways, as an item of the axis ``pair``."""
    solutions: Mapping[str, str]
    """By way, the first of the pair first."""
    mark: str = ""
    """Set by the recipe of the conversations, such as ``red-team``."""

    @property
    def hash(self) -> str:
        """SHA-256 of both texts, hexadecimal."""
        return hashlib.sha256("\0".join(self.solutions.values()).encode("utf-8", "replace")).hexdigest()


@dataclass(frozen=True, slots=True)
class Ballot:
    """A pair as it is shown to a voter."""

    shown: SolutionPair
    left: str
    """The way on the left."""
    right: str
    repeated: bool
    """True if the voter has seen the pair before, the other way round."""
    number: int
    """Its place among the voter's ballots, from 1."""
    total: int


async def read_pairs(solutions: Path) -> list[SolutionPair]:
    """Return the first two solutions of each task of a run of solutions.

    Raises:
        InputError: there are none.
        StoreError: the run cannot be read.
    """
    async with open_store(solutions, read_only=True) as store:
        content = await store.recipe() or {}
        ways = content.get("recipe", {}).get("solutions", {}).get("ways", [])
        pairs = [
            make_pair(session, join_pair(ways[0], ways[1]))
            async for session in store.sessions()
            if len(ways) > 1 and {turn.speaker for turn in session.turns} >= set(ways[:2])
        ]
    if not pairs:
        raise InputError(
            "There are no two solutions of a task to vote on.",
            where=str(solutions),
            next="`bactrian evaluate agents RUN` writes them.",
        )
    return sorted(pairs, key=lambda one: one.session)


def make_pair(session: Session, pair: str) -> SolutionPair:
    """Return a pair of solutions of ``session``, without the words of the protocol."""
    texts = read_solutions(session)
    solutions = {way: texts[way] for way in split_pair(pair)}
    return SolutionPair(session.id, session.task.text, pair, solutions, session.mark or "")


def find_next_ballot(
    pairs: Sequence[SolutionPair],
    votes: Sequence[Vote],
    voter: str,
    *,
    quota: int = QUOTA,
) -> Ballot | None:
    """Return the next pair for ``voter``, or None if nothing is left.

    The order is random, and each solution is on the left for half of the pairs. A pair that ``quota`` others have
    voted on is left out. At the end come the checks of attention.
    """
    draw = Random(derive_seed(0, "ballot", voter))  # noqa: S311
    order = list(pairs)
    draw.shuffle(order)
    sides = [place % 2 == 0 for place in range(len(order))]
    draw.shuffle(sides)
    own = {(one.session, one.repeated): one for one in votes if one.voter == voter}
    full = _find_full(pairs, votes, voter, quota)
    wanted = [
        (one, side)
        for one, side in zip(order, sides, strict=True)
        if (one.session, False) in own or one.session not in full
    ]
    checks = wanted[: round(CHECKED * len(wanted))] if len(wanted) > 1 else []
    total = len(wanted) + len(checks)
    for number, (one, side) in enumerate(wanted, start=1):
        if (one.session, False) not in own:
            first, second = split_pair(one.pair)
            left, right = (first, second) if side else (second, first)
            return Ballot(one, left, right, repeated=False, number=number, total=total)
    for number, (one, _) in enumerate(checks, start=len(wanted) + 1):
        before = own[one.session, False]
        if (one.session, True) not in own and before.choice != "skip":
            first, second = split_pair(one.pair)
            left, right = (second, first) if before.left == first else (first, second)
            return Ballot(one, left, right, repeated=True, number=number, total=total)
    return None


def _find_full(
    pairs: Sequence[SolutionPair], votes: Sequence[Vote], voter: str, quota: int
) -> frozenset[str]:
    """Return the sessions that enough others have voted on, in their present texts."""
    hashes = {one.session: one.hash for one in pairs}
    others = Counter(
        one.session
        for one in votes
        if one.voter != voter
        and not one.repeated
        and one.choice != "skip"
        and hashes.get(one.session) == one.texts
    )
    return frozenset(session for session, count in others.items() if count >= quota)
