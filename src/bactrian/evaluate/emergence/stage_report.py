"""The report of table 2: stages of a training beside each other, on several sets of questions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bactrian.evaluate.agents.judged import JudgedTask, read_judged_tasks
from bactrian.evaluate.agents.paper_stages import TABLE_2
from bactrian.evaluate.agents.report import build_comparison_report, estimate_strengths

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StageRuns:
    """The runs on one set of questions."""

    solutions: Path
    verdicts: Mapping[str, Path]
    """By the judge's name."""


async def build_stage_report(sets: Mapping[str, StageRuns]) -> Json:
    """Return the report on the runs of each set of questions, by the set's name.

    Raises:
        BactrianError: no verdict was given yet on a set.
        StoreError: a run cannot be read.
    """
    reports = {name: await build_comparison_report(of.solutions, of.verdicts) for name, of in sets.items()}
    rows = [
        _describe_row(name, comparison, report["titles"])
        for name, report in reports.items()
        for comparison in report["comparisons"]
    ]
    judges = list(next(iter(sets.values())).verdicts)
    pooled = {judge: await _pool(sets, judge) for judge in judges}
    return {
        "rows": rows,
        "titles": next(iter(reports.values()))["titles"],
        "strengths": {
            judge: estimate_strengths(of) for judge, of in pooled.items() if len(_list_stages(of)) > 2
        },
        "sets": reports,
        "warnings": [f"{name}: {warning}" for name, of in reports.items() for warning in of["warnings"]],
    }


def _describe_row(questions: str, of: Json, titles: Mapping[str, str]) -> Json:
    """Return one row of table 2: counts of questions, with the paper's where it has the same pair."""
    first, second = of["pair"]
    rate = of["shares"]["win_rate"]
    beside = [one for one in TABLE_2 if (one.first, one.second, one.questions) == (first, second, questions)]
    return {
        "questions": questions,
        "judge": of["judge"],
        "first": titles[first],
        "second": titles[second],
        "draw": of["counts"]["draw"],
        "first_wins": of["counts"]["win"],
        "second_wins": of["counts"]["loss"],
        "unreadable": of["counts"]["unreadable"],
        "draws": of["draws"],
        "second_rate": {
            "value": None if rate["value"] is None else 1 - rate["value"],
            "low": None if rate["high"] is None else 1 - rate["high"],
            "high": None if rate["low"] is None else 1 - rate["low"],
        },
        "paper": {
            "draw": beside[0].draw,
            "first_wins": beside[0].first_wins,
            "second_wins": beside[0].second_wins,
        }
        if beside
        else None,
    }


async def _pool(sets: Mapping[str, StageRuns], judge: str) -> dict[tuple[str, str], list[JudgedTask]]:
    """Return the judged questions of all sets together, by pair. A question keeps the name of its set."""
    pooled: dict[tuple[str, str], list[JudgedTask]] = {}
    for name, runs in sets.items():
        for pair, tasks in (await read_judged_tasks(runs.solutions, runs.verdicts[judge])).items():
            pooled.setdefault(pair, []).extend(replace(task, task=f"{name} {task.task}") for task in tasks)
    return pooled


def _list_stages(judged: Mapping[tuple[str, str], object]) -> set[str]:
    return {stage for pair in judged for stage in pair}
