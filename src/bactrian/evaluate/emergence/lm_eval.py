"""Table 7 of the paper: the command of lm-evaluation-harness, and its results beside the paper's."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from bactrian.errors import InputError
from bactrian.files.json_text import parse_json


@dataclass(frozen=True, slots=True)
class HarnessTask:
    """One column of table 7."""

    title: str
    task: str
    """Its name in the harness."""
    shots: int
    metric: str


BENCHMARKS = (
    HarnessTask("ARC-C", "arc_challenge", 25, "acc_norm"),
    HarnessTask("HellaSwag", "hellaswag", 10, "acc_norm"),
    HarnessTask("MMLU", "mmlu", 5, "acc"),
    HarnessTask("TruthfulQA", "truthfulqa_mc2", 0, "acc"),
)
TABLE_7: Mapping[str, Sequence[float]] = {
    "LLaMA-13B": (56.2, 80.9, 47.7, 39.5),
    "CAMEL-13B": (55.6, 79.3, 49.7, 47.4),
    "CAMEL-33B": (63.0, 83.8, 59.0, 50.2),
}
"""In percent, in the order of the benchmarks; the rows that the paper gives for each benchmark."""
_NEXT = "Give the file results_….json that lm_eval wrote, or the folder of its --output_path."


@dataclass(frozen=True, slots=True)
class HarnessScore:
    """The share of right answers to one benchmark, with its standard error."""

    value: float
    error: float | None
    shots: int | None
    """Examples that the questions came with; None if the file does not say."""


@dataclass(frozen=True, slots=True)
class HarnessResult:
    """What the harness measured of one model."""

    model: str
    scores: Mapping[str, HarnessScore]
    """By the task's name."""

    @property
    def mean(self) -> float | None:
        """The mean of all benchmarks of table 7; None if one is missing."""
        if any(one.task not in self.scores for one in BENCHMARKS):
            return None
        return fmean(self.scores[one.task].value for one in BENCHMARKS)

    @property
    def warnings(self) -> list[str]:
        """Benchmarks that were asked with another number of examples than the paper's."""
        return [
            f"{self.model}: {one.title} was asked with {found.shots} examples, and the paper used {one.shots}."
            for one in BENCHMARKS
            if (found := self.scores.get(one.task)) is not None and found.shots not in (None, one.shots)
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON content."""
        scores = {
            one.task: {"value": found.value, "error": found.error, "shots": found.shots}
            for one in BENCHMARKS
            if (found := self.scores.get(one.task)) is not None
        }
        return {"model": self.model, "scores": scores, "mean": self.mean}


def write_commands(model: str) -> list[str]:
    """Return a command for each benchmark. ``model`` is a folder of transformers or a name of the Hub."""
    return [
        shlex.join(
            [
                *("lm_eval", "--model", "hf", "--model_args", f"pretrained={model}", "--tasks", one.task),
                *("--num_fewshot", str(one.shots), "--batch_size", "auto", "--output_path", "lm-eval"),
            ]
        )
        for one in BENCHMARKS
    ]


def read_results(paths: Sequence[Path]) -> list[HarnessResult]:
    """Return the results in files of the harness, or in folders of them. Of two scores, the later one counts.

    Raises:
        InputError: a path contains no results of table 7.
    """
    found: dict[str, dict[str, HarnessScore]] = {}
    for path in paths:
        files = sorted(path.rglob("results*.json"), key=lambda one: one.name) if path.is_dir() else [path]
        if not files:
            raise InputError("This folder contains no results of lm_eval.", where=str(path), next=_NEXT)
        for file in files:
            model, scores = _read_file(file)
            found.setdefault(model, {}).update(scores)
    return [HarnessResult(model, scores) for model, scores in found.items()]


def _read_file(path: Path) -> tuple[str, dict[str, HarnessScore]]:
    try:
        content = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError("This file cannot be read as JSON.", where=str(path), next=_NEXT) from error
    table = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
    results, shots = _read_table(table, "results"), _read_table(table, "n-shot")
    scores = {
        one.task: HarnessScore(value, _read_number(row, f"{one.metric}_stderr"), _read_shots(shots, one.task))
        for one in BENCHMARKS
        if (value := _read_number(row := _read_table(results, one.task), one.metric)) is not None
    }
    if not scores:
        tasks = ", ".join(one.task for one in BENCHMARKS)
        raise InputError(f"This file has no result of {tasks}.", where=str(path), next=_NEXT)
    config = _read_table(table, "config")
    model = table.get("model_name") or config.get("model_args") or path.parent.name
    return str(model), scores


def _read_table(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = table.get(key)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _read_number(row: Mapping[str, Any], metric: str) -> float | None:
    """Return a metric, with or without the name of its filter; None if it is missing or is not a number."""
    found = row.get(f"{metric},none", row.get(metric))
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def _read_shots(shots: Mapping[str, Any], task: str) -> int | None:
    """Return the number of examples; for a task of many parts, that of its parts if they agree."""
    found = {value for name, value in shots.items() if name == task or name.startswith(f"{task}_")}
    return int(found.pop()) if len(found) == 1 else None
