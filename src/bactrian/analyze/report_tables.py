"""A report as tables of text, on a terminal of any width or in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bactrian.amounts import NOTHING, join_facts, write_ends, write_percent, write_points, write_signed
from bactrian.analyze.estimates import COOPERATION
from bactrian.analyze.report import Json, is_sure, list_comparison
from bactrian.analyze.report_page import (
    list_costs,
    render_template,
    write_number_ends,
    write_pairs,
    write_verdict,
)
from bactrian.records.text import to_line, write_count
from bactrian.stats.intervals import find_wilson_interval

if TYPE_CHECKING:
    from rich.console import Console


# Tables of text that stay readable where the terminal is too narrow for them.


_PADDING = 3  # cells between two columns


def write_table(console: Console, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a table.

    On a terminal without room for it, write each row as its name and, below it, its other cells with their heads.
    """
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    cells = [tuple(map(to_line, row)) for row in rows]
    columns = [[head, *(row[number] for row in cells)] for number, head in enumerate(heads)]
    widths = [max(map(cell_len, column)) for column in columns]
    if console.is_terminal and sum(widths) + _PADDING * len(widths) > console.width:
        # Narrower by the heads, whose words can stand below each other; the cells stay whole.
        widths = [max(map(cell_len, (*head.split(), *rest))) for head, *rest in columns]
    for number, (head, wide) in enumerate(zip(heads, widths, strict=True)):
        side = "left" if number == 0 else "right"
        table.add_column(head, justify=side, no_wrap=number == 0, min_width=wide, max_width=wide)
    for row in cells:
        table.add_row(*row)
    needed = sum(widths) + _PADDING * len(widths)
    if not console.is_terminal:
        # A file or a pipe has no width of its own, and rich would cut the table at 80 cells.
        console.width = max(console.width, needed)
    if needed <= console.width:
        console.print(table, soft_wrap=False)
        return
    console.print(f"\n{heads[0]}", style="dim")
    for row in cells:
        console.print(row[0], style="bold")
        named = (f"{head} {cell}".strip() for head, cell in zip(heads[1:], row[1:], strict=True) if cell)
        for line in join_facts(named, console.width - 2):
            console.print(f"  {line}", soft_wrap=False)


def write_sentence(console: Console, text: str) -> None:
    """Write a line of text; on a terminal it breaks between words."""
    console.print(text, soft_wrap=not console.is_terminal)


_SHOWN = 5  # roles and pairs that are listed; the JSON and the page have all
WIDE = 110  # columns of a table where no terminal says how many there are


def write_report(console: Console, report: Json) -> None:
    """Write the report on one run to ``console``."""
    _write_text(console, "overview.txt.j2", report)
    endings = ((code, f"{of['count']:,}", _rate(of)) for code, of in report["endings"].items())
    write_table(console, ("ending", "sessions", "share (95 %)"), endings)
    _write_behaviours(console, report)
    _write_groups(console, report)
    diversity = (
        (
            name,
            f"{of['sampled']:,} of {of['texts']:,}",
            *(f"{of[n]['mean']:.2f} {write_number_ends(of[n], '.2f')}" for n in ("distinct_1", "distinct_2")),
            _rate(of["near_duplicates"]),
        )
        for name, of in report["diversity"].items()
        if of["sampled"]
    )
    heads = ("diversity", "texts", "distinct-1 (95 %)", "distinct-2 (95 %)", "near-duplicates (95 %)")
    write_table(console, heads, diversity)
    if judged := report.get("judged"):
        _write_judged(console, judged)
    for name, queue in report.get("labels", {}).items():
        write_labels(console, name, queue)
    _write_text(console, "named.txt.j2", report)


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
        _write_withheld(console, changes)
    if paired is not None:
        write_sentence(console, f"\n{write_pairs(paired)} Pair by pair:")
        _write_changes(console, paired, heads)
        _write_withheld(console, paired)
    rows = ((name, *amounts, *differences) for name, amounts, differences in list_costs(reports))
    write_table(console, ("money", *heads[:-2]), rows)
    write_sentence(console, f"\n{write_verdict(reports, [changes])}")


def write_comparison(console: Console, reports: Sequence[Json], changes: Sequence[Json]) -> None:
    """Write three or more runs side by side. A star marks a difference from the first that leaves out 0."""
    names = [to_line(report["run"]) for report in reports]
    sizes = ", ".join(f"{report['sessions']:,}" for report in reports)
    write_sentence(console, f"{', '.join(names)}: {sizes} sessions. A star: differs from {names[0]} (95 %).")
    rows = [row for row in list_comparison(reports, changes) if any(cell not in ("", "–") for cell in row[2])]
    for kind in dict.fromkeys(kind for kind, _, _ in rows):
        write_table(console, (kind, *names), ((name, *cells) for of, name, cells in rows if of == kind))
    _write_withheld(console, *changes)
    write_table(console, ("money", *names), ((name, *amounts) for name, amounts, _ in list_costs(reports)))


def _write_withheld(console: Console, *changes: Json) -> None:
    """Write why differences have no interval, if they have none."""
    for reason in dict.fromkeys(of[COOPERATION].get("withheld") for of in changes):
        if reason:
            write_sentence(console, f"No intervals (95 %): {reason}.")


def _write_changes(console: Console, changes: Json, heads: Sequence[str]) -> None:
    """Write the differences of endings, behaviours and means; what neither run shows is named below."""
    behaviours = {**changes["behaviours"], COOPERATION: changes[COOPERATION]}
    for title, of in (
        ("ending", changes["endings"]),
        ("behaviour", behaviours),
        ("mean of a session", changes["means"]),
    ):
        shown = {name: change for name, change in of.items() if change["before"] or change["after"]}
        shares = of is not changes["means"]
        rows = (
            (name, *_change(change, percent=shares or name == "cached_share"))
            for name, change in shown.items()
        )
        write_table(console, (title, *heads), rows)
        if shares and (missing := [name for name in of if name not in shown]):
            write_sentence(console, f"In neither: {', '.join(missing)}")


def _write_text(console: Console, template: str, report: Json) -> None:
    for line in render_template(
        template, report=report, sessions=write_count(report["sessions"], "session")
    ).splitlines():
        write_sentence(console, line)


def _write_behaviours(console: Console, report: Json) -> None:
    behaviours = report["behaviours"]
    shown = {code: of for code, of in behaviours.items() if of["sessions"] or of["possible"]}

    def list_cells(of: Json) -> Iterator[str]:
        """Yield the shares of turns, the number in a session, and the first of them (the paper's counts)."""
        for turns in (of["turns"]["user"], of["turns"]["assistant"]):
            yield _rate(turns) if turns["count"] else "–"
        yield f"{of['per_session']['mean']:.2f}"
        yield "–" if of["first_turn"]["mean"] is None else f"{of['first_turn']['mean']:.1f}"
        yield f"{of['possible']:,}" if of["possible"] else "–"
        read, right = of["read"], of["read"]["precision"]
        ends = "" if right["low"] is None else f" ({write_ends(right['low'], right['high'])} %)"
        parts = [f"{right['confirmed']:,} of {read['found']:,}{ends}"] if read["found"] else []
        if read["possible"]:
            parts.append(f"{read['confirmed_possible']:,} of {read['possible']:,} possible")
        yield "; ".join(parts) or "not read"

    heads = ("behaviour", "sessions", "share (95 %)")
    more = (
        "of user's turns",
        "of assistant's turns",
        "a session",
        "first at turn",
        "possible",
        "right of read",
    )
    rows = [
        (code, f"{of['sessions']:,}", _rate(of), *(list_cells(of) if code in shown else [""] * len(more)))
        for code, of in ((COOPERATION, report[COOPERATION]), *shown.items())
    ]
    write_table(console, (*heads, *more), rows)
    for code in [code for code, of in behaviours.items() if not of["applies"]]:
        write_sentence(console, f"{code} does not apply: {behaviours[code]['scope']}.")
    if unseen := [code for code, of in behaviours.items() if of["applies"] and code not in shown]:
        most = behaviours[unseen[0]]["high"]
        so = "" if most is None else f" (so in at most {write_percent(most)} of sessions)"
        write_sentence(console, f"Not seen{so}: {', '.join(unseen)}\n")


def _write_judged(console: Console, judged: Json) -> None:
    """Write what the judge says of the findings, and what its answers on a sample say about all turns."""
    heads = ("asked", "confirmed (95 %)", "unreadable", "sessions that keep one (95 %)")
    rows = (
        (code, f"{of['asked']:,}", _rate(of["confirmed"]), f"{of['unreadable']:,}", _rate(of))
        for code, of in judged["behaviours"].items()
        if of["asked"]
    )
    write_table(console, (f"findings, by {judged['judge']}", *heads), rows)
    if corrected := judged.get("corrected"):
        heads = ("asked", "found", "corrected (95 %)", "precision", "recall")
        rows = (
            (
                code,
                " + ".join(f"{of[part]['asked']:,}" for part in ("found", "possible", "other")),
                write_percent(of["detected_rate"]),
                *(_rate(of[name], "value") for name in ("rate", "precision", "recall")),
            )
            for code, of in corrected.items()
        )
        write_table(console, ("turns, corrected by the judge", *heads), rows)


def write_labels(console: Console, name: str, queue: Json) -> None:
    """Write what people say of a queue of conversations, and how much they agree."""
    people = ", ".join(f"{who} {count}" for who, count in queue["people"].items()) or "nobody"
    write_sentence(
        console,
        f"labels of {name}: {queue['labelled']:,} of {write_count(queue['conversations'], 'conversation')}, "
        f"{queue['twice']:,} of them by several people ({to_line(people)})",
    )
    heads = ("label", "conversations", "share (95 %)", "alpha (95 %)")
    more = (
        ("detector's precision", "recall") if any("detector" in of for of in queue["labels"].values()) else ()
    )
    rows = [
        (label, f"{of['count']:,}", _rate(of), _write_alpha(of["alpha"]), *_list_detector(of, len(more)))
        for label, of in queue["labels"].items()
    ]
    if queue["exclusive"]:
        rows.append(("all together", "", "", _write_alpha(queue["alpha"]), *[""] * len(more)))
    write_table(console, (*heads, *more), rows)


def _list_detector(of: Json, cells: int) -> list[str]:
    """Return precision and recall of the detector of a label, if it has one."""
    if "detector" not in of:
        return [""] * cells
    precision, recall = (of["detector"][name] for name in ("precision", "recall"))
    found = f"{precision['count']:,} of {of['detector']['found']:,}"
    return [
        f"{found}: {_rate(precision)}" if of["detector"]["found"] else "not found",
        NOTHING if recall is None or not of["count"] else _rate(recall),
    ]


def _write_alpha(of: Json) -> str:
    return NOTHING if of["value"] is None else f"{of['value']:.2f} {write_number_ends(of, '.2f')}"


def _find_least(group: Json) -> float:
    """Return the lower end of the interval of failed cooperations, which orders also groups too small to show one."""
    of = group[COOPERATION]
    return find_wilson_interval(of["rate"], group["sessions"])[0] if of["low"] is None else of["low"]


def _write_groups(console: Console, report: Json) -> None:
    """Write the roles and pairs whose cooperation fails most, by the lower end of the interval."""
    for title, groups in (
        ("assistant role", report["roles"]["assistant"].items()),
        ("user role", report["roles"]["user"].items()),
        ("agent of group chats", report["roles"]["agent"].items()),
        ("pair", [(f"{pair['assistant']} × {pair['user']}", pair) for pair in report["pairs"]]),
    ):
        ordered = sorted(groups, key=lambda item: (-_find_least(item[1]), item[0]))
        if len(ordered) > 1:
            rows = (
                (name, f"{of['sessions']:,}", _rate(of[COOPERATION]), _rate(of["task_done"]))
                for name, of in ordered[:_SHOWN]
            )
            heads = ("sessions", "cooperation failed (95 %)", "task done (95 %)")
            write_table(console, (title, *heads), rows)
        if len(ordered) > _SHOWN:
            write_sentence(console, f"{write_count(len(ordered) - _SHOWN, title)} more: --json has all.\n")


def _rate(of: Mapping[str, Any], key: str = "rate") -> str:
    return NOTHING if of[key] is None else f"{write_percent(of[key])} ({write_ends(of['low'], of['high'])})"


def _change(of: Mapping[str, Any], *, percent: bool) -> tuple[str, ...]:
    """Return the cells of a difference; that of shares is in percentage points."""
    value = write_percent if percent else _write_mean
    difference = write_points if percent else write_signed
    low, high = of["low"], of["high"]
    return (
        value(of["before"]),
        value(of["after"]),
        difference(of["difference"], 1),
        NOTHING if low is None else f"{difference(low, 1)} to {difference(high, 1)}",
        "*" if is_sure(of) else "",
    )


def _write_mean(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.1f}"
