"""Suggests better models of this computer to a person who plays on the built-in one."""

from __future__ import annotations

from bactrian.cli.terminal.console import open_progress
from bactrian.models.open import find_servers


async def suggest_servers() -> None:
    """Say on standard error which model servers answer on this computer, and how to use them."""
    console = open_progress()
    for server in await find_servers():
        if server.models:
            console.say(
                f"{server.title} runs on this computer. To use it: --model {server.models[0]}", style="dim"
            )
