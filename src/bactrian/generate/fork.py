"""A new run under another plan, that need not pay again for the lists that stay the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bactrian.errors import InputError
from bactrian.generate.plan import Plan, same_lists
from bactrian.store.store import open_store


async def take_lists(origin: Path, fork: Path, plan: Plan) -> int:
    """Begin the run ``fork`` under ``plan`` with the finished lists of ``origin`` that it would ask for again.

    Gives how many those are.

    Raises:
        InputError: ``origin`` is no run of a recipe, or ``fork`` is there already.
    """
    if await asyncio.to_thread(fork.exists):
        raise InputError(
            "This run is there already.",
            where=str(fork),
            next="Give --fork a new name, or leave it out to go on with a run.",
        )
    async with open_store(origin, read_only=True) as old:
        stored = await old.recipe()
        if stored is None:
            raise InputError(
                "This run was not made from a recipe.", where=str(origin), next="Fork another one."
            )
        same = same_lists(stored, plan.recipe)
        taken = 0
        async with open_store(fork) as new:
            await new.freeze(plan.content(plan.pack()))
            async for items in old.item_lists():
                if items.complete and items.id.partition("@")[0] in same:
                    await new.keep_list(items)
                    taken += 1
        return taken
