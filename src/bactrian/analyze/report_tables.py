"""A report as tables of text, on a terminal or in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bactrian.analyze.compare import list_comparison
from bactrian.analyze.page.verdict import write_comparison_verdict
from bactrian.analyze.report import COOPERATION, Json
from bactrian.analyze.session_summary import UNFINISHED
from bactrian.analyze.text_table import write_sentence, write_table
from bactrian.language.escape import to_line
from bactrian.records.text import write_count, write_dollars

if TYPE_CHECKING:
    from rich.console import Console

_SHOWN = 5
"""Roles and pairs that are listed; the JSON and the page have all."""
WIDE = 110
"""Columns of a table where no terminal says how many there are."""


def write_report(console: Console, report: Json) -> None:
    """Write the report on one run to ``console``."""
    _overview(console, report)
    write_table(
        console,
        ("ending", "sessions", "share (95 %)"),
        ((code, f"{of['count']:,}", _rate(of)) for code, of in report["endings"].items()),
    )
    _behaviours(console, report)
    _groups(console, report)
    _diversity(console, report["diversity"])
    if "judged" in report:
        _judged(console, report["judged"])
        if corrected := report["judged"].get("corrected"):
            _corrected(console, corrected)
    for title in ("worst", "best"):
        if report[title]:
            write_sentence(console, f"{title.capitalize()} conversations:")
            for one in report[title]:
                write_sentence(console, f"  {to_line(_session(one))}")
    if unfinished := report["endings"].get(UNFINISHED):
        write_sentence(console, f"Not ended: {unfinished['count']:,}; the numbers change when they do.")


def write_differences(console: Console, reports: Sequence[Json], changes: Json) -> None:
    """Write what differs between two runs. A star marks a difference whose interval leaves out 0."""
    before, after = (to_line(report["run"]) for report in reports)
    sizes = " and ".join(f"{report['sessions']:,}" for report in reports)
    write_sentence(
        console, f"{before} and {after}: {sizes} sessions. Differences are {after} minus {before}."
    )
    heads = (before, after, "difference", "95 % interval", "")
    paired = changes["paired"]
    if paired is None or not all(paired["pairs"] == report["sessions"] for report in reports):
        _write_changes(console, changes, heads)
    if paired is not None:
        same = "all" if paired["same_tasks"] == paired["pairs"] else f"{paired['same_tasks']:,}"
        write_sentence(
            console,
            f"\n{paired['pairs']:,} jobs ended in both, {same} of them on the very same task. Pair by pair:",
        )
        _write_changes(console, paired, heads)
    write_sentence(console, f"\n{write_comparison_verdict(reports, [changes])}")


def write_comparison(console: Console, reports: Sequence[Json], changes: Sequence[Json]) -> None:
    """Write three or more runs side by side. A star marks a difference from the first that leaves out 0."""
    names = [to_line(report["run"]) for report in reports]
    sizes = ", ".join(f"{report['sessions']:,}" for report in reports)
    write_sentence(console, f"{', '.join(names)}: {sizes} sessions. A star: differs from {names[0]} (95 %).")
    rows = [row for row in list_comparison(reports, changes) if any(cell not in ("", "–") for cell in row[2])]
    for kind in dict.fromkeys(kind for kind, _, _ in rows):
        write_table(console, (kind, *names), ((name, *cells) for one, name, cells in rows if one == kind))


def _write_changes(console: Console, changes: Json, heads: Sequence[str]) -> None:
    """Write the differences of endings, behaviours and means; what neither run shows is named below."""
    behaviours = {**changes["behaviours"], COOPERATION: changes[COOPERATION]}
    for title, of in (("ending", changes["endings"]), ("behaviour", behaviours)):
        seen = {code: one for code, one in of.items() if one["before"] or one["after"]}
        rows = ((code, *_change(one, percent=True)) for code, one in seen.items())
        write_table(console, (title, *heads), rows)
        if unseen := [code for code in of if code not in seen]:
            write_sentence(console, f"In neither: {', '.join(unseen)}")
    means = {name: one for name, one in changes["means"].items() if one["before"] or one["after"]}
    rows = ((name, *_change(one, percent=name == "cached_share")) for name, one in means.items())
    write_table(console, ("mean of a session", *heads), rows)


def _overview(console: Console, report: Json) -> None:
    length, used = report["length"], report["usage"]
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in report["kinds"].items())
    write_sentence(
        console, to_line(f"{report['run']}: {write_count(report['sessions'], 'session')} ({kinds})")
    )
    messages = length["messages"]
    write_sentence(
        console,
        f"{report['messages']:,} messages; {messages['mean']:.1f} {_ends(messages, '.1f')} a session,"
        f" at most {messages['longest']}",
    )
    about = "about " if used["estimated"] else ""
    cost = "price unknown (give --price)" if used["usd"] is None else write_dollars(used["usd"])
    write_sentence(
        console,
        f"{about}{used['total']:,} tokens, {used['cached_share']['rate']:.0%} of the prompts' cached; {cost}",
    )
    for name, of in report["tools"].items():
        wrong = ", ".join(f"{count:,} {problem}" for problem, count in of["problems"].items())
        write_sentence(
            console, to_line(f"tool {name}: {of['calls']:,} calls" + (f" ({wrong})" if wrong else ""))
        )
    for agent, times in report["latency"].items():
        middle, slow = times["p50"], times["p90"]
        write_sentence(
            console,
            to_line(f"{agent}: half of the replies within {middle['seconds']:.2g} s {_ends(middle, '.2g')},")
            + f" nine of ten within {slow['seconds']:.2g} s",
        )
    growth = report["growth"]
    if len(growth) > 1:
        first, last = growth[0], growth[-1]
        write_sentence(
            console,
            f"Prompts grow from {first['prompt_tokens']:,.0f} tokens at turn {first['turn']}"
            f" to {last['prompt_tokens']:,.0f} at turn {last['turn']}",
        )


def _behaviours(console: Console, report: Json) -> None:
    behaviours = report["behaviours"]
    shown = {code: of for code, of in behaviours.items() if of["sessions"]}
    write_table(
        console,
        (
            "behaviour",
            "sessions",
            "share (95 %)",
            "of user's turns",
            "of assistant's turns",
            "a session",
            "first at turn",
        ),
        (
            (code, f"{of['sessions']:,}", _rate(of), *_turns(of), *_counts(of))
            for code, of in ((COOPERATION, report[COOPERATION]), *shown.items())
        ),
    )
    if unseen := [code for code in behaviours if code not in shown]:
        most = behaviours[unseen[0]]["high"]
        write_sentence(console, f"Not seen (so in at most {most:.1%} of sessions): {', '.join(unseen)}\n")


def _turns(of: Mapping[str, Any]) -> Iterable[str]:
    if "turns" not in of:
        return "", ""
    return tuple(
        _rate(turns) if turns["count"] else "–" for turns in (of["turns"]["user"], of["turns"]["assistant"])
    )


def _counts(of: Mapping[str, Any]) -> Iterable[str]:
    """Return the number of such turns in a session, and the first of them (the paper's counts)."""
    if "per_session" not in of:
        return "", ""
    first = of["first_turn"]["mean"]
    return f"{of['per_session']['mean']:.2f}", "–" if first is None else f"{first:.1f}"


def _judged(console: Console, judged: Json) -> None:
    asked = {code: of for code, of in judged["behaviours"].items() if of["asked"]}
    write_table(
        console,
        (
            f"findings, by {judged['judge']}",
            "asked",
            "confirmed (95 %)",
            "unreadable",
            "sessions that keep one (95 %)",
        ),
        (
            (code, f"{of['asked']:,}", _rate(of["confirmed"]), f"{of['unreadable']:,}", _rate(of))
            for code, of in asked.items()
        ),
    )


def _corrected(console: Console, corrected: Mapping[str, Any]) -> None:
    """Write what the judge's answers on the sample say about all turns."""
    write_table(
        console,
        ("turns, corrected by the judge", "asked", "found", "corrected (95 %)", "precision", "recall"),
        (
            (
                code,
                f"{of['found']['asked']:,} + {of['other']['asked']:,}",
                f"{of['detected_rate']:.1%}",
                *(_estimate(of[name]) for name in ("rate", "precision", "recall")),
            )
            for code, of in corrected.items()
        ),
    )


def _estimate(of: Mapping[str, Any]) -> str:
    return f"{of['value']:.1%} {_ends(of, '.1%')}"


def _groups(console: Console, report: Json) -> None:
    """Write the roles and pairs whose cooperation fails most, by the lower end of the interval."""
    for title, groups in (
        ("assistant role", report["roles"]["assistant"].items()),
        ("user role", report["roles"]["user"].items()),
        ("pair", ((f"{one['assistant']} × {one['user']}", one) for one in report["pairs"])),
    ):
        named = sorted(groups, key=lambda item: (-item[1][COOPERATION]["low"], item[0]))
        if len(named) > 1:
            write_table(
                console,
                (title, "sessions", "cooperation failed (95 %)", "task done (95 %)"),
                (
                    (name, f"{of['sessions']:,}", _rate(of[COOPERATION]), _rate(of["task_done"]))
                    for name, of in named[:_SHOWN]
                ),
            )


def _diversity(console: Console, measured: Json) -> None:
    write_table(
        console,
        ("diversity", "texts", "distinct-1 (95 %)", "distinct-2 (95 %)", "near-duplicates (95 %)"),
        (
            (
                name,
                f"{one['sampled']:,} of {one['texts']:,}",
                *(f"{of['mean']:.2f} {_ends(of, '.2f')}" for of in (one["distinct_1"], one["distinct_2"])),
                _rate(one["near_duplicates"]),
            )
            for name, one in measured.items()
            if one["sampled"]
        ),
    )


def _session(one: Mapping[str, Any]) -> str:
    shown = ", ".join(f"{code} {count}" for code, count in one["behaviours"].items())
    who = f"{one['assistant']} × {one['user']}"
    return f"{one['session']} ({who}), {one['messages']} messages, {one['ending']}" + (
        f": {shown}" if shown else ""
    )


def _rate(of: Mapping[str, Any]) -> str:
    return f"{of['rate']:.1%} {_ends(of, '.1%')}"


def _ends(of: Mapping[str, Any], form: str) -> str:
    """Return the interval, or a dash if it is missing; percentages without the sign, which precedes it."""
    return "(–)" if of["low"] is None else f"({of['low']:{form}}–{of['high']:{form}})".replace("%", "")


def _change(of: Mapping[str, Any], *, percent: bool) -> tuple[str, ...]:
    form = ".1%" if percent else ",.1f"
    signed = "+.1%" if percent else "+,.1f"
    sure = of["low"] is not None and not of["low"] <= 0 <= of["high"]
    return (
        f"{of['before']:{form}}",
        f"{of['after']:{form}}",
        f"{of['difference']:{signed}}",
        "–" if of["low"] is None else f"{of['low']:{signed}} to {of['high']:{signed}}",
        "*" if sure else "",
    )
