"""Comparisons of solutions as text, in the layout of the paper's table 1."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bactrian.analyze.report_tables import write_table
from bactrian.cli.terminal.console import open_output, say
from bactrian.evaluate.comparison import load_paper
from bactrian.evaluate.comparison_jobs import TITLES

_COLUMNS = ("draw", "loss", "win")


def show_comparison(report: Mapping[str, Any]) -> None:
    """Print a report, and its warnings on standard error."""
    out = open_output()
    out.print(f"{report['solved']} of {report['tasks']} tasks solved in every way.")
    for one in report["comparisons"]:
        first, second = (report["titles"][way] for way in one["pair"])
        out.print()
        write_table(open_output(), ("", "Draw", f"{second} wins", f"{first} wins", "n"), _list_shares(one))
        for line in _describe(one, first, second):
            out.say(line)
        out.print()
        out.say(one["verdict"], style="bold")
    for judge, strengths in report["strengths"].items():
        out.print(f"\nStrengths (Bradley–Terry, log scale), judge {judge}:")
        for way, of in strengths.items():
            out.print(f"  {report['titles'][way]:<28}{_write_number(of)}")
    for warning in report["warnings"]:
        say(f"bactrian: warning: {warning}")


def show_paper(*, as_json: bool) -> None:
    """Print the paper's figures, and what each is compared with."""
    figures = load_paper()["figures"]
    if as_json:
        print(json.dumps(figures, ensure_ascii=False))
        return
    write_table(
        open_output(),
        ("", "Draw", "Other wins", "CAMEL wins", "compared with"),
        [
            (
                f"{row['table']}: {row['data']}, {row['judge']}",
                *(f"{row[name]:.1f}" for name in _COLUMNS),
                f"{TITLES['extraction']} and {TITLES[row['other']]}",
            )
            for row in figures
        ],
    )


def _list_shares(one: Mapping[str, Any]) -> Iterable[Sequence[str]]:
    for row in one["paper"]:
        shares = [f"{row[name]:.1f}" for name in _COLUMNS]
        yield f"paper: {row['data']}, {row['judge']}", *shares, row["table"]
    read = sum(one["counts"][name] for name in _COLUMNS)
    yield f"here, {one['judge']}", *(_write_share(one["shares"][name]) for name in _COLUMNS), f"{read}"
    yield "  95 % interval", *(_write_ends(one["shares"][name]) for name in _COLUMNS), ""
    if one["counts"]["unreadable"]:
        unread = one["counts"]["unreadable"]
        yield (
            "  unreadable as draws",
            *(f"{100 * one['as_draws'][name]:.1f}" for name in _COLUMNS),
            f"{read + unread}",
        )


def _describe(one: Mapping[str, Any], first: str, second: str) -> Iterable[str]:
    yield f"win rate {_write(one['shares']['win_rate'])}, at equal lengths {_write(one['length_controlled'])}"
    yield (
        f"the same verdict in both orders {_write(one['consistent'])}, another winner {_write(one['flips'])}, "
        f"for the answer shown first {_write(one['first_seat'])}"
    )
    lengths = one["lengths"]
    yield (
        f"mean length {lengths[0]:,.0f} ({first}) and {lengths[1]:,.0f} characters ({second}); "
        f"the longer one wins {_write(one['longer_wins'])}"
    )
    draws = one["draws"]
    yield (
        f"draws: {draws['good']} with both good, {draws['bad']} with both bad, {draws['middling']} between; "
        f"{one['unreadable']} of {one['replies']} replies cannot be read"
    )
    needed = one["tasks_needed"]
    yield f"sign test p = {one['p_value']:.3g}" + (
        f"; {needed:,} tasks would show such a difference with power 0.8" if needed else ""
    )


def _write(of: Mapping[str, Any]) -> str:
    return (
        f"{_write_share(of)} %" + (f" [{_write_ends(of)}]" if of["low"] is not None else "")
        if of["value"] is not None
        else "–"
    )


def _write_share(of: Mapping[str, Any]) -> str:
    return "–" if of["value"] is None else f"{100 * of['value']:.1f}"


def _write_ends(of: Mapping[str, Any]) -> str:
    return "–" if of["low"] is None else f"{100 * of['low']:.1f}–{100 * of['high']:.1f}"


def _write_number(of: Mapping[str, Any]) -> str:
    if of["value"] is None:
        return "–"
    return f"{of['value']:+.2f}" + (
        f" [{of['low']:+.2f}, {of['high']:+.2f}]" if of["low"] is not None else ""
    )
