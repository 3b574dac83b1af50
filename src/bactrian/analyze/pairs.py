"""Paired comparison: two runs on the same jobs, so that differences between the jobs do not count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from bactrian.analyze.aggregate import Aggregate
from bactrian.analyze.excerpts import choose_pairs
from bactrian.analyze.report import COOPERATION, PAPER, to_interval_object
from bactrian.analyze.session_summary import UNFINISHED, SessionSummary
from bactrian.stats.proportion import PairedProportions
from bactrian.stats.streaming import StreamingMean

Pair = tuple[SessionSummary, SessionSummary]
_MEANS: dict[str, Callable[[SessionSummary], float]] = {
    "messages": lambda one: one.messages,
    "solved": lambda one: one.solved,
    "tokens": lambda one: one.usage.total,
}


def compare_pairs(before: Aggregate, after: Aggregate) -> dict[str, Any] | None:
    """Return the differences of sessions on the same job, each with its 95 % interval; None if there are no pairs.

    A pair has the same id, roles and original task in both runs, and has ended in both. Intervals are Newcombe's for
    paired shares, and normal ones for means of differences; None for a mean of fewer than two pairs.
    """
    pairs = match_jobs(before.facts, after.facts)
    if not pairs:
        return None
    codes = tuple(dict.fromkeys((*before.behaviours, *after.behaviours)))
    endings = tuple(Counter(one.ending for pair in pairs for one in pair))
    return {
        "pairs": len(pairs),
        "same_tasks": sum(a.task == b.task for a, b in pairs),
        "endings": {code: _compare(pairs, lambda one, code=code: one.ending == code) for code in endings},
        "behaviours": {
            code: _compare(pairs, lambda one, code=code: code in one.behaviours) for code in codes
        },
        COOPERATION: _compare(pairs, lambda one: not one.behaviours.isdisjoint(PAPER)),
        "examples": choose_pairs(pairs),
        "means": {name: _compare_means(pairs, value) for name, value in _MEANS.items()},
    }


def match_jobs(before: Sequence[SessionSummary], after: Sequence[SessionSummary]) -> list[Pair]:
    """Return the sessions on the same job that have ended in both runs, in the order of the first run."""
    ended = {one.job: one for one in after if one.ending != UNFINISHED}
    return [(one, ended[one.job]) for one in before if one.ending != UNFINISHED and one.job in ended]


def _compare(pairs: Sequence[Pair], shows: Callable[[SessionSummary], bool]) -> dict[str, Any]:
    counts = Counter((shows(a), shows(b)) for a, b in pairs)
    found = PairedProportions(
        counts[True, True], counts[True, False], counts[False, True], counts[False, False]
    )
    return {
        "before": found.first.rate,
        "after": found.second.rate,
        "only_before": found.only_first,
        "only_after": found.only_second,
        "difference": found.difference,
        **to_interval_object(found.interval),
    }


def _compare_means(pairs: Sequence[Pair], value: Callable[[SessionSummary], float]) -> dict[str, Any]:
    first, second, change = StreamingMean(), StreamingMean(), StreamingMean()
    for a, b in pairs:
        first.add(value(a))
        second.add(value(b))
        change.add(value(b) - value(a))
    return {
        "before": first.value,
        "after": second.value,
        "difference": change.value,
        **to_interval_object(change.interval),
    }
