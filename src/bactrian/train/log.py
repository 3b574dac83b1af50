"""The events of a stage's training, as JSON lines, for its curves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_KEPT = ("machine", "began", "step", "evaluated", "trained")


class StageLog:
    """Appends events to a file. After a resumption, the steps that are done again are written again."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        self._file = self._path.open("a", encoding="utf-8")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, event: Mapping[str, Any]) -> None:
        """Append an event, if it is one to keep."""
        if event["event"] in _KEPT:
            self._file.write(json.dumps(event) + "\n")
            self._file.flush()


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the events in the order of their steps; of a step that was done twice, the last."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for event in _read_lines(path):
        if event["event"] in ("step", "evaluated"):
            found[event["event"], event["step"]] = event
    return [found[key] for key in sorted(found, key=lambda key: key[1])]


@dataclass(frozen=True, slots=True)
class StageUsage:
    """What the training of a stage has used, over all its processes: more than one if it was interrupted.

    A process that was killed counts up to its last step.
    """

    processes: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    """Of the process that held most."""


def measure_usage(path: Path) -> StageUsage:
    """Return what the processes whose log this is have used."""
    processes: list[dict[str, Any]] = []
    peak = 0
    for event in _read_lines(path):
        if event["event"] == "began":
            processes.append({})
        elif processes and "seconds" in event:
            processes[-1] = event
            peak = max(peak, int(event.get("peak_bytes") or 0))
    return StageUsage(
        processes=len(processes),
        seconds=sum(float(last.get("seconds", 0.0)) for last in processes),
        cpu_seconds=sum(float(last.get("cpu_seconds", 0.0)) for last in processes),
        peak_bytes=peak,
    )


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    for line in path.read_text("utf-8").splitlines():
        try:
            yield json.loads(line)
        except ValueError:  # the last line of a killed process
            continue
