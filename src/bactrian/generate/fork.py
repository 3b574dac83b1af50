"""Forks runs: a new run under another plan reuses the unchanged lists of a run."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from bactrian.errors import InputError
from bactrian.generate.plan import find_same_lists
from bactrian.recipes.schema import Recipe
from bactrian.records.run import ItemList
from bactrian.records.session import Task
from bactrian.records.usage import Usage
from bactrian.store import RunReader, Store, open_store


@asynccontextmanager
async def open_origin(origin: Path) -> AsyncGenerator[Store]:
    """Open the run ``origin`` to fork it.

    Raises:
        InputError: it is not a run of a recipe.
    """
    async with open_store(origin, read_only=True) as store:
        if await store.recipe() is None:
            raise InputError(
                "This run was not made from a recipe.", where=str(origin), next="Fork another one."
            )
        yield store


async def copy_lists(origin: Store, fork: Store, recipe: Recipe) -> None:
    """Copy the finished lists of ``origin`` whose axes are unchanged in ``recipe``, unless ``fork`` has its own."""
    stored = await origin.recipe()
    assert stored is not None
    same = find_same_lists(stored, recipe)
    async for items in origin.item_lists():
        if items.complete and items.id.partition("@")[0] in same and await fork.item_list(items.id) is None:
            await fork.save_list(items)


_TASKS = "specified-task@"
"""Begins the id under which a fork stores a task of its origin, as a list; no axis has such a name."""


async def copy_tasks(origin: Store, fork: Store, recipe: Recipe) -> None:
    """Copy the specified and planned tasks of ``origin``, so that the jobs of ``fork`` work on the very same ones.

    Raises:
        InputError: the lists differ, so the jobs are not the same.
    """
    stored = await origin.recipe()
    assert stored is not None
    same = find_same_lists(stored, recipe)
    if other := [axis.name for axis in recipe.axes if axis.name not in same]:
        raise InputError(
            f"The tasks cannot be kept: the list {other[0]!r} of the new run is another one.",
            where="--keep-tasks",
            next="Leave --keep-tasks out, or --set options that change the lists.",
        )
    imported = await origin.list_imported()
    async for session in origin.sessions():
        task = session.task
        if session.id in imported or (task.specified is None and task.planned is None):
            continue
        items = (task.specified or "", task.planned or "")
        await fork.save_list(ItemList(f"{_TASKS}{session.id}", items, True, Usage(), 0))
    # Last, so that a fork that was killed before has to be named again.
    await fork.save_list(ItemList(_TASKS, (origin.path.name,), True, Usage(), 0))


async def has_tasks(store: RunReader) -> bool:
    """Return True if the run is a fork that keeps the tasks of its origin."""
    return await store.item_list(_TASKS) is not None


async def find_task(store: RunReader, job_id: str, original: str) -> Task:
    """Return the task of a job as the origin of a fork specified it; only ``original`` if the origin did not."""
    items = await store.item_list(f"{_TASKS}{job_id}")
    if items is None:
        return Task(original)
    specified, planned = items.items
    return Task(original, specified or None, planned or None)
