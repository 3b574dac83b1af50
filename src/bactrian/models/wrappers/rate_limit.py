"""Rate limits in requests and tokens per minute."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from copy import copy

from bactrian.errors import ModelError
from bactrian.models.model import Model, Reply, Request
from bactrian.models.wrappers.base import Wrapper
from bactrian.models.wrappers.estimate import estimate_request
from bactrian.records.usage import Usage

_LOOK_AGAIN = 0.25
"""Seconds after which the next request checks its wait again: a reply may have used fewer tokens than expected."""
_SMOOTHING = 0.1
_SPARED = 0.02
"""Share of the tokens kept in reserve, because the usage of a request is known only after its reply."""


class Pace:
    """Spreads amounts evenly over time, at most ``per_minute`` in any minute."""

    def __init__(self, per_minute: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds_each = 60 / per_minute
        self._clock = clock
        self._free_at = clock()

    @property
    def wait(self) -> float:
        """Seconds until the next amount may be taken."""
        return max(0.0, self._free_at - self._clock())

    def take(self, amount: float) -> None:
        """Take ``amount`` now; the next one waits until it is spread."""
        self._free_at = max(self._clock(), self._free_at) + amount * self._seconds_each

    def settle(self, difference: float) -> None:
        """Add the difference between what was used and what was taken."""
        self._free_at += difference * self._seconds_each


class TokenEstimator:
    """Estimates the tokens of a request: the maximum at first, then from the usage of earlier replies."""

    def __init__(self) -> None:
        self._prompt = 1.0
        """Tokens for each one that is estimated."""
        self._completion: float | None = None

    def estimate(self, most: Usage) -> float:
        """Return the tokens expected of a request that could use ``most``."""
        completion = most.completion if self._completion is None else self._completion
        return most.prompt * self._prompt + completion

    def learn(self, most: Usage, used: Usage) -> None:
        """Learn from the actual usage of a request."""
        ratio = used.prompt / max(1, most.prompt)
        if self._completion is None:
            self._prompt, self._completion = ratio, used.completion
        else:
            self._prompt += _SMOOTHING * (ratio - self._prompt)
            self._completion += _SMOOTHING * (used.completion - self._completion)


class RateLimit(Wrapper):
    """Limits the requests to ``model``, their tokens, or both, per minute.

    All requests through one ``RateLimit`` share its pace, first come, first served. A request's tokens are expected
    to be what those before it used, and corrected once its usage is known; of one that fails, what it cost.
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
        super().__init__(model)
        self._requests = Pace(requests_per_minute, clock) if requests_per_minute else None
        self._tokens = Pace((1 - _SPARED) * tokens_per_minute, clock) if tokens_per_minute else None
        self._expectation = TokenEstimator()
        self._sleep = sleep
        self._turn = asyncio.Lock()

    def share(self, model: Model) -> RateLimit:
        """Wrap ``model``, another one of the same endpoint, at the same pace."""
        shared = copy(self)
        shared._model = model
        shared._expectation = TokenEstimator()
        return shared

    async def wait_again(self) -> None:
        """Wait for the turn of a request that is sent once more, as one whose connection was cut."""
        async with self._turn:
            await self._wait_for_room()
            if self._requests is not None:
                self._requests.take(1)

    async def _wait_for_room(self) -> None:
        while wait := max(pace.wait for pace in (self._requests, self._tokens) if pace is not None):
            await self._sleep(min(wait, _LOOK_AGAIN))

    async def wait(self, request: Request) -> float:
        """Wait for the turn of ``request``. Gives the tokens that were taken for it."""
        async with self._turn:
            await self._wait_for_room()
            if self._requests is not None:
                self._requests.take(1)
            if self._tokens is None:
                return 0.0
            expected = self._expectation.estimate(estimate_request(request))
            self._tokens.take(expected)
            return expected

    async def reply(self, request: Request) -> Reply:
        """Answer ``request`` when its turn comes; raises the errors of the wrapped model."""
        expected = await self.wait(request)
        used: Usage | None = None
        cost = 0
        try:
            reply = await self._model.reply(request)
            used = reply.usage
            return reply
        except ModelError as error:
            cost = sum(error.spent)
            raise
        finally:
            if self._tokens is not None:
                self._tokens.settle((used.total if used else cost) - expected)
                if used is not None:
                    self._expectation.learn(estimate_request(request), used)
