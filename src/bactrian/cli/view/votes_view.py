"""What the votes on pairs of solutions say, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from bactrian.evaluate.comparison_jobs import TITLES


def show_tally(out: Console, tally: Mapping[str, Any]) -> None:
    """Print what the votes say."""
    first, second = (TITLES.get(way, way) for way in tally["pair"])
    out.print(
        f"{tally['votes']} votes of {tally['voters']} voters on {tally['tasks']} of {tally['pairs']} pairs"
    )
    for title, key in (("all votes", "pooled"), ("mean of the tasks", "by_task")):
        shares = tally[key]
        if shares:
            out.print(
                f"{title}: draw {_write(shares['draw'])}, {second} {_write(shares['loss'])}, "
                f"{first} {_write(shares['win'])}"
            )
    for row in tally["paper"]:
        out.print(
            f"paper, {row['table']}: draw {row['draw']} %, {second} {row['loss']} %, {first} {row['win']} %"
        )
    out.print(f"votes for the left: {_write_rate(tally['left'])}")
    out.print(f"repeated votes that agree: {_write_rate(tally['attention'])}")
    out.print(f"agreement of the voters (Krippendorff's alpha): {_write_agreement(tally['alpha'])}")
    for judge, kappa in tally["kappa"].items():
        out.print(f"agreement with {judge} (Cohen's kappa): {_write_agreement(kappa)}")
    if tally["changed"]:
        out.print(f"{tally['changed']} votes are set aside: their texts have changed.")


def _write(of: Mapping[str, Any]) -> str:
    ends = "" if of["low"] is None else f" [{100 * of['low']:.1f}–{100 * of['high']:.1f}]"
    return f"{100 * of['value']:.1f} %{ends}"


def _write_rate(of: Mapping[str, Any]) -> str:
    if of["rate"] is None:
        return "–"
    return f"{of['count']} of {of['total']} ({100 * of['rate']:.1f} % [{100 * of['low']:.1f}–{100 * of['high']:.1f}])"


def _write_agreement(of: Mapping[str, Any]) -> str:
    if of["value"] is None:
        return f"not defined ({of['items']} tasks)"
    ends = "" if of["low"] is None else f" [{of['low']:.2f}, {of['high']:.2f}]"
    return f"{of['value']:.2f}{ends} ({of['items']} tasks)"
