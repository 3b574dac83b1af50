"""Cancellable sleeps: shutting down does not wait for rate limits or ``Retry-After``."""

from __future__ import annotations

import asyncio

from bactrian.errors import Halted


class StopSignal:
    """Lets many calls wait until :meth:`stop` cancels all current and future waits."""

    def __init__(self) -> None:
        self.over = False
        self._waiting: set[asyncio.Future[None]] = set()

    async def sleep(self, seconds: float) -> None:
        """Sleep for ``seconds``.

        Raises:
            Halted: :meth:`stop` was called.
        """
        waiting = asyncio.get_running_loop().create_future()
        timer = asyncio.get_running_loop().call_later(seconds, _wake, waiting)
        try:
            await self.wait_for(waiting)
        finally:
            timer.cancel()

    async def wait_for(self, waiting: asyncio.Future[None]) -> None:
        """Wait for ``waiting``.

        Raises:
            Halted: :meth:`stop` was called.
        """
        if self.over and not waiting.done():
            raise Halted
        self._waiting.add(waiting)
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)

    def stop(self) -> None:
        """Cancel all current and future waits."""
        self.over = True
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(Halted())


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
