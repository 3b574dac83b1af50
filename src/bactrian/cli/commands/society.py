"""``bactrian play --society``: several agents, or several conversations one after another."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bactrian.errors import InputError, ModelError

if TYPE_CHECKING:
    from bactrian.models.registry import ModelOptions
    from bactrian.play.society.stages import SocietyRun


def check_flags(given: Mapping[str, object]) -> None:
    """Refuse flags that say what a society's file says.

    Raises:
        InputError: one of them was given.
    """
    if wrong := [flag for flag, value in given.items() if value]:
        raise InputError(
            f"{wrong[0]} does not go with --society.",
            where=wrong[0],
            next="Say it in the society's file; docs/societies.md shows how.",
        )


async def play_society(wish: SocietyRun, reach: ModelOptions, run_file: Path | None, *, json: bool) -> int:
    """Play the society's stages and give the exit code."""
    from bactrian.cli.view.audience import choose_viewer
    from bactrian.play.open_models import open_models
    from bactrian.play.society.stages import play_society
    from bactrian.play.tools.loading import open_tools
    from bactrian.records.events import Ended
    from bactrian.store import open_store

    models = wish.given.models
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(run_file)) if run_file else None
        sink = store.add_call if store is not None else None
        reach = replace(reach, slots=max(reach.slots, len(models)))
        cast = await stack.enter_async_context(open_models(models, reach, sink=sink))
        tools = await stack.enter_async_context(open_tools(wish.society.tools))
        wish = replace(wish, tools=tools)
        watching = choose_viewer(json=json)
        async for event in play_society(wish, cast, store, watching.listener):
            watching.show(event)
            if isinstance(event, Ended) and event.ending.code == "failed":
                raise event.error or ModelError(event.ending.evidence)
    return 0
