"""What the tests of the formats have in common."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bactrian.export.exporter import ExportOptions, export_run
from bactrian.export.registry import find_format
from bactrian.records.session import Session
from bactrian.store import open_store
from tests.helpers.runs import make_run


async def handed(run: Path, form: str, out: Path, **more: Any) -> dict[str, Any]:
    """Export ``run``; gives the manifest."""
    async with open_store(run, read_only=True) as store:
        return await export_run(store, ExportOptions(find_format(form), out, **more))


async def exported(
    folder: Path, sessions: Iterable[Session], form: str, name: str, **more: Any
) -> tuple[Path, dict[str, Any]]:
    """Make a run of ``sessions`` and export it; gives the target and the manifest."""
    run = await make_run(folder / "tea.db", sessions)
    return folder / name, await handed(run, form, folder / name, **more)


def lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
