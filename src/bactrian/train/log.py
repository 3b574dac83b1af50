"""The events of a stage's training, as JSON lines, for its curves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_KEPT = ("machine", "began", "step", "evaluated")


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


def count_processes(path: Path) -> int:
    """Return how many processes have trained the stage: more than one if it was interrupted."""
    return sum(event["event"] == "began" for event in _read_lines(path))


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    for line in path.read_text("utf-8").splitlines():
        try:
            yield json.loads(line)
        except ValueError:  # the last line of a killed process
            continue
