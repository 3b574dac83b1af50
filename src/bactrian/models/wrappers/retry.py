"""Retries after transient faults."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from bactrian.errors import (
    BadReply,
    GaveUp,
    ModelError,
    NotAnEndpoint,
    Refused,
    RefusedOutright,
    RefusedPrompt,
    TryAgain,
    Unreachable,
)
from bactrian.models.model import Model, Reply, Request
from bactrian.models.wrappers.base import Wrapper

MAX_WAIT = 600.0
"""Seconds that an endpoint may ask to wait, unless the user says otherwise."""
PATIENCE = 3
"""Times the longest wait that a request may take, all waits and attempts together."""
_RESUME = "All data so far is saved: run the same command again to continue."


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Limits on retries. Times are in seconds."""

    attempts: int = 8
    """Maximum attempts per request, not counting waits that the endpoint requested."""
    bad_replies: int = 3
    """Maximum number of invalid replies per request."""
    first_wait: float = 0.5
    """Maximum first wait; it doubles with each attempt."""
    longest_wait: float = 60.0
    """Maximum wait of the exponential back-off."""
    max_wait: float = MAX_WAIT
    """Maximum wait that the endpoint may request. If it requests more, there is one more attempt after this time."""
    budget: float = 1800.0
    """Maximum time for one request, all waits and attempts together."""

    def with_max_wait(self, longest: float) -> RetryPolicy:
        """Return the same, with ``longest`` for a wait that the endpoint may ask for, and three times that for all."""
        return replace(self, max_wait=longest, budget=PATIENCE * longest)


class Retry(Wrapper):
    """Asks ``model`` again after a transient fault; raises every other error at once.

    An endpoint that cannot be reached, or sends web pages, is asked again only if it has answered before: until then
    its address is more likely wrong than its network down. What it refuses before it has answered anything, it
    will refuse to every session, unless it refuses the prompt (:class:`RefusalCheck`).

    Waits double and are drawn evenly from zero to their length ("full jitter"), so that many conversations
    that failed together do not come back together. Where the endpoint says how long to wait, that is done
    instead. ``notice`` receives a message about each fault that is retried.
    """

    def __init__(
        self,
        model: Model,
        retry_policy: RetryPolicy | None = None,
        *,
        notice: Callable[[str], object] | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(model)
        self._retry_policy = retry_policy or RetryPolicy()
        self._notice = notice
        self._sleep = sleep
        self._chance = chance
        self._clock = clock
        self._has_answered = False

    async def reply(self, request: Request) -> Reply:
        """Answer ``request``, asking as often as it takes; once more for a garbled reply.

        Raises:
            GaveUp: the limits on retries are reached.
            ModelError: a fault that a retry cannot solve.
        """
        retry_policy = self._retry_policy
        started = self._clock()
        asked = attempts = bad = too_long = 0
        garbled = False
        while True:
            try:
                reply = await self._model.reply(request)
                self._has_answered = True
                if garbled or not reply.garbled:
                    return reply
                garbled, wait = True, 0.0
            except (TryAgain, BadReply) as error:
                if isinstance(error, (Unreachable, NotAnEndpoint)) and not self._has_answered:
                    raise
                asked += 1
                after = error.after if isinstance(error, TryAgain) else None
                bad += isinstance(error, BadReply)
                attempts += after is None
                too_long += (after or 0) > retry_policy.max_wait
                wait = self._wait(attempts, after)
                spent = self._clock() - started
                enough = attempts >= retry_policy.attempts or bad >= retry_policy.bad_replies or too_long > 1
                if enough or spent + wait > retry_policy.budget:
                    raise _make_final_error(error, asked, spent) from error
                if self._notice is not None:
                    self._notice(
                        f"{error.where or self.name}: {error.what.rstrip('.')}. Asking again in {wait:.1f} s."
                    )
            except Refused as error:
                if self._has_answered or isinstance(error, RefusedPrompt):
                    raise
                raise RefusedOutright(
                    error.what, where=error.where, next=error.next, sample=error.sample
                ) from error
            if request.on_restart is not None:
                request.on_restart()
            await self._sleep(wait)

    def _wait(self, attempts: int, after: float | None) -> float:
        if after is not None:
            # Slightly more than requested, so that not all requests return at once.
            return min(after, self._retry_policy.max_wait) + self._chance() * self._retry_policy.first_wait
        retry_policy = self._retry_policy
        longest = min(
            retry_policy.first_wait * 2 ** (attempts - 1), retry_policy.longest_wait, retry_policy.max_wait
        )
        return self._chance() * longest


def _make_final_error(error: ModelError, asked: int, spent: float) -> ModelError:
    times = {1: "once", 2: "twice"}.get(asked, f"{asked} times")
    requested_wait = (
        f" It asks to wait {error.after:.0f} s." if isinstance(error, TryAgain) and error.after else ""
    )
    kind = GaveUp if isinstance(error, TryAgain) else BadReply
    return kind(
        f"{error.what.rstrip('.')}. Asked {times} in {spent:.0f} s.{requested_wait}",
        where=error.where,
        next=f"{error.next} {_RESUME}" if error.next else _RESUME,
        sample=error.sample,
    )
