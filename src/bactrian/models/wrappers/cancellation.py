"""Waiting that can be broken off: work that is to stop does not sit out a rate limit or a ``Retry-After``."""

from __future__ import annotations

import asyncio

from bactrian.errors import Halted


class StopSignal:
    """Waits of many calls. :meth:`end` breaks off all of them, and lets no new one begin."""

    def __init__(self) -> None:
        self.over = False
        self._waiting: set[asyncio.Future[None]] = set()

    async def sleep(self, seconds: float) -> None:
        """Wait so many seconds.

        Raises:
            Halted: the rest is over.
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
            Halted: the rest is over.
        """
        if self.over and not waiting.done():
            raise Halted
        self._waiting.add(waiting)
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)

    def stop(self) -> None:
        """Break off every wait."""
        self.over = True
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(Halted())


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
