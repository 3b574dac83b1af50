"""The votes of one evaluation: where they are stored, and what they say in all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bactrian.evaluate.agents.judged import Outcome, read_judged_tasks
from bactrian.evaluate.agents.report import read_solution_state
from bactrian.evaluate.agents.verdict_jobs import join_pair
from bactrian.evaluate.votes.ballot import SolutionPair, read_pairs
from bactrian.evaluate.votes.tally import count_votes
from bactrian.records.run import Vote
from bactrian.store import open_store

_SOLUTIONS = "solutions.db"


def name_solutions(folder: Path) -> Path:
    """Return the run of the solutions in the folder of an evaluation."""
    return folder / _SOLUTIONS


def name_folder(run: Path, out: Path | None = None) -> Path:
    """Return the folder of an evaluation of ``run``: beside it, unless ``out`` names another."""
    return (out or run.with_name(f"{run.stem}.agents")).absolute()


def find_study(given: Path) -> Path | None:
    """Return the folder of the evaluation that ``given`` names; None if it has no solutions.

    Args:
        given: A run that was evaluated, the run of its solutions, or the folder of the evaluation.
    """
    if given.is_dir():
        folder = given.absolute()
    else:
        folder = given.absolute().parent if given.name == _SOLUTIONS else name_folder(given)
    return folder if name_solutions(folder).is_file() else None


async def read_votes(folder: Path) -> list[Vote]:
    """Return all votes of an evaluation. Raises StoreError."""
    async with open_store(name_solutions(folder), read_only=True) as store:
        return await store.votes()


async def read_tally(folder: Path) -> dict[str, Any]:
    """Return what all votes of an evaluation say, as JSON content: see :func:`count_votes`.

    Raises:
        InputError: there are no two solutions of a task.
        StoreError: a run cannot be read.
    """
    solutions = name_solutions(folder)
    pairs, votes = await read_pairs(solutions), await read_votes(folder)
    state = await read_solution_state(solutions)
    return count_votes(pairs, votes, await _read_judges(folder, pairs), recipe=state.recipe)


async def _read_judges(folder: Path, pairs: Sequence[SolutionPair]) -> dict[str, dict[str, Outcome]]:
    """Return the outcomes of the judges whose verdicts are in the folder, by session."""
    judges: dict[str, dict[str, Outcome]] = {}
    for path in await asyncio.to_thread(lambda: sorted(folder.glob("verdicts.*.db"))):
        found = await read_judged_tasks(name_solutions(folder), path)
        for pair, tasks in found.items():
            if join_pair(*pair) == pairs[0].pair:
                name = path.name.removeprefix("verdicts.").removesuffix(".db")
                judges[name] = {task.task: task.outcome for task in tasks if task.outcome}
    return judges
