"""How fast a model is asked: adaptive concurrency, and rate limits in requests and tokens per minute."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from copy import copy
from dataclasses import dataclass
from math import ceil
from types import CoroutineType
from typing import Any

from bactrian import errors
from bactrian.models.budget import TokenEstimator, estimate_request
from bactrian.models.faults import MAX_WAIT, PATIENCE
from bactrian.models.model import Model, Reply, Request, StopSignal, Wrapper
from bactrian.records.turn import Usage

_SMOOTHING = 0.05
_SLOW = 4.0  # Times its best smoothed latency from which an endpoint counts as overloaded

_SAMPLE = 20  # Outcomes, at least, of a sample
_SPAN = 1.0  # Seconds, at least, of a sample: some endpoints count the requests of each second
_EXCESS = 0.03  # Share of refusals beyond the usual one, from which less load is tried
_FEW = 2  # Refusals in a sample that may be chance
_TELLING = 6  # Refusals that a trial would see if they did not depend on the load
_TRIED = 0.9  # Times what the endpoint accepts: the load of a trial
_KEPT = 0.97  # Times what the endpoint accepts: the limit after a trial with fewer refusals
_HIGH = 0.3  # Share of refusals after a trial from which there is another one: what was accepted before was a burst
_TRIALS = 3  # The most in a row
_REMEMBERED = 0.99  # Share of the usual refusals that each sample keeps, so that another trial checks them
_LEAST = 0.2  # Times the limit: the next one where nothing is accepted
# Shares by which a sample raises the limit: after a cut, and doubled up to the second one
_FIRST_RISE, _LAST_RISE = 0.02, 0.5
_EARLY = 0.75  # Times the mean distance of requests: the least one, as they may come unevenly

_SILENT = 10  # Faults in a row, without an answer between them, from which the endpoint counts as down
# The first request goes alone, so that a refused key or a wrong address is noticed once and not by every session.
# Seconds that the others wait for its answer: a refusal is there by then, a long reply need not be.
_PROBE = 2.0
# Seconds between two waiting requests that are released: a thousand that begin together stay in step, and wait for
# each other at every turn: 11 ms for each write instead of 6. Timers are no finer than `_APART`.
_SPACING = 0.0002
_APART = 0.004
_FIRST_PAUSE = 1.0
_LONGEST_SILENCE = 5.0  # Seconds between two tries of an endpoint that is down; the pauses double up to it


@dataclass(slots=True)
class Latency:
    """How fast a model answers, in seconds: a large one is slower than a small one of the same endpoint."""

    now: float = 0.0  # Smoothed
    best: float = float("inf")


class ConcurrencyLimit(Wrapper):
    """Lets up to ``most`` requests through to ``model`` at once, fewer while the load has more of them refused.

    Refusals (429, 503, a connection that is not accepted) are counted in samples. A share of them beyond the usual one
    leads to a trial: a sample with somewhat less load than the endpoint accepted. If it sees less than half of that
    share, the accepted load is the limit, which then rises, first slowly, until the next trial. Otherwise load is
    not the cause: the limit stays, and the share is the usual one. A limit below ``most`` is also a pace: so many
    requests in the time that a reply takes, which may be less than one.

    Who is refused waits as long as the endpoint asks (:class:`Retry`); the others go on. All wait if the endpoint
    answers nothing: it is then tried by one request at a time, after pauses that double ("circuit breaker"). A latency
    far above the best halves the limit, at most once for the requests that were in flight together.

    Unless ``proven``, the endpoint first gets a single request, for a moment: a wrong key, address or model is detected
    once, and the queued requests fail with the same error without being sent. Requested waits are capped at
    ``longest_wait`` seconds. ``stop_signal`` cancels the waits. Unless ``timed``, latency is ignored.
    """

    def __init__(
        self,
        model: Model,
        most: int,
        *,
        proven: bool = True,
        longest_wait: float = MAX_WAIT,
        stop_signal: StopSignal | None = None,
        timed: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(model)
        self._stop_signal = stop_signal or StopSignal()
        self._timed = timed
        self._most = most
        self._proven = proven
        self._longest_wait = longest_wait
        self._verdict: errors.ModelError | None = None
        self._clock = clock
        self._limit = self._load = float(most)  # The load is lower during a trial
        self._in_flight = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed_until = 0.0
        self._next_release = 0.0
        self._timer = False  # True while a timer is set for the next release
        self._last_cut = 0.0
        # The sample: when it began, and how many of the requests since then were sent, answered and refused
        self._since = clock()
        self._sent = self._answered = self._refused = 0
        self._usual = 0.0  # Share of refusals that does not depend on the load
        self._trial: _Trial | None = None
        self._rise = _FIRST_RISE
        self._faults = 0
        self.silent = False  # True while the endpoint counts as down
        self._faults_since = 0.0  # When the first of them began
        self._pause = _FIRST_PAUSE
        self._latency = Latency()

    @property
    def limit(self) -> int:
        """Requests that may be in flight now."""
        return ceil(self._load) if self._proven and not self.silent else 1

    @property
    def latency(self) -> float:
        """Usual seconds of a reply; 0 before the first."""
        return self._latency.now

    @property
    def closed_for(self) -> float:
        """Seconds until the endpoint wants to be asked again; 0 if it may be asked now."""
        return max(0.0, self._closed_until - self._clock())

    def reply(self, request: Request) -> CoroutineType[Any, Any, Reply]:
        """Answer ``request`` when there is room; raises what the model within raises."""
        return self.ask(self._model, self._latency, request)

    def share(self, model: Model) -> SharedConcurrency:
        """Wrap ``model``, another one of the same endpoint: the requests in flight of both count together."""
        return SharedConcurrency(model, self)

    async def ask(self, model: Model, latency: Latency, request: Request) -> Reply:
        """Have ``model``, which has this ``latency``, answer ``request`` when there is room. Raises what it raises."""
        if self._verdict is not None:
            raise self._verdict
        if self._in_flight >= self.limit or self._waiting or self._closed_until or self._load < self._most:
            await self._wait()
        else:
            self._in_flight += 1
        begun = self._clock()
        self._sent += 1
        if not self._proven:
            asyncio.get_running_loop().call_later(_PROBE, self._trust)
        try:
            reply = await model.reply(request)
        except errors.ModelError as fault:
            if isinstance(fault, errors.TryAgain):
                self._take_fault(fault, begun)
            self._spare_others(fault)
            raise
        else:
            self._take_success(begun, latency)
            return reply
        finally:
            self._in_flight -= 1
            if self._waiting:
                self._wake()

    async def _wait(self) -> None:
        """Wait for a free slot, first come, first served. A woken request is already counted as in flight."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._wake()
        try:
            await self._stop_signal.wait_for(turn)
        except (asyncio.CancelledError, errors.Halted):
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._in_flight -= 1
                self._wake()
            turn.cancel()
            raise

    def _wake(self) -> None:
        now = self._clock()
        if now < self._closed_until:
            return  # the timer that was set when it closed comes back here
        self._closed_until = 0.0
        while self._waiting and self._in_flight < self.limit:
            spacing = self._spacing
            if self._next_release > now + (_APART if spacing < _APART else 0.0):
                if not self._timer:
                    self._timer = True
                    asyncio.get_running_loop().call_later(self._next_release - now, self._release)
                return
            turn = self._waiting.popleft()
            if not turn.done():
                self._in_flight += 1
                self._next_release = max(self._next_release, now) + spacing
                turn.set_result(None)

    def _release(self) -> None:
        self._timer = False
        self._wake()

    @property
    def _spacing(self) -> float:
        """Seconds between two requests that waited."""
        if self._load >= self._most:
            return _SPACING
        return max(_SPACING, (_EARLY if self._load > 1 else 1.0) * self._latency.now / self._load)

    def _spare_others(self, fault: errors.ModelError) -> None:
        """Fail all queued requests at once when the error is the same for every request."""
        if isinstance(fault, (errors.Denied, errors.UnknownModel)) or (
            isinstance(fault, (errors.NotAnEndpoint, errors.Unreachable)) and not self._proven
        ):
            self._verdict = fault
        elif self._proven or isinstance(fault, errors.RefusedPrompt) or not isinstance(fault, errors.Refused):
            return
        self._tell_all(fault)

    def _tell_all(self, fault: errors.ModelError) -> None:
        """Give the waiting requests the outcome that they would have had."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(fault)

    def _take_fault(self, fault: errors.TryAgain, begun: float) -> None:
        if not self._faults:
            self._faults_since = begun
        self._faults += 1
        if not (fault.overload or fault.crowded):
            self.silent |= self._faults >= max(_SILENT, self._in_flight)
        elif begun >= self._since and not self.silent:
            self._refused += 1
            self._weigh()
        # What was in flight when it closed says nothing new.
        if (self.silent or (fault.after and not self._latency.now)) and begun >= self._closed_until:
            seconds = min(fault.after or self._pause, self._longest_wait)
            if (until := self._clock() + seconds) > self._closed_until:
                self._closed_until = until
                asyncio.get_running_loop().call_later(seconds + 0.001, self._wake)
            self._pause = min(2 * self._pause, _LONGEST_SILENCE)
            if self._clock() - self._faults_since > PATIENCE * self._longest_wait:
                self._tell_all(fault)

    def _trust(self) -> None:
        self._proven = True
        self._wake()

    def _take_success(self, begun: float, latency: Latency) -> None:
        self._proven = True
        if self._faults:
            self._faults = 0
            if self.silent:
                self.silent = False
                self._rise = _LAST_RISE
                self._begin_sample()
        self._pause = _FIRST_PAUSE
        now = self._clock()
        seconds = now - begun
        latency.now += _SMOOTHING * (seconds - latency.now) if latency.now else seconds
        latency.best = min(latency.best, latency.now)
        if self._timed and latency.now > _SLOW * latency.best + 1.0:
            if begun >= self._last_cut:
                self._limit = max(1.0, self._limit / 2)
                self._begin_sample()
                self._last_cut = now
        elif begun >= self._since:
            self._answered += 1
            if self._refused or now - self._since >= _SPAN:
                self._weigh()

    def _weigh(self) -> None:
        """Choose the load of the next sample if this one is complete."""
        trial, elapsed = self._trial, self._clock() - self._since
        enough = max(_SAMPLE, _TELLING / trial.share) if trial else 1.5 * max(_SAMPLE, self._limit)
        mostly_refused = self._refused >= (2 * _TELLING if trial else enough) and elapsed >= _SPAN / 4
        complete = elapsed >= _SPAN and (not self._refused or self._answered + self._refused >= enough)
        if not complete and not mostly_refused:
            return
        share, seconds = self._refused / self._sent, self._latency.now or elapsed
        # As many as are in flight on average ("Little's law"), but never less than one at a time after a long pause
        accepted = max((self._sent - self._refused) * min(1.0, seconds / elapsed), seconds / _LONGEST_SILENCE)
        following = None
        if share == 1:
            self.silent = True
            self._limit = max(_LEAST * self._load, seconds / _LONGEST_SILENCE)
        elif trial and share < trial.share / 2:
            self._limit, self._usual = _KEPT / _TRIED * trial.load, share
        elif trial and share > _HIGH and trial.number < _TRIALS:
            following = _Trial(_TRIED * min(accepted, trial.load), share, trial.number + 1)
        elif trial:
            self._usual = share
        elif self._refused > _FEW and share > self._usual + _EXCESS:
            following = _Trial(_TRIED * min(accepted, self._limit), share)
            self._rise = _FIRST_RISE
        else:
            self._limit = min(float(self._most), self._limit * (1 + self._rise))
            self._rise = min(2 * self._rise, _LAST_RISE)
            self._usual *= _REMEMBERED
        self._begin_sample(following)

    def _begin_sample(self, trial: _Trial | None = None) -> None:
        self._trial = trial
        self._load = trial.load if trial else self._limit
        self._since = self._clock()
        self._sent = self._answered = self._refused = 0


@dataclass(frozen=True, slots=True)
class _Trial:
    """Less load, in the place of the limit, for one sample."""

    load: float
    share: float  # Of refusals before it
    number: int = 1


class SharedConcurrency(Wrapper):
    """A model under the limit of another one of the same endpoint."""

    def __init__(self, model: Model, limit: ConcurrencyLimit) -> None:
        super().__init__(model)
        self._limit = limit
        self._latency = Latency()

    def reply(self, request: Request) -> CoroutineType[Any, Any, Reply]:
        """Answer ``request`` when there is room; raises what the model within raises."""
        return self._limit.ask(self._model, self._latency, request)


# Rate limits in requests and tokens per minute.


# Seconds after which the next request checks its wait again: a reply may have used fewer tokens than
# expected.
_LOOK_AGAIN = 0.25
# Share of the tokens kept in reserve, because the usage of a request is known only after its reply.
_SPARED = 0.02


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

    def change(self, per_minute: float, wait: float = 0.0) -> None:
        """Set the pace to ``per_minute`` from now on; the next amount waits ``wait`` seconds, too."""
        left, self._seconds_each = self.wait / self._seconds_each, 60 / per_minute
        self._free_at = self._clock() + max(wait, left * self._seconds_each)

    def settle(self, difference: float) -> None:
        """Add the difference between what was used and what was taken."""
        self._free_at += difference * self._seconds_each


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
        self._most_requests = requests_per_minute or 0.0
        self._most_tokens = (1 - _SPARED) * (tokens_per_minute or 0.0)
        self._requests = Pace(self._most_requests, clock) if requests_per_minute else None
        self._tokens = Pace(self._most_tokens, clock) if tokens_per_minute else None
        self._estimator = TokenEstimator()
        self._sleep = sleep
        self._turn = asyncio.Lock()

    def share(self, model: Model) -> RateLimit:
        """Wrap ``model``, another one of the same endpoint, at the same pace."""
        shared = copy(self)
        shared._model = model
        shared._estimator = TokenEstimator()
        return shared

    def divide(self, parts: int, wait: float = 0.0) -> None:
        """Use one of ``parts`` equal parts of the limits, as so many processes do; begin after ``wait`` seconds."""
        if self._requests is not None:
            # Whole requests: with 33.3 each, three processes could send 102 in the same minute.
            whole = self._most_requests // parts if parts > 1 else 0.0
            self._requests.change(whole or self._most_requests / parts, wait)
        if self._tokens is not None:
            self._tokens.change(self._most_tokens / parts, wait)

    async def wait_again(self) -> None:
        """Wait for the turn of a request that is sent once more, as one whose connection was cut."""
        await self._wait(None)

    async def _wait(self, estimated: Usage | None) -> float:
        """Wait for the turn of a request. Returns the tokens that were taken for it."""
        async with self._turn:
            while wait := max(pace.wait for pace in (self._requests, self._tokens) if pace is not None):
                await self._sleep(min(wait, _LOOK_AGAIN))
            if self._requests is not None:
                self._requests.take(1)
            if self._tokens is None or estimated is None:
                return 0.0
            expected = self._estimator.expect(estimated)
            self._tokens.take(expected)
            return expected

    async def reply(self, request: Request) -> Reply:
        """Answer ``request`` when its turn comes; raises the errors of the wrapped model."""
        if self._tokens is None:
            await self._wait(None)
            return await self._model.reply(request)
        estimated = estimate_request(request)
        expected = await self._wait(estimated)
        used = 0
        try:
            reply = await self._model.reply(request)
            used = reply.usage.total
            self._estimator.learn(estimated, reply.usage)
            return reply
        except errors.ModelError as error:
            used = sum(error.spent)
            raise
        finally:
            self._tokens.settle(used - expected)
