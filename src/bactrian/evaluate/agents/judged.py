"""Reads the verdicts of a judge on pairs of solutions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

from bactrian.evaluate.agents.scores import read_scores
from bactrian.evaluate.agents.verdict_jobs import SMALL_LONGEST, read_solutions, split_pair
from bactrian.models.registry import find_traits
from bactrian.records.session import Session
from bactrian.store import open_store

Outcome = Literal["win", "draw", "loss"]
"""Of the first solution of the pair."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """One reply of a judge about a pair."""

    swapped: bool
    """True if the second solution of the pair was shown first."""
    scores: tuple[float, float] | None
    """Of the first and the second solution of the pair; None if the reply cannot be read."""

    @property
    def sign(self) -> int | None:
        """1 if the first solution has the higher score, -1 if the second has, 0 for equal scores; None if unread."""
        return None if self.scores is None else _compare(*self.scores)


@dataclass(frozen=True, slots=True)
class JudgedTask:
    """A task with the judgements on a pair of its solutions."""

    task: str
    """Id of its session in the run of solutions."""
    cluster: str
    """Tasks of one cluster are resampled together: the task itself, or its pair of roles."""
    judgements: tuple[Judgement, ...]
    lengths: tuple[int, int]
    """Characters of the two solutions."""
    cut: int = 0
    """Solutions of which the judge was shown only the beginning."""

    def find_sign(self, *, swapped: bool) -> int | None:
        """Return the sign of the mean difference in scores in one order; None if no reply there can be read."""
        known = [one.scores for one in self.judgements if one.swapped == swapped and one.scores is not None]
        if not known:
            return None
        return _compare(sum(first for first, _ in known), sum(second for _, second in known))

    @property
    def outcome(self) -> Outcome | None:
        """A win or loss if the same solution wins in both orders, else a draw; None if an order was not read."""
        straight, swapped = self.find_sign(swapped=False), self.find_sign(swapped=True)
        if straight is None or swapped is None:
            return None
        if straight == swapped and straight:
            return "win" if straight > 0 else "loss"
        return "draw"

    @property
    def mean_score(self) -> float | None:
        """The mean of all scores of both solutions; None if no reply can be read."""
        scores = [score for one in self.judgements if one.scores is not None for score in one.scores]
        return fmean(scores) if scores else None


async def read_judged_tasks(
    solutions: Path, verdicts: Path, *, by_roles: bool = False
) -> dict[tuple[str, str], list[JudgedTask]]:
    """Return the judged tasks of a run of verdicts by pair, in the order of the tasks.

    A task without both solutions or without all its judgements is left out. ``by_roles`` makes the pair of roles the
    cluster of a task.

    Raises:
        StoreError: a run cannot be read.
    """
    async with open_store(verdicts, read_only=True) as store:
        judged = [
            session
            async for session in store.sessions()
            if "pair" in session.values and session.ending is not None and session.ending.code == "answered"
        ]
    wanted = {session.values["task"] for session in judged}
    async with open_store(solutions, read_only=True) as store:
        solved = {session.id: session async for session in store.sessions() if session.id in wanted}
    tasks: dict[tuple[str, str], list[JudgedTask]] = {}
    for session in sorted(judged, key=lambda one: one.id):
        source = solved.get(session.values["task"])
        pair = split_pair(session.values["pair"])
        texts = {} if source is None else read_solutions(source)
        if source is not None and texts.keys() >= set(pair):
            lengths = len(texts[pair[0]]), len(texts[pair[1]])
            tasks.setdefault(pair, []).append(
                JudgedTask(
                    source.id,
                    _name_cluster(source, by_roles=by_roles),
                    tuple(_read_judgements(session)),
                    lengths,
                    _count_cut(session, lengths),
                )
            )
    return tasks


def _name_cluster(solved: Session, *, by_roles: bool) -> str:
    roles = solved.values.get("assistant_role"), solved.values.get("user_role")
    return f"{roles[0]} × {roles[1]}" if by_roles and all(roles) else solved.id


def _read_judgements(session: Session) -> Iterable[Judgement]:
    for turn in session.turns:
        swapped = turn.number % 2 == 0
        scores = read_scores(turn.text)
        if scores is not None and swapped:
            scores = scores[1], scores[0]
        yield Judgement(swapped, scores)


def _count_cut(session: Session, lengths: tuple[int, int]) -> int:
    small = any(find_traits(name).small for name in session.provenance.models.values())
    return sum(length > SMALL_LONGEST for length in lengths) if small else 0


def _compare(first: float, second: float) -> int:
    return (first > second) - (first < second)
