"""Retries after transient faults, whether an endpoint refuses a prompt or all of them, and the record of calls."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from types import CoroutineType
from typing import Any

from bactrian.errors import (
    BactrianError,
    BadReply,
    Denied,
    GaveUp,
    ModelError,
    NotAnEndpoint,
    Refused,
    RefusedOutright,
    RefusedPrompt,
    TryAgain,
    Unreachable,
)
from bactrian.models.model import Model, Reply, Request, Wrapper
from bactrian.protocol.pack import render_prompt
from bactrian.records.run import Call
from bactrian.records.text import Text, clean_text
from bactrian.records.turn import Message, Usage

MAX_WAIT = 600.0  # Seconds that an endpoint may ask to wait, unless the user says otherwise
# Times the longest wait that a request may take, all waits and attempts together: half an hour by default. `--max-wait`
# is the only setting of patience.
PATIENCE = 3
_RESUME = "Then run the same command again: what is stored is not asked for anew."


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Limits on retries. Times are in seconds."""

    attempts: int = 8  # Maximum attempts per request, not counting waits that the endpoint requested
    bad_replies: int = 3  # Maximum number of invalid replies per request
    first_wait: float = 0.5  # Maximum first wait; it doubles with each attempt
    longest_wait: float = 60.0  # Maximum wait of the exponential back-off
    # Maximum wait that the endpoint may request. If it requests more, there is one more attempt after this time; if it
    # then requests more again, the request is given up.
    max_wait: float = MAX_WAIT
    budget: float = 1800.0  # Maximum time for one request, all waits and attempts together

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
        policy: RetryPolicy | None = None,
        *,
        notice: Callable[[str], object] | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(model)
        self._policy = policy or RetryPolicy()
        self._notice = notice
        self._sleep = sleep
        self._chance = chance
        self._clock = clock
        self._has_answered = False

    async def reply(self, request: Request) -> Reply:
        """Answer ``request``, asking as often as it takes; once more for a garbled reply.

        The usage is that of both replies then. A garbled reply is better than none.

        Raises:
            GaveUp: the limits on retries are reached.
            ModelError: a fault that a retry cannot solve.
        """
        reply = await self._ask(request)
        if not reply.garbled:
            return reply
        if request.on_restart is not None:
            request.on_restart()
        try:
            again = await self._ask(request)
        except BactrianError:
            return reply
        return replace(again, usage=reply.usage + again.usage)

    async def _ask(self, request: Request) -> Reply:
        policy = self._policy
        started = self._clock()
        asked = attempts = bad = too_long = 0
        while True:
            try:
                reply = await self._model.reply(request)
                self._has_answered = True
                return reply
            except (TryAgain, BadReply) as error:
                if isinstance(error, (Unreachable, NotAnEndpoint)) and not self._has_answered:
                    raise
                asked += 1
                after = error.after if isinstance(error, TryAgain) else None
                bad += isinstance(error, BadReply)
                attempts += after is None
                too_long += (after or 0) > policy.max_wait
                wait = self._wait(attempts, after)
                spent = self._clock() - started
                enough = attempts >= policy.attempts or bad >= policy.bad_replies or too_long > 1
                if enough or spent + wait > policy.budget:
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
        policy = self._policy
        if after is not None:
            # Slightly more than requested, so that not all requests return at once.
            return min(after, policy.max_wait) + self._chance() * policy.first_wait
        doubled = policy.first_wait * 2 ** (attempts - 1)
        return self._chance() * min(doubled, policy.longest_wait, policy.max_wait)


def _make_final_error(error: ModelError, asked: int, spent: float) -> ModelError:
    times = {1: "once", 2: "twice"}.get(asked, f"{asked} times")
    what = f"{error.what.rstrip('.')}. Asked {times} in {spent:.0f} s."
    if isinstance(error, TryAgain) and error.after:
        what += f" It asks to wait {error.after:.0f} s."
    kind = GaveUp if isinstance(error, TryAgain) else BadReply
    action = f"{error.next or 'Check the endpoint.'} {_RESUME}"
    return kind(what, where=error.where, next=action, sample=error.sample)


# Finds out whether an endpoint refuses one prompt or every one.


# Prompts that a model refuses in one command before it answers any, from which every one counts as refused.
_MOST = 30


class RefusalCheck(Wrapper):
    """Raises :class:`Denied` if ``model`` refuses every prompt, and :class:`RefusedPrompt` if it refuses this one.

    A 403, or a 400 that names no parameter, may be about the prompt or about every request. When the first request
    is refused, a greeting with the same parameters tells which: an endpoint that answers it refused the prompt.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._has_answered = False
        self._answers_others = False
        self._refused = 0
        self._denied: Denied | None = None
        self._checking = asyncio.Lock()

    def reply(self, request: Request) -> CoroutineType[Any, Any, Reply]:
        """Answer ``request``.

        Raises:
            RefusedPrompt: other prompts are answered.
            Denied: no prompt is answered.
            ModelError: as the model raises it.
        """
        # An endpoint that has answered is not examined any more: its refusals are about the prompt.
        return self._model.reply(request) if self._has_answered else self._examine(request)

    async def _examine(self, request: Request) -> Reply:
        """Answer ``request`` while it is not known yet whether the endpoint answers any request."""
        if self._denied is not None:
            raise self._denied
        try:
            reply = await self._model.reply(request)
        except RefusedPrompt as error:
            if not self._has_answered:
                await self._check_others(request, error)
            raise
        self._has_answered = True
        return reply

    async def _check_others(self, request: Request, error: RefusedPrompt) -> None:
        async with self._checking:
            if self._denied is not None:
                raise self._denied from error
            self._refused += 1
            if self._refused >= _MOST:
                self._deny(error, f"The first {_MOST} requests were all refused.")
            if self._answers_others or self._has_answered:
                return
            try:
                await self._model.reply(_make_greeting(request))
            except Refused as refused:
                if isinstance(refused, RefusedPrompt):
                    self._deny(error, "Every request is refused, a simple greeting too.")
                raise
            self._answers_others = True

    def _deny(self, error: RefusedPrompt, why: str) -> None:
        self._denied = Denied(f"{why} {error.what}", where=error.where, next=error.next, sample=error.sample)
        raise self._denied from error


def _make_greeting(request: Request) -> Request:
    """Return a request with the parameters of ``request`` that no endpoint can have an objection to."""
    roles = ("system", "user") if request.messages[0].role == "system" else ("user",)
    messages = tuple(Message(role, Text(render_prompt("greeting"))) for role in roles)
    return replace(request, messages=messages, n=1, on_text=None, on_restart=None)


# Recording of calls.


class Recorder(Wrapper):
    """Passes every call to ``model``, including failed ones, to ``sink`` before the caller sees the result.

    The innermost wrapper: inside ``Retry`` it sees each attempt. With ``failures_only`` it records only failed calls,
    because the others are stored as turns, and those of the task planner: a session stores the sum of what was paid
    for its task, and the specifier's model may have another price.
    """

    def __init__(
        self,
        model: Model,
        sink: Callable[[Call], Awaitable[None]],
        *,
        failures_only: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(model)
        self._sink = sink
        self._failures_only = failures_only
        self._clock = clock

    async def reply(self, request: Request) -> Reply:
        """Answer ``request``; raises the errors of the wrapped model and of the sink."""
        started = self._clock()
        position = (request.session, request.agent, request.call_index)
        try:
            reply = await self._model.reply(request)
        except ModelError as error:
            seconds = self._clock() - started
            usage = Usage(*error.spent, estimated=True) if any(error.spent) else None
            text = clean_text(str(error))
            await self._sink(Call(*position, self.name, seconds, raw=error.sample, error=text, usage=usage))
            raise
        if self._failures_only and request.agent != "task_planner":
            return reply
        seconds = self._clock() - started
        await self._sink(Call(*position, reply.model, seconds, raw=reply.raw, usage=reply.usage))
        return reply
