"""The charts of reports: of one run, or of several over common axes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bactrian.analyze.estimates import COOPERATION
from bactrian.figures.chart import Chart, Point, Series

Json = dict[str, Any]
# Most values of a histogram and categories of a chart.
_MOST_CATEGORIES = 40


def list_report_charts(reports: Sequence[Json]) -> list[Chart]:
    """Return the charts of reports: endings, behaviours, failures by round, growth of the prompt, and lengths."""
    sizes = ", ".join(f"{report['run']}: {report['sessions']:,}" for report in reports)
    sample = f"Conversations: {sizes}. Lines and bands are 95 % intervals."

    return [
        *_list_rates(reports, sample),
        Chart(
            "failures-by-round",
            "Failures by round",
            "round (an instruction and its answer)",
            "share of conversations",
            [Series(report["run"], list_rounds(report)) for report in reports],
            f"One of the paper's four failures in this round, of the conversations that reached it. {sample}",
            shares=True,
        ),
        Chart(
            "prompt-growth",
            "Growth of the prompt",
            "turn",
            "tokens of the prompt",
            [
                Series(agent if len(reports) == 1 else f"{report['run']}: {agent}", points)
                for report in reports
                for agent, points in list_growth(report).items()
            ],
            f"Mean over conversations, for each agent. {sample}",
        ),
        Chart(
            "lengths",
            "Length",
            "messages",
            "conversations",
            [Series(report["run"], _list_lengths(report)) for report in reports],
            f"Conversations by their number of messages. Conversations: {sizes}.",
            "bars" if len(reports) == 1 else "line",
        ),
    ]


def _list_rates(reports: Sequence[Json], sample: str) -> Iterator[Chart]:
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
            Series(
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
        yield Chart(kind, title, "share of conversations", "", series, of, "rates", names, shares=True)


def list_growth(report: Json) -> dict[str, list[Point]]:
    """Return the mean tokens of the prompt by agent and turn."""
    points: defaultdict[str, list[Point]] = defaultdict(list)
    for turn in report["growth"]:
        points[turn["agent"]].append((turn["turn"], turn["prompt_tokens"], turn["low"], turn["high"]))
    return points


def list_rounds(report: Json) -> list[Point]:
    """Return the share of conversations whose cooperation fails in a round, by round."""
    shares = [(each["round"], each["behaviours"][COOPERATION]) for each in report["rounds"]]
    return [(number, of["rate"], of["low"], of["high"]) for number, of in shares]


def _list_lengths(report: Json) -> list[Point]:
    counts: Json = report["length"]["sessions_by_messages"]
    return sorted((float(messages), float(count), None, None) for messages, count in counts.items())
