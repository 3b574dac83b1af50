"""Comparison of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bactrian.analyze.aggregate import Aggregate
from bactrian.analyze.pairs import compare_pairs
from bactrian.analyze.report import (
    COOPERATION,
    Json,
    count_behaviours,
    count_endings,
    measure_cooperation,
    resample_behaviour,
    to_interval_object,
)
from bactrian.detect.loops import LOOP
from bactrian.stats.proportion import Proportion

MEANS = {
    "messages": ("messages", "sessions"),
    "solved": ("solved", "sessions"),
    "tokens": ("tokens", "sessions"),
    "cached_share": ("cached", "prompt"),
}
"""Ratios of two sums that are compared besides shares of sessions."""


def compare_reports(before: Aggregate, after: Aggregate) -> dict[str, Any]:
    """Return the differences between two runs, each with its 95 % interval.

    Intervals are Newcombe's for shares of sessions, and bootstrapped over sessions for numbers of turns or tokens. If
    an interval contains 0, the difference may be due to chance. ``paired`` compares the sessions on the same jobs.
    """
    a, b = count_endings(before.facts), count_endings(after.facts)
    nothing = (Proportion(0, len(before.facts)), Proportion(0, len(after.facts)))
    codes = tuple(dict.fromkeys((*before.behaviours, *after.behaviours)))
    shown_a, shown_b = count_behaviours(before.facts, codes), count_behaviours(after.facts, codes)
    sums_a, sums_b = resample_behaviour(before.facts, codes), resample_behaviour(after.facts, codes)
    turns = {f"{code} {speaker}": speaker for code in codes for speaker in ("user", "assistant")}
    ratios = {
        name: {
            "before": sums_a.ratio(*of),
            "after": sums_b.ratio(*of),
            "difference": sums_b.ratio(*of) - sums_a.ratio(*of),
            **to_interval_object(sums_b.difference_interval(sums_a, *of)),
        }
        for name, of in {**MEANS, **{name: (name, speaker) for name, speaker in turns.items()}}.items()
    }
    return {
        "endings": {
            code: _difference(a.get(code, nothing[0]), b.get(code, nothing[1])) for code in {**a, **b}
        },
        "behaviours": {
            code: {
                **_difference(shown_a[code], shown_b[code]),
                "turns": {speaker: ratios[f"{code} {speaker}"] for speaker in ("user", "assistant")},
            }
            for code in codes
        },
        COOPERATION: _difference(measure_cooperation(before.facts), measure_cooperation(after.facts)),
        "means": {name: ratios[name] for name in MEANS},
        "paired": compare_pairs(before, after),
    }


def _difference(before: Proportion, after: Proportion) -> dict[str, Any]:
    return {
        "before": before.rate,
        "after": after.rate,
        "difference": after.rate - before.rate,
        **to_interval_object(after.difference_interval(before)),
    }


def list_comparison(reports: Sequence[Json], changes: Sequence[Json]) -> list[tuple[str, str, list[str]]]:
    """Return the rows of a table that compares several runs: kind, name and a cell for each run.

    Endings and behaviours are shares of sessions, as in figures 8 and 9 of the paper; flake replies are counted by
    conversation, as in figure 10. A star marks a share whose difference from the first run leaves out 0.

    Args:
        reports: The reports on the runs.
        changes: The differences of each run but the first from the first.
    """
    rows: list[tuple[str, str, list[str]]] = []
    for kind in ("endings", "behaviours"):
        for code in dict.fromkeys(code for report in reports for code in report[kind]):
            rates = [report[kind].get(code, {}).get("rate", 0.0) for report in reports]
            if any(rates):
                stars = ["", *(_star(change[kind].get(code)) for change in changes)]
                cells = [f"{rate:.1%}{star}" for rate, star in zip(rates, stars, strict=True)]
                rows.append((kind.removesuffix("s"), code, cells))
    rates = [report[COOPERATION]["rate"] for report in reports]
    stars = ["", *(_star(change[COOPERATION]) for change in changes)]
    rows.append(
        ("behaviour", COOPERATION, [f"{rate:.1%}{star}" for rate, star in zip(rates, stars, strict=True)])
    )
    counts = [report["behaviours"]["flake_reply"]["per_session"]["mean"] for report in reports]
    rows.append(("a session", "flake replies", [f"{count:.2f}" for count in counts]))
    firsts = [report["behaviours"][LOOP]["first_turn"]["mean"] for report in reports]
    rows.append(
        ("mean", "first turn of loops", ["–" if first is None else f"{first:.1f}" for first in firsts])
    )
    rows.append(
        ("a session", "messages", [f"{report['length']['messages']['mean']:.1f}" for report in reports])
    )
    return rows


def _star(change: Json | None) -> str:
    sure = change is not None and change["low"] is not None and not change["low"] <= 0 <= change["high"]
    return " *" if sure else ""
