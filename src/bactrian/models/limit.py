"""Asking no faster than an endpoint allows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from bactrian.models.estimate import estimated
from bactrian.models.model import Model, Reply, Request


class Pace:
    """Spreads amounts evenly over time, so that no minute sees more than ``per_minute``."""

    def __init__(self, per_minute: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds_each = 60 / per_minute
        self._clock = clock
        self._free_at = clock()

    def take(self, amount: float) -> float:
        """Set ``amount`` aside; return the seconds to wait before using it."""
        now = self._clock()
        start = max(now, self._free_at)
        self._free_at = start + amount * self._seconds_each
        return start - now

    def settle(self, difference: float) -> None:
        """Correct what was taken by what was really used beyond it."""
        self._free_at += difference * self._seconds_each


class RateLimit:
    """Holds requests to ``model`` back to a number of requests, of tokens, or of both a minute.

    All requests through one ``RateLimit`` share its pace. A request's tokens are estimated before it is sent
    (see :func:`~bactrian.models.estimate.estimated`) and corrected once its usage is known; one that fails is
    taken to have used none.
    """

    def __init__(
        self,
        model: Model,
        *,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._requests = Pace(requests_per_minute, clock) if requests_per_minute else None
        self._tokens = Pace(tokens_per_minute, clock) if tokens_per_minute else None
        self._sleep = sleep

    @property
    def name(self) -> str:
        """The name of the model within."""
        return self._model.name

    async def reply(self, request: Request) -> Reply:
        """Answer ``request`` when its turn has come; raises what the model within raises."""
        wait = self._requests.take(1) if self._requests else 0.0
        if self._tokens is None:
            if wait > 0:
                await self._sleep(wait)
            return await self._model.reply(request)
        expected = estimated(request).total
        wait = max(wait, self._tokens.take(expected))
        used = 0
        try:
            if wait > 0:
                await self._sleep(wait)
            reply = await self._model.reply(request)
            used = reply.usage.total
            return reply
        finally:
            self._tokens.settle(used - expected)

    async def close(self) -> None:
        """Close the model within."""
        await self._model.close()
