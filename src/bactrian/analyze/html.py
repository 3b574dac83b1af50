"""The report as one self-contained HTML file: no scripts, no fonts, no network."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined

from bactrian.analyze.behaviours.cooperation import PAPER
from bactrian.analyze.compare import list_comparison
from bactrian.analyze.report import COOPERATION, Json
from bactrian.analyze.svg_chart import build_curve
from bactrian.language.escape import to_line

LARGEST_MAP = 60
"""Most roles on an axis of the heat map; those with the most sessions are shown."""


def render_report(reports: Sequence[Json], changes: Sequence[Json]) -> str:
    """Return the page on one run, or on several and the differences of all others from the first."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=_finalize, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["percent"] = _percent
    environment.filters["short"] = _short
    template = environment.from_string(
        files("bactrian.analyze").joinpath("report.html.j2").read_text("utf-8")
    )
    return template.render(
        reports=reports,
        changes=changes[0] if len(changes) == 1 else None,
        comparison=list_comparison(reports, changes) if len(changes) > 1 else [],
        charts=[_charts(report) for report in reports],
        cooperation=COOPERATION,
        paper=PAPER,
    )


def _finalize(value: object) -> object:
    """Return a value as the page shows it: direction marks in a name would turn what follows around."""
    return to_line(value) if type(value) is str else value


def _charts(report: Json) -> dict[str, Any]:
    lengths = report["length"]["sessions_by_messages"]
    rounds = [
        (one["round"], one["behaviours"].get(COOPERATION, {"rate": 0.0, "low": 0.0, "high": 0.0}))
        for one in report["rounds"]
    ]
    return {
        "growth": build_curve(
            [(one["turn"], one["prompt_tokens"], one["low"], one["high"]) for one in report["growth"]]
        ),
        "rounds": build_curve([(number, of["rate"], of["low"], of["high"]) for number, of in rounds]),
        "lengths": [(messages, count, count / max(lengths.values())) for messages, count in lengths.items()],
        "map": _map(report),
    }


def _map(report: Json) -> dict[str, Any] | None:
    """Return the share of failed cooperations for each role pair; None if there is only one pair."""
    if len(report["pairs"]) < 2:
        return None
    sides = [
        sorted(sorted(roles, key=lambda role, of=roles: -of[role]["sessions"])[:LARGEST_MAP])
        for roles in (report["roles"]["assistant"], report["roles"]["user"])
    ]
    cells = {(one["assistant"], one["user"]): one for one in report["pairs"]}
    return {
        "users": sides[1],
        "rows": [(role, [cells.get((role, user)) for user in sides[1]]) for role in sides[0]],
        "left_out": max(len(report["roles"]["assistant"]) - len(sides[0]), 0)
        + max(len(report["roles"]["user"]) - len(sides[1]), 0),
    }


def _percent(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:.1%}"


def _short(value: float | None) -> str:
    """Return a number with three significant digits."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
