"""The report as one self-contained HTML file, with its charts: no scripts, no fonts, no network."""
# Browsers open a folded conversation for a link into it by themselves (HTML's revealing of ancestors).

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from bactrian import amounts
from bactrian.analyze.estimates import COOPERATION, describe_reading, write_proportion
from bactrian.analyze.excerpts import (
    ALL_CONVERSATIONS,
    AnnotatedSession,
    Excerpt,
    choose_quotations,
    fit_conversations,
)
from bactrian.analyze.learned import PAPER
from bactrian.analyze.report import Json, is_sure
from bactrian.figures import chart
from bactrian.records.text import to_line, to_printable, write_count
from bactrian.records.turn import Usage
from bactrian.stats.intervals import Proportion

# The charts of reports: of one run, or of several over common axes.


# Most values of a histogram and categories of a chart.
_MOST_CATEGORIES = 40


def list_report_charts(reports: Sequence[Json]) -> list[chart.Chart]:
    """Return the charts of reports: endings, behaviours, failures by round, growth of the prompt, and lengths."""
    sizes = ", ".join(f"{report['run']}: {report['sessions']:,}" for report in reports)
    sample = f"Conversations: {sizes}. Lines and bands are 95 % intervals."

    return [
        *_list_rates(reports, sample),
        chart.Chart(
            "failures-by-round",
            "Failures by round",
            "round (an instruction and its answer)",
            "share of conversations",
            [chart.Series(report["run"], list_rounds(report)) for report in reports],
            f"One of the paper's four failures in this round, of the conversations that reached it. {sample}",
            shares=True,
        ),
        chart.Chart(
            "prompt-growth",
            "Growth of the prompt",
            "turn",
            "tokens of the prompt",
            [
                chart.Series(agent if len(reports) == 1 else f"{report['run']}: {agent}", points)
                for report in reports
                for agent, points in list_growth(report).items()
            ],
            f"Mean over conversations, for each agent. {sample}",
        ),
        chart.Chart(
            "lengths",
            "Length",
            "messages",
            "conversations",
            [chart.Series(report["run"], _list_lengths(report)) for report in reports],
            f"Conversations by their number of messages. Conversations: {sizes}.",
            "bars" if len(reports) == 1 else "line",
        ),
    ]


def _list_rates(reports: Sequence[Json], sample: str) -> Iterator[chart.Chart]:
    ended = ", ".join(f"{report['run']}: {report['sessions'] - report['open']:,}" for report in reports)
    for kind, title, of in (
        ("endings", "Endings", f"Conversations that have ended: {ended}. Lines are 95 % intervals."),
        ("behaviours", "Behaviours", sample),
    ):
        rates: list[Mapping[str, Json]] = [
            {code: share for code, share in report[kind].items() if share["rate"] is not None}
            for report in reports
        ]
        highest = {
            code: max(run[code]["rate"] for run in rates if code in run) for run in rates for code in run
        }
        codes = sorted((code for code in highest if highest[code]), key=lambda code: (-highest[code], code))
        codes = codes[:_MOST_CATEGORIES]
        series = [
            chart.Series(
                report["run"],
                [
                    (position, run[code]["rate"], run[code]["low"], run[code]["high"])
                    for position, code in enumerate(codes)
                    if code in run
                ],
            )
            for report, run in zip(reports, rates, strict=True)
        ]
        names = [code.replace("_", " ") for code in codes]
        yield chart.Chart(kind, title, "share of conversations", "", series, of, "rates", names, shares=True)


def list_growth(report: Json) -> dict[str, list[chart.Point]]:
    """Return the mean tokens of the prompt by agent and turn."""
    points: defaultdict[str, list[chart.Point]] = defaultdict(list)
    for turn in report["growth"]:
        points[turn["agent"]].append((turn["turn"], turn["prompt_tokens"], turn["low"], turn["high"]))
    return points


def list_rounds(report: Json) -> list[chart.Point]:
    """Return the share of conversations whose cooperation fails in a round, by round."""
    shares = [(each["round"], each["behaviours"][COOPERATION]) for each in report["rounds"]]
    return [(number, of["rate"], of["low"], of["high"]) for number, of in shares]


def _list_lengths(report: Json) -> list[chart.Point]:
    counts: Json = report["length"]["sessions_by_messages"]
    return sorted((float(messages), float(count), None, None) for messages, count in counts.items())


# The report as one self-contained HTML file: no scripts, no fonts, no network.


def write_verdict(reports: Sequence[Json], changes: Sequence[Json]) -> str:
    """Return two sentences about a run, or about several: how conversations end and fail, and the cost."""
    text = render_template(
        "verdict.txt.j2", reports=reports, changes=changes, is_sure=is_sure, find_change=find_change,
        cooperation=COOPERATION, paper=PAPER,
    )  # fmt: skip
    return " ".join(text.split())


def write_pairs(paired: Json) -> str:
    """Return what the pairs of two runs have in common."""
    jobs, same = write_count(paired["pairs"], "job"), paired["same_tasks"]
    which = "all" if same == paired["pairs"] else f"{same:,} of them"
    return f"{jobs} (same id, roles and idea) ended in both runs; the task in their prompts is the same in {which}."


def find_change(change: Json, code: str) -> Json:
    """Return the difference of an ending, a behaviour or all failures, pair by pair if there are pairs."""
    of = change["paired"] or change
    if code == COOPERATION:
        return of[COOPERATION]
    nothing = {"before": 0.0, "after": 0.0, "difference": 0.0, "low": None, "high": None}
    return of["endings"].get(code) or of["behaviours"].get(code) or nothing


def _write_cost(used: Json) -> str:
    return amounts.write_cost(used["usd"], used["unpriced"], prepared=used["prepared"]["usd"])


def _write_tokens(used: Json) -> str:
    prompt, completion, cached = (used[name] or 0 for name in ("prompt", "completion", "cached"))
    return amounts.write_tokens(Usage(prompt, completion, cached, used["estimated"]))


def _write_short(value: float | None) -> str:
    """Return a number with three significant digits."""
    if value is None:
        return amounts.NOTHING
    return amounts.write_minus(f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}")


def _spell(code: str) -> str:
    return code.replace("_", " ")


def write_number_ends(of: Mapping[str, Any], form: str) -> str:
    """Return the interval of a number, or a dash if it is missing."""
    if of["low"] is None:
        return f"({amounts.NOTHING})"
    low, high = (amounts.write_minus(format(of[end], form)) for end in ("low", "high"))
    return f"({low}–{high})"


def write_reading(of: Mapping[str, Any]) -> str:
    """Return what readers say of the findings of a behaviour, and how many candidates there are."""
    read = of["read"]
    parts = [describe_reading(read)]
    if of["possible"]:
        parts.append(
            f"{of['possible']:,} possible, {read['confirmed_possible']:,} of {read['possible']:,} read confirmed"
        )
    return "; ".join(parts)


LARGEST_MAP = 20  # most roles on an axis of the heat map; those with the most sessions are shown
LEAST_CELL = 3  # Without a pair of so many sessions there is no heat map: each cell would be all or nothing
LONGEST_TABLE = 100  # most roles in a table
_STYLES = 4  # Styles of a run's line in a comparison; the style sheet has them
_LONGEST_NAME = 120  # characters of a name


def render_report(
    reports: Sequence[Json],
    changes: Sequence[Json],
    conversations: Sequence[Sequence[AnnotatedSession]] = (),
    definitions: Mapping[str, str] | None = None,
) -> str:
    """Return the page on one run, or on several and the differences of all others from the first.

    Args:
        reports: The reports on the runs.
        changes: The differences of each run but the first from the first.
        conversations: The sessions of each run to show as a whole, as far as they fit; the first ones first.
        definitions: Definitions of behaviours, by code.
    """
    shared: dict[str, Any] = {
        "cooperation": COOPERATION,
        "paper": PAPER,
        "definitions": {code: _split_definition(text) for code, text in (definitions or {}).items()},
    }
    room = ALL_CONVERSATIONS // max(len(reports), 1)
    shown = [fit_conversations(some, f"c{run}", room) for run, some in enumerate(conversations, start=1)]
    if not changes:
        report = reports[0]
        return render_template(
            "run.html.j2",
            report=report,
            plots=_draw_plots(reports),
            lengths=_draw_lengths(report),
            heat_map=_map(report),
            verdict=write_verdict(reports, ()),
            shown=shown[0] if shown else (),
            groups=_group(report, shown[0] if shown else ()),
            quotations=choose_quotations(shown[0]) if shown else {},
            roles={side: _sort_roles(report["roles"][side]) for side in ("assistant", "user", "agent")},
            **shared,
        )
    return render_template(
        "comparison.html.j2",
        reports=reports,
        changes=changes,
        verdict=write_verdict(reports, changes),
        is_sure=is_sure,
        rows=_list_rows(reports, changes),
        costs=list_costs(reports),
        plots=_draw_plots(reports),
        lengths=[_draw_lengths(report) for report in reports],
        examples=_match_conversations(shown),
        shown=shown,
        **shared,
    )


def render_template(name: str, package: str = "analyze", **context: Any) -> str:
    """Return the text of a template of a package."""
    environment = Environment(
        loader=PackageLoader(f"bactrian.{package}"),
        autoescape=select_autoescape(("html.j2",)),
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= _FILTERS
    return environment.get_template(name).render(look=Markup(chart.read_look()), **context)  # noqa: S704


def _finalize(value: object) -> object:
    """Return a value as the page shows it: direction marks in a name would turn what follows around."""
    return to_line(value) if type(value) is str else value


def _keep_lines(text: str) -> Markup:
    """Return printable text of several lines."""
    return escape(to_printable(text))


def _write_code(text: str) -> Markup:
    """Return a line whose words between backticks are code."""
    return Markup(re.sub("`(.*?)`", r"<code>\1</code>", str(escape(to_line(text)))))  # noqa: S704


def _shorten(name: str) -> str:
    line = to_line(name)
    return line if len(line) <= _LONGEST_NAME else f"{line[:_LONGEST_NAME]}…"


# Of all templates.
_FILTERS: dict[str, Callable[..., object]] = {
    "percent": amounts.write_percent,
    "percents": amounts.write_percents,
    "short": _write_short,
    "count": write_count,
    "dollars": amounts.write_dollars,
    "cost": _write_cost,
    "tokens": _write_tokens,
    "points": amounts.write_points,
    "spell": _spell,
    "brief": _shorten,
    "text": _keep_lines,
    "form": format,
    "ends": write_number_ends,
    "reading": write_reading,
    "code": _write_code,
    "pairs": write_pairs,
    "seconds": amounts.write_seconds,
}


def _split_definition(text: str) -> tuple[str, ...]:
    """Return the paragraphs of a definition."""
    return tuple(" ".join(part.split()) for part in text.strip().split("\n\n"))


def _draw_lengths(report: Json) -> tuple[chart.HistogramBar, ...]:
    counts: Json = report["length"]["sessions_by_messages"]
    return chart.build_histogram({int(messages): count for messages, count in counts.items()})


def _draw_plots(reports: Sequence[Json]) -> dict[str, chart.Plot | None]:
    """Return failures by round and growth of the prompt: a style for each run; the intervals of one run alone."""
    plots: dict[str, chart.Plot | None] = {}
    for name in ("rounds", "growth"):
        parts = [
            (report["run"], {"": list_rounds(report)} if name == "rounds" else list_growth(report))
            for report in reports
        ]
        if name == "growth" and len(reports) == 1:
            parts = [(agent, {agent: points}) for agent, points in parts[0][1].items()]
        lines = {
            (title, f"run{number % _STYLES}"): [[point[:2] for point in some] for some in of.values() if some]
            for number, (title, of) in enumerate(parts)
        }
        bands = [some for _, of in parts for some in of.values()] if len(reports) == 1 else ()
        plots[name] = chart.draw_plot(name, lines, bands=bands)
    return plots


def _sort_roles(roles: Json) -> list[tuple[str, Json]]:
    """Return roles by how often their cooperation fails, the worst first; of equals, those with more sessions."""
    return sorted(
        roles.items(), key=lambda item: (-item[1][COOPERATION]["rate"], -item[1]["sessions"], item[0])
    )[:LONGEST_TABLE]


def _map(report: Json) -> dict[str, Any] | None:
    """Return the share of failed cooperations for each role pair, the worst first; None for one pair, or for pairs
    of one or two sessions."""
    if len(report["pairs"]) < 2:
        return None
    sides: list[list[str]] = []
    for roles in (report["roles"]["assistant"], report["roles"]["user"]):
        most = sorted(roles, key=lambda role, of=roles: (-of[role]["sessions"], role))[:LARGEST_MAP]
        sides.append([role for role, _ in _sort_roles({role: roles[role] for role in most})])
    cells = {(pair["assistant"], pair["user"]): pair for pair in report["pairs"]}
    if max(pair["sessions"] for pair in report["pairs"]) < LEAST_CELL:
        return None
    left_out = sum(
        len(report["roles"][side]) - len(chosen)
        for side, chosen in zip(("assistant", "user"), sides, strict=True)
    )
    return {
        "users": sides[1],
        "rows": [(role, [cells.get((role, user)) for user in sides[1]]) for role in sides[0]],
        "left_out": left_out,
    }


def _group(report: Json, shown: Sequence[Excerpt]) -> list[tuple[str, str, list[Excerpt]]]:
    """Return the conversations under titles, each once."""
    left = {excerpt.session.id: excerpt for excerpt in shown}
    groups: list[tuple[str, str, list[Excerpt]]] = []
    for title, note, name in (
        ("Worst", "the largest share of turns that show a behaviour", "worst"),
        ("Best", "the task done, no behaviour shown, most instructions solved", "best"),
        ("At random", "ten by the hash of their id, without those above", "random"),
    ):
        listed = [each["session"] for each in report[name]]
        if excerpts := [left.pop(session) for session in listed if session in left]:
            groups.append((title, note, excerpts))
    if left:
        groups.append(("Quoted above", "further conversations with a quoted turn", list(left.values())))
    return groups


def _list_rows(reports: Sequence[Json], changes: Sequence[Json]) -> list[tuple[str, list[tuple[str, Json]]]]:
    """Return the rows of the comparison under titles: for each name, the rate in each run and the differences."""
    rows: list[tuple[str, str, Json]] = []
    counted = [paired] if len(changes) == 1 and (paired := changes[0]["paired"]) else reports
    for kind in ("endings", "behaviours"):
        codes = list(dict.fromkeys(code for report in counted for code in report[kind]))
        if kind == "behaviours":
            rows.append((kind, COOPERATION, _make_row(reports, changes, COOPERATION, None)))
        made = [(kind, code, _make_row(reports, changes, code, kind)) for code in codes]
        rows += sorted(
            (row for row in made if any(share["rate"] for share in row[2]["runs"])),
            key=lambda row: -max(share["rate"] or 0.0 for share in row[2]["runs"]),
        )
    return [(kind, [row[1:] for row in some]) for kind, some in groupby(rows, key=lambda row: row[0])]


def _make_row(reports: Sequence[Json], changes: Sequence[Json], code: str, kind: str | None) -> Json:
    differences = [find_change(change, code) for change in changes]
    if len(changes) == 1 and changes[0]["paired"]:
        return {"runs": differences[0]["shares"], "changes": differences}
    shares = [
        (report if kind is None else report[kind]).get(code) or _find_none(report) for report in reports
    ]
    return {"runs": shares, "changes": differences}


def _find_none(report: Json) -> Json:
    """Return the share of an ending that a run does not have."""
    alone = report["clusters"]["of"] == "conversation"
    return write_proportion(Proportion(0, report["sessions"] - report["open"], alone))


def list_costs(reports: Sequence[Json]) -> list[tuple[str, list[str], list[str]]]:
    """Return the rows of what runs cost: a name, the amounts, and the differences of all others from the first."""
    rows: list[tuple[str, list[str], list[str]]] = []
    for name, key in (("cost", "usd"), ("cost of a finished conversation", "usd_per_finished")):
        first, *rest = usages = [report["usage"][key] for report in reports]
        changes = [None if None in (first, other) else other - first for other in rest]
        shown = [
            amounts.NOTHING
            if amount is None and report["usage"]["usd"] is not None
            else amounts.write_dollars(amount)
            for amount, report in zip(usages, reports, strict=True)
        ]
        rows.append((name, shown, [amounts.write_dollar_change(change) for change in changes]))
    return rows


def _match_conversations(shown: Sequence[Sequence[Excerpt]]) -> list[tuple[str, list[Excerpt | None]]]:
    """Return the conversations with the same id side by side: one column for each run."""
    columns = [{excerpt.session.id: excerpt for excerpt in excerpts} for excerpts in shown]
    ids = dict.fromkeys(name for column in columns for name in column)
    return [(name, [column.get(name) for column in columns]) for name in ids]
