"""The one way from synchronous calls to the asynchronous rest: a private thread with an event loop.

A notebook has a loop of its own that is running, so that another cannot run in its thread. The private loop lives as
long as the process: a client that a user's own model keeps open stays usable from one call to the next.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any, TypeVar

from bactrian.errors import BactrianError

_Result = TypeVar("_Result")
_PATIENCE = 30.0
"""Seconds that work in flight gets after an interrupt, where it can be asked to finish."""


def run_sync(
    work: Coroutine[Any, Any, _Result], stop: Callable[[], Coroutine[Any, Any, None]] | None = None
) -> _Result:
    """Run ``work`` to its end and return its result, whether or not a loop runs in this thread.

    Ctrl-C asks the work to ``stop``, gives it 30 seconds to finish what is in flight, and then cancels it; without
    ``stop``, and at the second Ctrl-C, it is cancelled at once. What it holds is closed before KeyboardInterrupt is
    raised.

    Raises:
        BactrianError: it is called from a coroutine that itself runs on the private loop.
    """
    loop = _private_loop(os.getpid())
    if _running_loop() is loop:
        work.close()
        raise BactrianError(
            "A synchronous call cannot be made from a coroutine of a model, a tool or a source.",
            next="Use bactrian.stream there, or call it from a function that is not asynchronous.",
        )
    task: list[asyncio.Task[_Result]] = []

    async def guard() -> _Result:
        task.append(asyncio.ensure_future(work))
        return await task[0]

    future = asyncio.run_coroutine_threadsafe(guard(), loop)
    try:
        return future.result()
    except KeyboardInterrupt:
        if stop is not None:
            asyncio.run_coroutine_threadsafe(stop(), loop)
            _wait(future, _PATIENCE)
        if not future.done():
            loop.call_soon_threadsafe(lambda: [one.cancel() for one in task])
            _wait(future, None)
        raise


def _wait(future: Any, seconds: float | None) -> None:
    """Wait until the work has ended, however it does; another Ctrl-C ends the waiting."""
    from concurrent.futures import wait

    try:
        wait([future], timeout=seconds)
    except KeyboardInterrupt:
        return


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


@cache
def _private_loop(process: int) -> asyncio.AbstractEventLoop:  # noqa: ARG001  a fork has no threads of its parent
    """The loop of this process, made at the first call."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="bactrian", daemon=True).start()
    return loop
