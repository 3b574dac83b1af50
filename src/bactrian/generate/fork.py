"""Forks runs: a new run under another plan reuses the unchanged lists of a run."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from bactrian.errors import InputError
from bactrian.generate.plan import find_same_lists
from bactrian.recipes.schema import Recipe
from bactrian.store import Store, open_store


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
