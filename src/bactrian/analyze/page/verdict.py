"""What a report says in two sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bactrian.analyze.behaviours.cooperation import PAPER
from bactrian.analyze.report import COOPERATION, Json
from bactrian.analyze.session_summary import UNFINISHED
from bactrian.records.text import write_dollars


def write_verdict(report: Json) -> str:
    """Return two sentences about one run: how conversations end and fail, the most frequent failure, and the cost."""
    sessions = report["sessions"]
    failed = report[COOPERATION]
    open_ = report["endings"].get(UNFINISHED, {}).get("count", 0)
    done = report["endings"].get("task_done", {}).get("count", 0)
    ended = sessions - open_
    if done:
        begin = f"{done:,} of {ended:,} conversations that ended completed the task ({done / ended:.0%})"
    else:
        code, of = next(iter(report["endings"].items()))
        most = f"{write_words(code)} ({of['count']:,}, {of['rate']:.0%})"
        begin = f"The most frequent ending of the {sessions:,} conversations is {most}"
    if not failed["sessions"]:
        end = f"none shows a failure of cooperation, so at most {failed['high']:.0%} of such conversations would"
        return f"{begin}, and {end}. {_write_cost(report)}"
    end = f"{failed['sessions']:,} ({failed['rate']:.0%}, 95 % interval {failed['low']:.0%} to {failed['high']:.0%})"
    code = max(PAPER, key=lambda one: report["behaviours"][one]["sessions"])
    of = report["behaviours"][code]
    most = f"The most frequent failure is {write_words(code)}, in {of['sessions']:,} ({of['rate']:.0%})"
    cost = _write_cost(report)
    return f"{begin}, and cooperation failed in {end}. {most}; {cost[0].lower()}{cost[1:]}"


def write_comparison_verdict(reports: Sequence[Json], changes: Sequence[Json]) -> str:
    """Return two sentences about several runs: the tasks done, and the failures of cooperation."""
    names = [report["run"] for report in reports]
    if len(changes) > 1:
        rates = {report["run"]: report[COOPERATION]["rate"] for report in reports}
        least, most = min(rates, key=lambda name: rates[name]), max(rates, key=lambda name: rates[name])
        sure = [
            name
            for name, one in zip(names[1:], changes, strict=True)
            if is_sure(find_change(one, COOPERATION))
        ]
        intro = f"Of {len(names)} runs, cooperation fails least often in {least} ({rates[least]:.0%}) and most often "
        if not sure:
            differ = "no run differs"
        else:
            differ = f"only {sure[0]} differs" if len(sure) == 1 else f"{' and '.join(sure)} differ"
        return (
            f"{intro}in {most} ({rates[most]:.0%}). From {names[0]}, {differ} by more than chance explains."
        )
    change = changes[0]
    paired = change["paired"]
    where = f"On the same {paired['pairs']:,} jobs" if paired else "On different conversations"
    done = _compare(names, find_change(change, "task_done"), "completes", "tasks")
    failed = _compare(names, find_change(change, COOPERATION), "fails in", "conversations")
    return f"{where}, {done}. As for cooperation, {failed}."


def find_change(change: Json, code: str) -> Json:
    """Return the difference of an ending, a behaviour or all failures, pair by pair if there are pairs."""
    of = change["paired"] or change
    if code == COOPERATION:
        return of[COOPERATION]
    nothing = {"before": 0.0, "after": 0.0, "difference": 0.0, "low": None, "high": None}
    return of["endings"].get(code) or of["behaviours"].get(code) or nothing


def is_sure(change: Mapping[str, Any]) -> bool:
    """Return True if the interval of a difference leaves out 0."""
    return change["low"] is not None and not change["low"] <= 0 <= change["high"]


def write_words(code: str) -> str:
    """Return a code in words."""
    return code.replace("_", " ")


def write_points(value: float) -> str:
    """Return a difference of shares in percentage points, with its sign; with a decimal if it is less than one."""
    return f"{100 * value:+.{int(0 < abs(value) < 0.01)}f}".replace("-", "\N{MINUS SIGN}")


def _compare(names: Sequence[str], change: Json, verb: str, what: str) -> str:
    rates = f"{change['after']:.0%} against {change['before']:.0%}"
    if change["low"] is None:
        return f"{names[1]} {verb} {change['after']:.0%} of {what}, and {names[0]} {change['before']:.0%}"
    points, low, high = (write_points(change[name]) for name in ("difference", "low", "high"))
    size = f"{points} points, 95 % interval {low} to {high}"
    if not is_sure(change):
        return f"{names[1]} {verb} {rates} of {what} for {names[0]}, which may be chance ({size})"
    more = "more" if change["difference"] > 0 else "fewer"
    return f"{names[1]} {verb} {more} {what} than {names[0]}: {rates} ({size})"


def _write_cost(report: Json) -> str:
    each = report["usage"]["usd_per_finished"]
    if each is None:
        return "The cost is unknown."
    return f"A finished conversation cost {write_dollars(each)}."
