"""What the stages of a training know, as text: exact answers, and judged pairs in the layout of table 2."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from bactrian.cli.terminal.console import open_output
from bactrian.records.text import to_printable


def show_matrix(report: Mapping[str, Any]) -> None:
    """Print the report of a known-answer experiment, and its warnings on standard error."""
    out = open_output()
    titles: Mapping[str, str] = report["titles"]
    table = Table(
        "", *titles.values(), "never taught", "form", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    for column in table.columns[1:]:
        column.justify = "right"
    table.columns[0].no_wrap = True
    for number, stage in enumerate(report["stages"]):
        cells = [*(stage["domains"].get(key) for key in titles), stage["untaught"], stage["in_form"]]
        name = stage["stage"] if number == 0 else f"+ {titles.get(stage['stage'], stage['stage'])}"
        table.add_row(name, *map(_write_share, cells))
        table.add_row("  over facts", *map(_write_interval, cells), style="dim")
        if len(report["seeds"]) > 1:
            table.add_row("  over seeds", *map(_write_seeds, cells), style="dim")
    out.print(f"Right answers in %, {_describe_size(report)}, with 95 % intervals:")
    out.print_table(table)
    out.print()
    for claim in report["claims"]:
        out.print(_describe_claim(claim, titles))
    of = "Each domain" if len(report["claims"]) == len(titles) else "Each of these domains"
    out.print(
        f"{of} appears at its own stage and not before."
        if report["holds"]
        else "NOT shown: that each domain appears at its own stage and not before."
    )
    for warning in report["warnings"]:
        print(to_printable(f"bactrian: warning: {warning}"), file=sys.stderr)


def _describe_size(report: Mapping[str, Any]) -> str:
    seeds = report["seeds"]
    count = f"{len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}"
    return f"{report['facts']} facts a domain in {report['asked']} wordings that were never trained, {count}"


def _describe_claim(claim: Mapping[str, Any], titles: Mapping[str, str]) -> str:
    gain, before = claim["gain"], claim["before"]
    return (
        f"{titles[claim['domain']]}: gains {_write_points(gain)} at its own stage; "
        f"before it {_write_share(before)} % [{_write_interval(before)}], guessing {100 * claim['guessing']:.1f} %: "
        f"{'appears' if claim['appears'] else 'does NOT appear'} at its stage, "
        f"{'is absent' if claim['absent_before'] else 'is NOT shown to be absent'} before."
    )


def _write_points(of: Mapping[str, Any]) -> str:
    ends = "" if of["low"] is None else f" [{100 * of['low']:+.1f}, {100 * of['high']:+.1f}]"
    return f"{100 * of['value']:+.1f} points{ends}"


def _write_share(of: Mapping[str, Any] | None) -> str:
    return "–" if of is None or of["value"] is None else f"{100 * of['value']:.1f}"


def _write_interval(of: Mapping[str, Any] | None) -> str:
    return "" if of is None or of["low"] is None else f"{100 * of['low']:.0f}–{100 * of['high']:.0f}"


def _write_seeds(of: Mapping[str, Any] | None) -> str:
    if of is None or of["low_over_seeds"] is None:
        return ""
    return f"{100 * of['low_over_seeds']:.0f}–{100 * of['high_over_seeds']:.0f}"


def show_stages(report: Mapping[str, Any]) -> None:
    """Print the report on judged pairs of stages, and its warnings on standard error."""
    out = open_output()
    judges = list(dict.fromkeys(row["judge"] for row in report["rows"]))
    for judge in judges:
        heads = ("model 1", "model 2", "draw", "1", "2", "paper", "good/bad", "2's rate")
        table = Table(*heads, box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for column in table.columns[2:]:
            column.justify = "right"
            column.no_wrap = True
        shown = ""
        for row in report["rows"]:
            if row["judge"] == judge:
                if row["questions"] != shown:
                    shown = row["questions"]
                    table.add_row(shown, style="bold")
                table.add_row(*_list_cells(row))
        out.print(
            f"Judge {judge}: questions by winner. Beside them table 2 of the paper (draw/1/2, judge GPT-4),"
        )
        out.print(
            "draws with both good and both bad, and 2's win rate in %, a draw as half, with its 95 % interval."
        )
        out.print_table(table)
        out.print()
        for stage, of in report["strengths"].get(judge, {}).items():
            ends = "" if of["low"] is None else f" [{of['low']:+.2f}, {of['high']:+.2f}]"
            value = "–" if of["value"] is None else f"{of['value']:+.2f}"
            out.print(f"strength (Bradley–Terry) {report['titles'][stage]:<16}{value}{ends}")
    for warning in report["warnings"]:
        print(to_printable(f"bactrian: warning: {warning}"), file=sys.stderr)


def _list_cells(row: Mapping[str, Any]) -> Sequence[str]:
    paper = row["paper"]
    rate = row["second_rate"]
    beside = "" if paper is None else f"{paper['draw']}/{paper['first_wins']}/{paper['second_wins']}"
    return (
        row["first"],
        row["second"],
        *(str(row[key]) for key in ("draw", "first_wins", "second_wins")),
        beside,
        f"{row['draws']['good']}/{row['draws']['bad']}",
        f"{_write_share(rate)} [{_write_interval(rate)}]",
    )
