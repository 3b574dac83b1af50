"""Results of ``bactrian evaluate`` as text: comparisons, stages of a training, scores of code, votes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from bactrian.amounts import NOTHING, write_ends, write_minus, write_percent, write_points
from bactrian.analyze.report_tables import write_table
from bactrian.cli.terminal.console import open_output, say
from bactrian.evaluate.code_judge import KINDS
from bactrian.evaluate.code_scoring import PassAtK, Score
from bactrian.evaluate.comparison import describe_draws, load_paper
from bactrian.evaluate.comparison_jobs import TITLES
from bactrian.records.text import write_count

_COLUMNS = ("win", "draw", "loss")


# Numbers with their 95 % intervals.


def _write_percent(of: Mapping[str, Any] | None) -> str:
    return write_percent(None if of is None else of["value"])


def _write_ends(
    of: Mapping[str, Any] | None, digits: int = 1, absent: str = NOTHING, of_what: str = ""
) -> str:
    if of is None or of[f"low{of_what}"] is None:
        return absent
    return write_ends(of[f"low{of_what}"], of[f"high{of_what}"], digits)


def _write_rate(of: Mapping[str, Any]) -> str:
    return _write_percent(of) + (f" [{_write_ends(of)}]" if of["low"] is not None else "")


def _write_number(of: Mapping[str, Any], sign: str = "") -> str:
    shown = [
        NOTHING if (number := of[name]) is None else f"{number:{sign}.2f}"
        for name in ("value", "low", "high")
    ]
    value, low, high = map(write_minus, shown)
    return value if of["low"] is None else f"{value} [{low}, {high}]"


def _show_warnings(report: Mapping[str, Any]) -> None:
    for warning in report["warnings"]:
        say(f"bactrian: warning: {warning}")


def _make_table(*heads: str, texts: int = 1) -> Table:
    """Return a table without lines, whose columns after the first ``texts`` contain numbers."""
    table = Table(*heads, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, column in enumerate(table.columns):
        column.justify = "left" if number < texts else "right"
        column.no_wrap = number == 0 if texts == 1 else number >= texts
    return table


# Comparisons of solutions, in the layout of the paper's table 1.


def show_comparison(report: Mapping[str, Any]) -> None:
    """Print a report, and its warnings on standard error."""
    out = open_output()
    out.print(f"{report['solved']} of {report['tasks']} tasks have a solution of every way.")
    for name, made in report["makers"].items():
        out.say(f"{name}: {made}")
    for pair in report["comparisons"]:
        first, second = (report["titles"][way] for way in pair["pair"])
        out.print()
        write_table(open_output(), ("", f"{first} wins", "Draw", f"{second} wins", "n"), _list_shares(pair))
        for line in _describe(pair, first, second):
            out.say(line)
        out.print()
        out.say(pair["verdict"], style="bold")
    for judge, strengths in report["strengths"].items():
        out.print(f"\nStrengths (Bradley–Terry, log scale), judge {judge}:")
        for way, of in strengths.items():
            out.print(f"  {report['titles'][way]:<28}{_write_number(of, '+')}")
    _show_warnings(report)


def show_paper(*, as_json: bool) -> None:
    """Print the paper's figures, and what each is compared with."""
    figures = load_paper()["figures"]
    if as_json:
        print(json.dumps(figures, ensure_ascii=False))
        return
    write_table(
        open_output(),
        ("", "CAMEL wins", "Draw", "Other wins", "compared with"),
        [
            (
                f"{row['table']}: {row['data']}, {row['judge']}",
                *(write_percent(row[name] / 100) for name in _COLUMNS),
                f"{TITLES['extraction']} and {TITLES[row['other']]}",
            )
            for row in figures
        ],
    )


def _list_shares(pair: Mapping[str, Any]) -> Iterable[Sequence[str]]:
    for row in pair["paper"]:
        shares = [write_percent(row[name] / 100) for name in _COLUMNS]
        yield f"paper: {row['data']}, {row['judge']}", *shares, row["table"]
    read = sum(pair["counts"][name] for name in _COLUMNS)
    yield pair["judge"], *(_write_percent(pair["shares"][name]) for name in _COLUMNS), f"{read}"
    if any(pair["shares"][name]["low"] is not None for name in _COLUMNS):
        yield "  95 % interval", *(_write_ends(pair["shares"][name]) for name in _COLUMNS), ""


def _describe(pair: Mapping[str, Any], first: str, second: str) -> Iterable[str]:
    """Yield what else the verdicts say; what is not known is left out."""
    if reason := pair["shares"]["win_rate"].get("withheld"):
        yield f"no 95 % interval: {reason}"
    yield from _join(
        (f"win rate of {first}", pair["shares"]["win_rate"]), ("at equal lengths", pair["length_controlled"])
    )
    if pair["bounds"]:
        low, high = (write_percent(pair["bounds"][end]) for end in ("low", "high"))
        unread = write_count(pair["counts"]["unreadable"], "task")
        yield f"{unread} cannot be read: the win rate of {first} is {low} if all were lost, and {high} if all were won"
    yield from _join(
        ("the same verdict in both orders", pair["consistent"]),
        ("another winner", pair["flips"]),
        ("for the answer shown first", pair["first_seat"]),
    )
    lengths = f"{pair['lengths'][0]:,.0f} ({first}) and {pair['lengths'][1]:,.0f} characters ({second})"
    yield "; ".join([f"mean length {lengths}", *_join(("the longer one wins", pair["longer_wins"]))])
    draws = pair["draws"]
    yield (
        f"draws: {draws['good']} with both good, {draws['bad']} with both bad, {draws['middling']} between; "
        f"{pair['unreadable']} of {pair['replies']} replies cannot be read"
    )
    if not pair["independent"]:
        return
    smallest = pair["smallest_difference"]
    found = f"differences of {100 * smallest:.0f} points and more" if smallest else "no difference"
    tasks = write_count(pair["independent"], "task") + describe_draws(pair)
    yield f"sign test p = {pair['p_value']:.3g}; {tasks} can show {found} (power 0.8)"


def _join(*rates: tuple[str, Mapping[str, Any]]) -> Iterable[str]:
    """Yield one line of those rates that are known; nothing if none is."""
    known = [f"{name} {_write_rate(of)}" for name, of in rates if of["value"] is not None]
    if known:
        yield ", ".join(known)


# Stages of a training: exact answers, and judged pairs in the layout of the paper's table 2.


def show_matrix(report: Mapping[str, Any]) -> None:
    """Print the report of a known-answer experiment, and its warnings on standard error."""
    out = open_output()
    titles: Mapping[str, str] = report["titles"]
    table = _make_table("", *titles.values(), "never taught", "form")
    for number, stage in enumerate(report["stages"]):
        cells = [*(stage["domains"].get(key) for key in titles), stage["untaught"], stage["in_form"]]
        name = stage["stage"] if number == 0 else f"+ {titles.get(stage['stage'], stage['stage'])}"
        table.add_row(name, *map(_write_percent, cells))
        table.add_row("  over facts", *(_write_ends(cell, 0, "") for cell in cells), style="dim")
        if len(report["seeds"]) > 1:
            over_seeds = (_write_ends(cell, 0, "", "_over_seeds") for cell in cells)
            table.add_row("  over seeds", *over_seeds, style="dim")
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
    _show_warnings(report)


def _describe_size(report: Mapping[str, Any]) -> str:
    seeds = report["seeds"]
    count = f"{len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}"
    return f"{report['facts']} facts a domain in {report['asked']} wordings that were never trained, {count}"


def _describe_claim(claim: Mapping[str, Any], titles: Mapping[str, str]) -> str:
    gain, before = claim["gain"], claim["before"]
    ends = (
        "" if gain["low"] is None else f" [{write_points(gain['low'], 1)}, {write_points(gain['high'], 1)}]"
    )
    return (
        f"{titles[claim['domain']]}: gains {write_points(gain['value'], 1)} points{ends} at its own stage; "
        f"before it {_write_percent(before)} [{_write_ends(before, 0, '')}], "
        f"guessing {write_percent(claim['guessing'])}: "
        f"{'appears' if claim['appears'] else 'does NOT appear'} at its stage, "
        f"{'is absent' if claim['absent_before'] else 'is NOT shown to be absent'} before."
    )


def show_stages(report: Mapping[str, Any]) -> None:
    """Print the report on judged pairs of stages, and its warnings on standard error."""
    out = open_output()
    for judge in list(dict.fromkeys(row["judge"] for row in report["rows"])):
        heads = ("model 1", "model 2", "draw", "1", "2", "paper", "good/bad", "2's rate")
        table = _make_table(*heads, texts=2)
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
            out.print(f"strength (Bradley–Terry) {report['titles'][stage]:<16}{_write_number(of, '+')}")
    _show_warnings(report)


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
        f"{_write_percent(rate)} [{_write_ends(rate, 0, '')}]",
    )


# Scores of code, and votes.


def show_score(score: Score, verdicts: Path) -> None:
    """Print a score: pass@k with intervals, and the kinds of failures."""
    part = f"{score.problems} of {score.whole} problems (a part)" if score.problems < score.whole else ""
    print(f"{part or write_count(score.problems, 'problem')}, {write_count(score.samples, 'sample')}")
    for estimate in score.passes:
        print(_write_pass(estimate))
    for name, passes in score.by_temperature.items():
        for estimate in passes:
            print(f"  temperature {name}: {_write_pass(estimate)}")
    for kind, count in score.kinds.items():
        print(f"{count:>7}  {kind:<12} {KINDS[kind]}")  # type: ignore[index]
    if score.left_out:
        named = ", ".join(f"pass@{k}" for k in score.left_out)
        say(f"{named}: not estimated, since a problem has fewer samples than k.")
    if score.cut:
        say(f"{write_count(score.cut, 'sample')} cut at the longest length; --reply-length raises it.")
    if score.missing:
        say(
            f"{write_count(score.missing, 'sample')} missing: the same command resumes; --retry-failed asks again."
        )
    if score.tiers:
        say(f"Sandbox: tier {', '.join(score.tiers)}")
    say(f"Verdicts: {verdicts}")


def _write_pass(estimate: PassAtK) -> str:
    low, high = estimate.low, estimate.high
    ends = "" if low is None or high is None else f" ({write_ends(low, high)})"
    return f"pass@{estimate.k:<4} {write_percent(estimate.value)}{ends}"


def show_tally(tally: Mapping[str, Any]) -> None:
    """Print what the votes on pairs of solutions say."""
    out = open_output()
    first, second = (tally["titles"][way] for way in tally["pair"])
    repeated = f", and {tally['repeated']:,} repeated" if tally["repeated"] else ""
    out.print(
        f"{write_count(tally['votes'], 'vote')} of {write_count(tally['voters'], 'voter')}"
        f" on {tally['tasks']:,} of {write_count(tally['pairs'], 'pair')}{repeated}"
    )
    for title, key in (("all votes", "pooled"), ("mean of the tasks", "by_task")):
        shares = tally[key]
        if shares:
            out.print(
                f"{title}: {first} wins {_write_rate(shares['win'])}, draw {_write_rate(shares['draw'])}, "
                f"{second} wins {_write_rate(shares['loss'])}"
            )
    for row in tally["paper"]:
        win, draw, loss = (write_percent(row[name] / 100) for name in _COLUMNS)
        out.print(f"paper, {row['table']}: {first} wins {win}, draw {draw}, {second} wins {loss}")
    out.print(f"votes for the left: {_write_count(tally['left'])}")
    out.print(f"repeated votes that agree: {_write_count(tally['attention'])}")
    out.print(f"agreement of the voters (Krippendorff's alpha): {_write_agreement(tally['alpha'])}")
    for judge, kappa in tally["kappa"].items():
        out.print(f"agreement with {judge} (Cohen's kappa): {_write_agreement(kappa)}")
    if tally["changed"]:
        out.print(f"{tally['changed']} votes are set aside: their texts have changed.")


def _write_count(of: Mapping[str, Any]) -> str:
    if of["rate"] is None:
        return "–"
    ends = "" if of["low"] is None else f" [{write_ends(of['low'], of['high'])}]"
    return f"{of['count']} of {of['total']} ({write_percent(of['rate'])}{ends})"


def _write_agreement(of: Mapping[str, Any]) -> str:
    if of["value"] is None:
        return f"not defined ({of['items']} tasks)"
    return f"{_write_number(of)} ({of['items']} tasks)"
