"""Notices a process that has work and does nothing, as after a deadlock.

The processor's time tells it from one that is only slow: on a busy computer even a process of the lowest priority
receives some, and a reply of a large model may take an hour.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

PATIENCE = 120.0
"""Seconds between two looks at the processor's time."""
_LEAST = 0.05
"""Seconds of the processor's time in between that show that a process works."""


@asynccontextmanager
async def watch_standstill(pid: int, patience: float, stop: Callable[[], None]) -> AsyncGenerator[None]:
    """Call ``stop`` if the process uses no processor time for ``patience`` seconds within the context.

    Nothing is watched where the system does not tell the time of another process, as on macOS.
    """
    watch = asyncio.create_task(_watch(pid, patience, stop))
    try:
        yield
    finally:
        watch.cancel()


async def _watch(pid: int, patience: float, stop: Callable[[], None]) -> None:
    before = read_processor_seconds(pid)
    while before is not None:
        await asyncio.sleep(patience)
        now = read_processor_seconds(pid)
        if now is not None and now - before < _LEAST:
            stop()
            return
        before = now


def read_processor_seconds(pid: int) -> float | None:
    """Return how long the processor has worked for all threads of a process; None if the system does not tell."""
    with suppress(OSError, IndexError, ValueError):
        # The name of the program stands in parentheses and may contain anything.
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return None
