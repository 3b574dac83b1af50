"""An evaluation with pairs of solutions to vote on, and the votes that are stored in it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from bactrian.records.run import Vote
from bactrian.records.session import Role
from bactrian.store import open_store
from tests.helpers.runs import ORIGIN, make_run, session, turn

HOSTILE = "<script>document.title='owned'</script> \u202etxt"
PAIRS = 6


async def make_study(folder: Path) -> Path:
    """Write a run of six conversations and two solutions of each, and return the folder of the evaluation."""
    await make_run(folder / "run.db", [session(f"{n:03}") for n in range(1, PAIRS + 1)])
    (folder / "run.agents").mkdir()
    await write_solutions(folder / "run.agents" / "solutions.db")
    return folder / "run.agents"


async def write_solutions(path: Path, other: str = f"A clock {HOSTILE}") -> None:
    """Write two solutions of each task; ``other`` is the one of the single answer."""
    cast = {"extraction": Role("Role-play"), "single_shot": Role("Single answer")}
    texts = {"extraction": "A dial and a bell", "single_shot": other}
    solved = [
        replace(
            session(f"{n:03}", texts=["x"], code="answered", task=f"Timer {n}"),
            turns=tuple(
                replace(turn(place, f"{text} {n}"), speaker=way)
                for place, (way, text) in enumerate(texts.items(), start=1)
            ),
            provenance=replace(ORIGIN, cast=cast),
        )
        for n in range(1, PAIRS + 1)
    ]
    await make_run(path, solved)
    solutions = {"ways": list(texts)}
    async with open_store(path) as store:
        await store.freeze(
            {
                "recipe": {"solutions": solutions, "axes": [{"name": "task", "count": PAIRS}]},
                "models": dict.fromkeys(texts, "openai:one"),
            }
        )


def read_stored(folder: Path) -> list[Vote]:
    """The votes in the run of the solutions."""
    with closing(sqlite3.connect(folder / "run.agents" / "solutions.db")) as connection:
        return [
            Vote(*row)
            for row in connection.execute(
                "SELECT session, pair, voter, repeated, left, choice, comment, texts, seconds, created FROM votes"
            )
        ]
