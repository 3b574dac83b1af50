"""Votes of people: which pair a voter is shown next, how votes are stored, and what they say.

Everything follows from the voter's pseudonym and the votes so far, so that a voter can stop and resume at any time.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from bactrian.errors import InputError, RunInUse
from bactrian.evaluate.comparison import OUTCOMES, describe_solutions, find_figures
from bactrian.evaluate.verdicts import Outcome, join_pair, read_judged_tasks, read_solutions, split_pair
from bactrian.models.model import derive_seed
from bactrian.records.run import PREFERENCES, Vote
from bactrian.records.session import Session
from bactrian.records.text import clean_text
from bactrian.stats.clusters import estimate_ratio
from bactrian.stats.comparisons import Agreement, measure_alpha, measure_kappa
from bactrian.stats.intervals import Proportion
from bactrian.store import open_store

QUOTA = 3  # Votes on a pair, by different people, after which others come first
CHECKED = 0.1  # Share of the pairs that are shown a second time, the other way round
# How to vote, in seven points.
GUIDELINE: tuple[str, ...] = (
    "The aim is to learn which of two solutions of a task helps more.",
    "Read the task and both solutions, then give one vote for each pair.",
    "Look at four things: is it clear, correct, complete and useful?",
    "You are not told who wrote what, and your votes carry only a pseudonym.",
    "Be fair: neither length nor style nor the side decides.",
    "Vote on as many pairs as you like. Some come twice.",
    "You may add a comment to your vote.",
)


@dataclass(frozen=True, slots=True)
class SolutionPair:
    """Two solutions of a task."""

    session: str
    task: str
    pair: str  # The two ways, as an item of the axis `pair`
    solutions: Mapping[str, str]  # By way, the first of the pair first
    mark: str = ""  # Set by the recipe of the conversations, such as `red-team`

    @property
    def hash(self) -> str:
        """SHA-256 of both texts, hexadecimal."""
        return hashlib.sha256("\0".join(self.solutions.values()).encode("utf-8", "replace")).hexdigest()


@dataclass(frozen=True, slots=True)
class Ballot:
    """A pair as it is shown to a voter."""

    shown: SolutionPair
    left: str  # The way on the left
    right: str
    repeated: bool  # True if the voter has seen the pair before, the other way round
    number: int  # Its position among the voter's ballots, from 1
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
    return sorted(pairs, key=lambda pair: pair.session)


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
    sides = [position % 2 == 0 for position in range(len(order))]
    draw.shuffle(sides)
    cast = {(vote.session, vote.repeated): vote for vote in votes if vote.voter == voter}
    others = Counter(vote.session for vote in _select_counted(pairs, votes)[1] if vote.voter != voter)
    wanted = [
        (pair, side)
        for pair, side in zip(order, sides, strict=True)
        if (pair.session, False) in cast or others[pair.session] < quota
    ]
    checks = wanted[: round(CHECKED * len(wanted))] if len(wanted) > 1 else []
    total = len(wanted) + len(checks)
    for number, (pair, side) in enumerate(wanted, start=1):
        if (pair.session, False) not in cast:
            first, second = split_pair(pair.pair)
            left, right = (first, second) if side else (second, first)
            return Ballot(pair, left, right, repeated=False, number=number, total=total)
    for number, (pair, _) in enumerate(checks, start=len(wanted) + 1):
        before = cast[pair.session, False]
        if (pair.session, True) not in cast and before.choice != "skip":
            first, second = split_pair(pair.pair)
            left, right = (second, first) if before.left == first else (first, second)
            return Ballot(pair, left, right, repeated=True, number=number, total=total)
    return None


def _select_counted(pairs: Sequence[SolutionPair], votes: Sequence[Vote]) -> tuple[list[Vote], list[Vote]]:
    """Return the votes on the present texts, and those of them that count: first votes that choose something."""
    hashes = {pair.session: pair.hash for pair in pairs}
    valid = [vote for vote in votes if hashes.get(vote.session) == vote.texts]
    return valid, [vote for vote in valid if not vote.repeated and vote.choice != "skip"]


# Stores a vote, for any number of voters at once.


# Seconds to wait while others write the run: a vote takes milliseconds, and a person looks at the page
# meanwhile.
_LONGEST_WAIT = 5.0
_PAUSE = 0.05
_LONGEST_NAME, _LONGEST_COMMENT = 64, 4000


async def cast_vote(
    solutions: Path, ballot: Ballot, voter: str, choice: str, *, comment: str = "", seconds: float = 0.0
) -> Vote:
    """Store a vote on ``ballot``, and return it when it is on disk.

    Args:
        solutions: The run that contains the solutions.
        ballot: As it was shown.
        voter: A pseudonym, at most 64 characters.
        choice: One of ``left``, ``right``, ``equal``, ``both_bad`` and ``skip``.
        comment: What the voter wrote about it.
        seconds: From showing the pair to the vote.

    Raises:
        InputError: the vote is not valid, or the texts have changed since they were shown; nothing is stored.
        RunInUse: another process writes the run for longer than a vote can wait.
    """
    shown = ballot.shown
    if choice not in PREFERENCES:
        raise InputError(f"{choice!r} is not a vote.", next=f"One of {', '.join(PREFERENCES)}.")
    if not voter.strip() or len(voter) > _LONGEST_NAME:
        raise InputError(
            "A voter's name has 1 to 64 characters.", where=voter[:80], next="Give a shorter name."
        )
    vote = Vote(
        shown.session,
        shown.pair,
        clean_text(voter),
        ballot.repeated,
        ballot.left,
        choice,
        clean_text(comment.strip())[:_LONGEST_COMMENT],
        shown.hash,
        seconds,
    )
    deadline = asyncio.get_running_loop().time() + _LONGEST_WAIT
    while True:
        try:
            async with open_store(solutions) as store:
                session = await store.session(shown.session)
                if session is None or make_pair(session, shown.pair).hash != shown.hash:
                    raise InputError(
                        f"The solutions of task {shown.session} have changed since they were shown.",
                        where=str(solutions),
                        next="The vote was not counted. Look at the pair again.",
                    )
                await store.add_vote(vote)
                return vote
        except RunInUse:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(_PAUSE)


# What the votes say: shares, agreement among people and with a judge, and attention.


def count_votes(
    pairs: Sequence[SolutionPair],
    votes: Sequence[Vote],
    judged: Mapping[str, Mapping[str, Outcome]] | None = None,
) -> dict[str, Any]:
    """Return the tally of ``votes`` as JSON content.

    Shares are of the first solution of the pair; "equal" and "both bad" are draws. Votes on texts that have changed
    since are set aside and counted.

    Args:
        pairs: The pairs as they are now.
        votes: All votes of the run.
        judged: For each judge, the outcome by session.
    """
    valid, counted = _select_counted(pairs, votes)
    by_task: defaultdict[str, dict[str, Outcome]] = defaultdict(dict)
    for vote in counted:
        by_task[vote.session][vote.voter] = find_outcome(vote)
    names = split_pair(pairs[0].pair) if pairs else ("", "")
    majority: dict[str, Outcome] = {
        session: _find_majority(list(cast.values())) for session, cast in by_task.items()
    }
    kappa: dict[str, Any] = {}
    for judge, outcomes in (judged or {}).items():
        both = [(majority[session], outcomes[session]) for session in majority if session in outcomes]
        same = Proportion(sum(people == verdict for people, verdict in both), len(both))
        agreement = measure_kappa([people for people, _ in both], [verdict for _, verdict in both])
        kappa[judge] = {**write_agreement(agreement), "same": _write_proportion(same)}
    left = sum(vote.choice == "left" for vote in counted)
    sided = sum(vote.choice in ("left", "right") for vote in counted)
    return {
        "pair": list(names),
        "pairs": len(pairs),
        "voters": len({vote.voter for vote in counted}),
        "votes": len(counted),
        "repeated": sum(vote.repeated for vote in valid),
        "tasks": len(by_task),
        "choices": dict(Counter(vote.choice for vote in valid if not vote.repeated)),
        "changed": len(votes) - len(valid),
        **_measure_shares(list(by_task.values())),
        "left": _write_proportion(Proportion(left, sided)),
        "attention": _write_proportion(_check_attention(valid)),
        "alpha": write_agreement(measure_alpha([list(cast.values()) for cast in by_task.values()])),
        "kappa": kappa,
        "seconds": fmean([vote.seconds for vote in counted]) if counted else None,
        "comments": [
            {"session": vote.session, "voter": vote.voter, "comment": vote.comment}
            for vote in valid
            if vote.comment
        ],
        "paper": [],  # Its figures, where the setting is the paper's
    }


def compare_voter(pairs: Sequence[SolutionPair], votes: Sequence[Vote], voter: str) -> dict[str, Any]:
    """Return how one voter agrees with that voter's repeated votes and with the majority of the others, as JSON."""
    valid, counted = _select_counted(pairs, votes)
    outcomes = {vote.session: find_outcome(vote) for vote in counted if vote.voter == voter}
    others: defaultdict[str, list[Outcome]] = defaultdict(list)
    for vote in counted:
        if vote.voter != voter:
            others[vote.session].append(find_outcome(vote))
    common = [session for session in outcomes if others[session]]
    same = sum(outcomes[session] == _find_majority(others[session]) for session in common)
    return {
        "votes": len(outcomes),
        "attention": _write_proportion(_check_attention([vote for vote in valid if vote.voter == voter])),
        "others": _write_proportion(Proportion(same, len(common))),
    }


def find_outcome(vote: Vote) -> Outcome:
    """Return what a vote says of the first solution of its pair."""
    if vote.preferred is None:
        return "draw"
    return "win" if vote.preferred == split_pair(vote.pair)[0] else "loss"


def _measure_shares(tasks: Sequence[Mapping[str, Outcome]]) -> dict[str, Any]:
    """Return shares over all votes, and the mean over tasks of the shares of each task."""
    counts = [Counter(cast.values()) for cast in tasks]
    totals = sum(counts, Counter[Outcome]())
    pooled = [[(float(count[name]), float(count.total())) for name in OUTCOMES] for count in counts]
    by_task = [[(count[name] / count.total(), 1.0) for name in OUTCOMES] for count in counts]

    def estimate(rows: Sequence[Sequence[tuple[float, float]]]) -> dict[str, Any]:
        if not rows:
            return {}
        # A task counts as one observation, however many vote on it.
        return {
            name: estimate_ratio((row[column] for row in rows), name="task").to_json()
            for column, name in enumerate(OUTCOMES)
        }

    return {
        "counts": {name: totals[name] for name in OUTCOMES},
        "pooled": estimate(pooled),
        "by_task": estimate(by_task),
    }


def _find_majority(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome with the most votes; a draw if two have as many."""
    (first, most), *others = Counter(outcomes).most_common()
    return "draw" if others and others[0][1] == most else first


def _check_attention(votes: Sequence[Vote]) -> Proportion:
    """Return how many of the repeated votes agree with the first vote."""
    before = {(vote.voter, vote.session): vote for vote in votes if not vote.repeated}
    pairs = [
        (first, again)
        for again in votes
        if again.repeated and again.choice != "skip" and (first := before.get((again.voter, again.session)))
    ]
    return Proportion(sum(find_outcome(first) == find_outcome(again) for first, again in pairs), len(pairs))


def write_agreement(agreement: Agreement) -> dict[str, Any]:
    known = agreement.value == agreement.value
    low, high = agreement.interval or (None, None)
    estimate = {
        "value": agreement.value if known else None,
        "low": low,
        "high": high,
        "items": agreement.items,
    }
    return estimate | ({"withheld": agreement.withheld} if agreement.withheld else {})


def _write_proportion(share: Proportion) -> dict[str, Any]:
    low, high = share.interval or (None, None)
    rate = share.rate if share.total else None
    return {"count": share.count, "total": share.total, "rate": rate, "low": low, "high": high}


# The votes of one evaluation: where they are stored, and their results.


_SOLUTIONS = "solutions.db"


def name_solutions(folder: Path) -> Path:
    """Return the run of the solutions in the folder of an evaluation."""
    return folder / _SOLUTIONS


def name_folder(run: Path, out: str | Path | None = None, kind: str = "agents") -> Path:
    """Return the folder of an evaluation of ``run``: beside it, unless ``out`` names another."""
    return Path(out or run.with_name(f"{run.stem}.{kind}")).absolute()


def find_study(path: Path) -> Path | None:
    """Return the folder of the evaluation that ``path`` names; None if it has no solutions.

    Args:
        path: A run that was evaluated, the run of its solutions, or the folder of the evaluation.
    """
    if path.is_dir():
        folder = path.absolute()
    else:
        folder = path.absolute().parent if path.name == _SOLUTIONS else name_folder(path)
    return folder if name_solutions(folder).is_file() else None


async def read_votes(folder: Path) -> list[Vote]:
    """Return all votes of an evaluation. Raises StoreError."""
    async with open_store(name_solutions(folder), read_only=True) as store:
        return await store.votes()


async def read_tally(folder: Path) -> dict[str, Any]:
    """Return what all votes of an evaluation say, as JSON content: see :func:`count_votes`.

    Raises:
        InputError: there are no two solutions of a task.
        StoreError: a run cannot be read.
    """
    solutions = name_solutions(folder)
    pairs, votes = await read_pairs(solutions), await read_votes(folder)
    state = await describe_solutions(solutions)
    judges: dict[str, dict[str, Outcome]] = {}
    for path in await asyncio.to_thread(lambda: sorted(folder.glob("verdicts.*.db"))):
        for pair, tasks in (await read_judged_tasks(solutions, path)).items():
            if join_pair(*pair) == pairs[0].pair:
                name = path.name.removeprefix("verdicts.").removesuffix(".db").removesuffix(".cut")
                judges.setdefault(name, {}).update(
                    {task.task: task.outcome for task in tasks if task.outcome}
                )
    figures = find_figures(split_pair(pairs[0].pair), state["recipe"], ablated=state["ablated"], people=True)
    return {**count_votes(pairs, votes, judges), "titles": state["titles"], "paper": figures}
