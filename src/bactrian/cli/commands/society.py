"""``bactrian play --society``: several agents, or several conversations one after another."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
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
    from bactrian.play.society.stages import play_one_society
    from bactrian.records.events import Ended, Started

    watching = choose_viewer(json=json)
    started = False
    async with aclosing(play_one_society(wish, reach, run_file, watching.listener)) as events:
        async for event in events:
            if not isinstance(event, Ended) or started:
                watching.show(event)
            started = started or isinstance(event, Started)
            if isinstance(event, Ended) and event.ending.code == "failed":
                raise event.error or ModelError(event.ending.evidence)
    return 0
