"""The one way from the synchronous command line to the asynchronous rest."""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    import signal

INTERRUPTED = 130
TERMINATED = 143


def run(work: Coroutine[object, object, int], *, resume: str) -> None:
    """Run ``work`` and end the command with the exit code it gives.

    SIGINT, SIGTERM and a closed terminal cancel it, so that it can put away what it has; ``resume`` then tells the
    user how to go on.
    """
    import asyncio

    code = asyncio.run(_interruptible(work))
    if code in (INTERRUPTED, TERMINATED):
        print(f"\nInterrupted. {resume}", file=sys.stderr)
    raise typer.Exit(code)


async def _interruptible(work: Coroutine[object, object, int]) -> int:
    import asyncio
    import signal

    task = asyncio.ensure_future(work)
    caught: list[signal.Signals] = []

    def stop(which: signal.Signals) -> None:
        caught.append(which)
        task.cancel()

    loop = asyncio.get_running_loop()
    for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(which, stop, which)
    try:
        return await task
    except asyncio.CancelledError:
        return INTERRUPTED if caught[:1] == [signal.SIGINT] else TERMINATED
