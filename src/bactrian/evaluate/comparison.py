"""Compares two ways of solving by a judge's verdicts: shares, the judge's leanings, and how sure all of it is."""

from __future__ import annotations

import json
import zipfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from bactrian.errors import InputError
from bactrian.evaluate.verdicts import JudgedTask, Outcome, read_solutions
from bactrian.files.atomic import write_atomically
from bactrian.stats.bootstrap import (
    RESAMPLES,
    BootstrapEstimate,
    bootstrap_clusters,
    bootstrap_ratios,
    widen_interval,
)
from bactrian.stats.comparisons import (
    compute_sign_test,
    count_tasks_needed,
    fit_length_controlled_rate,
    scale_lengths,
)
from bactrian.store import open_store

OUTCOMES: tuple[Outcome, ...] = ("draw", "loss", "win")
"""In the order of the paper's columns: draw, the other's win, CAMEL's win."""
_GOOD, _BAD = 7.0, 4.0
_WORTH: dict[Outcome, float] = {"win": 1.0, "draw": 0.5, "loss": 0.0}


@dataclass(frozen=True, slots=True)
class PairComparison:
    """What a judge's verdicts say of two ways of solving. Shares are those of the first way."""

    pair: tuple[str, str]
    judge: str
    counts: dict[str, int]
    """Tasks by outcome, and ``unreadable``: tasks with an order in which no reply can be read."""
    shares: dict[str, BootstrapEstimate]
    """Of the tasks that were read, by outcome; and ``win_rate``, with a draw as half a win."""
    as_draws: dict[str, float]
    """The shares if unreadable tasks are counted as draws."""
    each_order: dict[str, dict[str, int]]
    """Verdicts in one order alone, as the paper asked: ``first_shown_first`` and ``second_shown_first``."""
    first_seat: BootstrapEstimate
    """Of the verdicts that name a winner, the share for the solution that was shown first; 0.5 is no preference."""
    consistent: BootstrapEstimate
    """Share of tasks with the same verdict in both orders, ties included."""
    flips: BootstrapEstimate
    """Share of tasks whose winner changes with the order."""
    ties: BootstrapEstimate
    """Share of verdicts with equal scores."""
    repeated: BootstrapEstimate
    """Share of repeated judgements in one order that agree with the first one; undefined without repetitions."""
    unreadable: int
    """Replies that cannot be read."""
    replies: int
    draws: dict[str, int]
    """Draws by the mean of their scores: ``good`` (7 and more), ``bad`` (4 and less), ``middling``."""
    lengths: tuple[float, float]
    """Mean characters of the solutions."""
    longer_wins: BootstrapEstimate
    """Share of the decided tasks that the longer solution wins."""
    length_controlled: BootstrapEstimate
    """The win rate if both solutions were equally long."""
    cut: int
    """Solutions of which the judge was shown only the beginning."""
    p_value: float
    """Of the sign test: wins against losses."""
    tasks_needed: int | None
    """Tasks with which the sign test would find a difference like this one with probability 0.8."""

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON content."""

        def write(value: object) -> object:
            if isinstance(value, BootstrapEstimate):
                return value.to_json()
            if isinstance(value, dict):
                return {key: write(item) for key, item in value.items()}  # type: ignore[misc]
            return list(value) if isinstance(value, tuple) else value  # type: ignore[arg-type]

        return {name: write(getattr(self, name)) for name in self.__dataclass_fields__}


def compare_pair(
    pair: tuple[str, str], judge: str, tasks: Sequence[JudgedTask], *, resamples: int = RESAMPLES
) -> PairComparison:
    """Compute all statistics of the judged ``tasks``, with 95 % intervals by bootstrap over their clusters."""
    outcomes = Counter(task.outcome or "unreadable" for task in tasks)
    groups: defaultdict[str, list[JudgedTask]] = defaultdict(list)
    for task in tasks:
        groups[task.cluster].append(task)
    clusters = list(groups.values())
    rows = [_sum_rows([_measure_task(task) for task in cluster]) for cluster in clusters]
    ratios = dict(zip(_NAMES, bootstrap_ratios(rows, resamples=resamples), strict=True))
    read = len(tasks) - outcomes["unreadable"]
    shares = {name: widen_interval(ratios[name], outcomes[name], read) for name in OUTCOMES}
    of_tasks = {
        name: widen_interval(ratios[name], round((ratios[name].value or 0.0) * read), read)
        for name in ("consistent", "flips")
    }
    controlled = [_list_lengths(cluster) for cluster in clusters]
    (length_controlled,) = bootstrap_clusters(controlled, _control_length, resamples=resamples)
    total = len(tasks)
    as_draws = {name: outcomes[name] / total if total else 0.0 for name in OUTCOMES}
    as_draws["draw"] += outcomes["unreadable"] / total if total else 0.0
    wins, losses = outcomes["win"], outcomes["loss"]
    return PairComparison(
        pair=pair,
        judge=judge,
        counts={name: outcomes[name] for name in (*OUTCOMES, "unreadable")},
        shares={**shares, "win_rate": ratios["win_rate"]},
        as_draws=as_draws,
        each_order={
            "first_shown_first": _count_order(tasks, swapped=False),
            "second_shown_first": _count_order(tasks, swapped=True),
        },
        first_seat=ratios["first_seat"],
        consistent=of_tasks["consistent"],
        flips=of_tasks["flips"],
        ties=ratios["ties"],
        repeated=ratios["repeated"],
        unreadable=sum(judgement.scores is None for task in tasks for judgement in task.judgements),
        replies=sum(len(task.judgements) for task in tasks),
        draws=_split_draws(tasks),
        lengths=(
            fmean([task.lengths[0] for task in tasks]) if tasks else 0.0,
            fmean([task.lengths[1] for task in tasks]) if tasks else 0.0,
        ),
        longer_wins=ratios["longer_wins"],
        length_controlled=length_controlled,
        cut=sum(task.cut for task in tasks),
        p_value=compute_sign_test(wins, losses),
        tasks_needed=count_tasks_needed(shares["win"].value or 0.0, shares["loss"].value or 0.0),
    )


_NAMES = (*OUTCOMES, "win_rate", "first_seat", "consistent", "flips", "ties", "repeated", "longer_wins")
_Row = list[tuple[float, float]]


def _measure_task(task: JudgedTask) -> _Row:
    """Return numerator and denominator of each ratio for one task, in the order of the names."""
    outcome = task.outcome
    read = float(outcome is not None)
    signs = [judgement.sign for judgement in task.judgements]
    # A swapped verdict for the second solution is one for the solution that was shown first.
    seats = [
        sign * (-1 if judgement.swapped else 1)
        for judgement, sign in zip(task.judgements, signs, strict=True)
        if sign
    ]
    straight, swapped = task.find_sign(swapped=False), task.find_sign(swapped=True)
    flipped = bool(outcome) and bool(straight) and bool(swapped) and straight != swapped
    longer = (task.lengths[0] > task.lengths[1]) - (task.lengths[0] < task.lengths[1])
    decided = float(outcome in ("win", "loss") and longer != 0)
    known = sum(sign is not None for sign in signs)
    return [
        *((float(outcome == name), read) for name in OUTCOMES),
        (_WORTH[outcome] if outcome else 0.0, read),
        (float(seats.count(1)), float(len(seats))),
        (float(bool(outcome) and straight == swapped), read),
        (float(flipped), read),
        (float(signs.count(0)), float(known)),
        _compare_repeats(task),
        (float((outcome == "win") == (longer > 0)) if decided else 0.0, decided),
    ]


def _compare_repeats(task: JudgedTask) -> tuple[float, float]:
    """Return how many later judgements in an order agree with its first one, and how many there are."""
    same = total = 0
    for swapped in (False, True):
        first, *others = [
            judgement.sign for judgement in task.judgements if judgement.swapped == swapped
        ] or [None]
        known = [sign for sign in others if sign is not None and first is not None]
        same += sum(sign == first for sign in known)
        total += len(known)
    return float(same), float(total)


def _sum_rows(rows: Sequence[_Row]) -> _Row:
    return [
        (sum(top for top, _ in column), sum(bottom for _, bottom in column))
        for column in zip(*rows, strict=True)
    ]


def _list_lengths(tasks: Sequence[JudgedTask]) -> list[tuple[float, float]]:
    """Return the worth of the outcome and the difference in length of each task that was read."""
    return [
        (_WORTH[task.outcome], float(task.lengths[0] - task.lengths[1])) for task in tasks if task.outcome
    ]


def _control_length(clusters: Sequence[Sequence[tuple[float, float]]]) -> list[float | None]:
    pairs = [pair for cluster in clusters for pair in cluster]
    scaled = scale_lengths([difference for _, difference in pairs])
    return [fit_length_controlled_rate([win for win, _ in pairs], scaled)]


def _count_order(tasks: Sequence[JudgedTask], *, swapped: bool) -> dict[str, int]:
    signs = Counter(task.find_sign(swapped=swapped) for task in tasks)
    return {"draw": signs[0], "loss": signs[-1], "win": signs[1], "unreadable": signs[None]}


def _split_draws(tasks: Sequence[JudgedTask]) -> dict[str, int]:
    levels = [task.mean_score or 0.0 for task in tasks if task.outcome == "draw"]
    good = sum(level >= _GOOD for level in levels)
    bad = sum(level <= _BAD for level in levels)
    return {"good": good, "middling": len(levels) - good - bad, "bad": bad}


# Who won, in one sentence.


def write_winner(comparison: PairComparison, first: str, second: str) -> str:
    """Return which of two ways is better by the judge's verdicts, or that there is no winner yet.

    A way wins if the 95 % interval of its win rate, in which a draw is half a win, leaves out one half.
    """
    rate = comparison.shares["win_rate"]
    if rate.value is None:
        return "No winner: no verdict can be read."
    low, high = (rate.value, rate.value) if rate.low is None or rate.high is None else (rate.low, rate.high)
    best, value, ends = first, rate.value, (low, high)
    if rate.value < 0.5:
        best, value, ends = second, 1 - rate.value, (1 - high, 1 - low)
    win_rate = f"a win rate of {value:.0%} (95 % interval {ends[0]:.0%} to {ends[1]:.0%})"
    if rate.low is not None and ends[0] > 0.5:
        return f"{best} wins, with {win_rate}."
    if value == 0.5:
        return f"No winner: both have {win_rate}."
    needed = f" About {comparison.tasks_needed:,} tasks would show it." if comparison.tasks_needed else ""
    return f"No winner yet: {best} has {win_rate}, which may be chance.{needed}"


# Solutions in the form that CAMEL's voting app (``apps/dilemma``) reads: a zip of JSON files.


async def write_dilemma(solutions: Path, path: Path) -> int:
    """Write the tasks that have an extracted solution and a single answer, and return how many there are.

    The app reads the keys ``specified_task``, ``gpt_solution`` and ``summary``; CAMEL's extractor writes
    ``solution_extraction`` instead of the last one, so both are there.

    Raises:
        InputError: there is none, or the file cannot be written.
    """
    rows: dict[str, dict[str, str]] = {}
    async with open_store(solutions, read_only=True) as store:
        async for session in store.sessions():
            texts = read_solutions(session)
            if texts.keys() >= {"extraction", "single_shot"}:
                rows[f"{session.values['task']}.json"] = {
                    "specified_task": session.task.text,
                    "gpt_solution": texts["single_shot"],
                    "summary": texts["extraction"],
                    "solution_extraction": texts["extraction"],
                }
    if not rows:
        raise InputError("No task has both an extracted solution and a single answer.", where=str(solutions))
    with (
        write_atomically(path) as folder,
        zipfile.ZipFile(folder / path.name, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name, row in rows.items():
            archive.writestr(name, json.dumps(row, ensure_ascii=False, indent=2))
    return len(rows)
