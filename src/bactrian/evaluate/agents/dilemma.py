"""Solutions in the form that CAMEL's voting app (``apps/dilemma``) reads: a zip of JSON files."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from bactrian.errors import InputError
from bactrian.evaluate.agents.verdict_jobs import read_solutions
from bactrian.files.atomic import write_atomically
from bactrian.store import open_store


async def write_dilemma(solutions: Path, path: Path) -> int:
    """Write the tasks that have an extracted solution and a single answer, and return how many there are.

    The app reads the keys ``specified_task``, ``gpt_solution`` and ``summary``; CAMEL's extractor writes
    ``solution_extraction`` instead of the last one, so both are there.

    Raises:
        InputError: there is none, or the file cannot be written.
    """
    rows: dict[str, dict[str, str]] = {}
    async with open_store(solutions, read_only=True) as store:
        async for session in store.sessions():
            texts = read_solutions(session)
            if texts.keys() >= {"extraction", "single_shot"}:
                rows[f"{session.values['task']}.json"] = {
                    "specified_task": session.task.text,
                    "gpt_solution": texts["single_shot"],
                    "summary": texts["extraction"],
                    "solution_extraction": texts["extraction"],
                }
    if not rows:
        raise InputError("No task has both an extracted solution and a single answer.", where=str(solutions))
    with (
        write_atomically(path) as folder,
        zipfile.ZipFile(folder / path.name, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name, row in rows.items():
            archive.writestr(name, json.dumps(row, ensure_ascii=False, indent=2))
    return len(rows)
