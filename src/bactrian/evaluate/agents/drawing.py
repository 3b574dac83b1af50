"""Draws the tasks of an evaluation, and builds the recipes of its two runs: solutions and verdicts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bactrian.errors import InputError
from bactrian.evaluate.agents.scores import Style
from bactrian.evaluate.agents.solution_jobs import Solutions, Way
from bactrian.evaluate.agents.verdict_jobs import Verdicts, join_pair
from bactrian.files.toml import suggest_name
from bactrian.models.seeds import derive_seed
from bactrian.recipes.registry import find_recipe_model
from bactrian.recipes.schema import Recipe
from bactrian.store import open_store


async def list_conversations(run: Path) -> list[str]:
    """Return the ids of the conversations of ``run`` that have ended with something said by both sides.

    Raises:
        InputError: there is none.
        StoreError: the run cannot be read.
    """
    async with open_store(run, read_only=True) as store:
        progress = [one async for one in store.progress()]
    found = [
        one.id for one in progress if one.ending not in (None, "failed", "stopped") and (one.turns or 0) > 1
    ]
    if not found:
        raise InputError(
            "The run has no conversation that has ended." if progress else "The run has no conversation.",
            where=str(run),
            next=f"Finish it first: bactrian resume {run}" if progress else "Generate one first.",
        )
    return found


def draw_tasks(sessions: Sequence[str], count: int, seed: int) -> list[str]:
    """Return ``count`` of ``sessions``, or all if there are fewer, drawn at random by ``seed``, in their order.

    The draw depends on the ids alone: not on their order, and not on the machine.
    """
    drawn = set(sorted(sessions, key=lambda one: derive_seed(seed, "task", one))[:count])
    return [one for one in sessions if one in drawn]


def read_task_file(path: Path, sessions: Sequence[str]) -> list[str]:
    """Return the session ids in a file, one a line.

    Raises:
        InputError: the file cannot be read, is empty, or names a session that is not one of ``sessions``.
    """
    try:
        lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            "The file cannot be read as text.", where=str(path), next="Check the path."
        ) from error
    names = list(dict.fromkeys(line for line in lines if line))
    if not names:
        raise InputError("The file names no session.", where=str(path), next="Write one id a line.")
    for name in names:
        if name not in sessions:
            raise InputError(
                f"{name!r} is not a conversation of the run that has ended.{suggest_name(name, sessions)}",
                where=str(path),
            )
    return names


async def read_stored_draw(solutions: Path, spec: Solutions) -> list[str] | None:
    """Return the tasks that an earlier command drew in the same way, so that it resumes; None if not found."""
    if not await asyncio.to_thread(solutions.exists):
        return None
    async with open_store(solutions, read_only=True) as store:
        content = await store.recipe()
    recipe = (content or {}).get("recipe", {})
    stored = recipe.get(Solutions.key, {})
    same = all(stored.get(key) == getattr(spec, key) for key in ("source", "seed", "drawn"))
    return list(recipe["axes"][0]["given"]) if same and spec.drawn is not None else None


async def find_usual_model(run: Path, session_id: str) -> str:
    """Return the model of the assistant in a session, for the single answers.

    Raises:
        InputError: it has to be named, because the run names an address, an object or nothing.
    """
    async with open_store(run, read_only=True) as store:
        session = await store.session(session_id)
    name = session.provenance.models.get("assistant", "") if session else ""
    if not name or "@" in name or name.startswith(("python:", "human", "scripted")):
        raise InputError(
            f"The run's assistant ({name or 'not known'}) cannot be asked for single answers.",
            where=str(run),
            next="Name a model: --model MODEL",
        )
    return name


def build_solution_recipe(tasks: Sequence[str], spec: Solutions) -> Recipe:
    """Return the recipe that writes the solutions of ``tasks``: session ids, or questions."""
    return _build_recipe(
        "solutions",
        "Solutions that are compared with each other.",
        {"task": tasks},
        {Solutions.key: spec.model_dump(mode="json")},
    )


def build_verdict_recipe(
    solutions: Path, pairs: Sequence[tuple[Way, Way]], tasks: int, style: Style, repeats: int
) -> Recipe:
    """Return the recipe in which a judge compares ``pairs`` of solutions of each of so many tasks."""
    return _build_recipe(
        "verdicts",
        "Verdicts of a judge on pairs of solutions.",
        {"pair": [join_pair(*pair) for pair in pairs], "task": list_solution_ids(tasks)},
        {Verdicts.key: {"source": str(solutions), "style": style, "repeats": repeats}},
    )


def list_solution_ids(tasks: int) -> list[str]:
    """Return the session ids of a run of solutions with so many tasks."""
    width = max(3, len(str(tasks)))
    return [f"{number:0{width}}" for number in range(1, tasks + 1)]


def _build_recipe(name: str, description: str, axes: dict[str, Sequence[str]], job: dict[str, Any]) -> Recipe:
    content: dict[str, Any] = {
        "name": name,
        "description": description,
        "axes": [{"name": key, "given": list(items), "count": len(items)} for key, items in axes.items()],
        **job,
    }
    return find_recipe_model(list(job)).model_validate(content)
