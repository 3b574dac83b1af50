"""Downloads in a thread that end when nobody waits for them any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from threading import Event

from bactrian.models.local.weights import Progress


class _NoLongerWanted(Exception):
    """The caller was cancelled."""


async def fetch_in_thread(fetch: Callable[[Progress], Path], progress: Progress | None) -> Path:
    """Return the path of the weights that ``fetch`` downloads; it runs in a thread and reports its progress.

    A thread cannot be cancelled: once the caller is, the next report of progress raises an exception in it.
    """
    cancelled = Event()

    def pass_on(done: int, total: int) -> None:
        if cancelled.is_set():
            raise _NoLongerWanted
        if progress is not None:
            progress(done, total)

    try:
        return await asyncio.to_thread(fetch, pass_on)
    except asyncio.CancelledError:
        cancelled.set()
        raise
