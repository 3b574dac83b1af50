"""The runs in a folder, each with what it is and how far it has come."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bactrian.api.reading.status import read_status
from bactrian.errors import BactrianError
from bactrian.store import find_data_folder, find_runs


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run in one line."""

    run: Path
    state: str
    """That of its status, or ``unreadable``."""
    recipe: str
    """Name of the recipe; ``plays`` or ``import`` for other runs."""
    sessions: int
    jobs: int | None
    """Jobs that were asked for; None if the run was not made from a recipe."""
    endings: dict[str, int]
    usd: float | None
    """Cost so far; None if unknown."""
    changed: float
    """When the file changed last, in seconds since 1970."""
    problem: str = ""
    """Why it cannot be read."""

    def describe(self) -> dict[str, Any]:
        """Return the line as a JSON object."""
        return {
            "run": str(self.run),
            "state": self.state,
            "recipe": self.recipe,
            "sessions": self.sessions,
            "jobs": self.jobs,
            "endings": self.endings,
            "usd": self.usd,
            "changed": self.changed,
            **({"problem": self.problem} if self.problem else {}),
        }


async def list_runs(folders: Iterable[Path] = ()) -> list[RunSummary]:
    """Return the runs in ``folders``, by default the data folder and the working folder; the newest first.

    Nothing is changed: a run of an earlier version is read from a copy.
    """
    folders = tuple(folders) or (find_data_folder(), Path())
    found = {path.resolve(): path for folder in folders for path in find_runs(folder)}
    runs = [await _summarize(path) for path in found.values()]
    return sorted(runs, key=lambda one: -one.changed)


async def _summarize(path: Path) -> RunSummary:
    changed = _find_change(path)
    try:
        status = await read_status(path)
    except BactrianError as error:
        return RunSummary(path, "unreadable", "", 0, None, {}, None, changed, error.what)
    return RunSummary(
        path,
        status.state,
        status.recipe or ("import" if status.state == "imported" else "plays"),
        status.sessions,
        status.jobs,
        {code: one.count for code, one in status.endings.items()},
        status.usd,
        changed,
    )


def _find_change(path: Path) -> float:
    """Return when the run or its log changed last."""
    times = [one.stat().st_mtime for one in (path, path.with_name(f"{path.name}-wal")) if one.exists()]
    return max(times, default=0.0)
