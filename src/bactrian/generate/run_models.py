"""The models of a run, wrapped for many concurrent sessions."""

from __future__ import annotations

import resource
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from bactrian.errors import InputError
from bactrian.generate.progress import EndpointPressure
from bactrian.models.model import Model, RemoteModel
from bactrian.models.registry import ModelOptions, find_traits, load_local, open_model
from bactrian.models.traits import get_traits
from bactrian.models.wrappers.budget import Budget, UsageMeter
from bactrian.models.wrappers.cancellation import StopSignal
from bactrian.models.wrappers.concurrency import ConcurrencyLimit
from bactrian.models.wrappers.rate_limit import RateLimit
from bactrian.models.wrappers.recorder import Recorder
from bactrian.models.wrappers.refusals import RefusalCheck
from bactrian.models.wrappers.retry import Retry, RetryPolicy
from bactrian.records.run import Call

_RETRY_POLICY = RetryPolicy(attempts=1_000, bad_replies=5)
"""Transient faults are retried for half an hour without a limit on attempts; invalid replies are retried four times."""
LOCAL_WINDOW = 4
"""Conversations in flight for a model in this process. Measured on two cores, in tokens a second: 37 with two
conversations, 63 with four, 47 with eight."""
_OTHER_FILES = 64
"""Files that a run may have open besides its connections."""


def _check_open_files(window: int) -> None:
    """Raise the limit of open files where needed: each conversation in flight may have its own connection.

    Raises:
        InputError: the hard limit is too low.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = window + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise InputError(
                f"{window:,} conversations at once need {needed:,} open files, and this process may have {hard:,}.",
                where="--concurrency",
                next="Lower it, or raise the limit (ulimit -n).",
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _count_slots(window: int, agents: Collection[str]) -> int:
    """Count the cache slots: one for each agent in flight, and two for a session that begins while others are newer."""
    return (3 if "critic" in agents else 2) * window + 2


@dataclass(frozen=True, slots=True)
class RunModels:
    """The models by agent, with their shared state."""

    models: Mapping[str, Model]
    concurrency_limits: tuple[ConcurrencyLimit, ...]
    window: int
    """Conversations to have in flight."""
    opened: tuple[Model, ...]
    """The models without their wrappers."""
    stop_signal: StopSignal
    """Stopping it cancels the calls that have not been sent."""

    async def load(self) -> None:
        """Load the local models. Raises ModelError if one cannot be loaded."""
        for model in self.opened:
            await load_local(model)

    def pressure(self) -> EndpointPressure:
        """Return the current limits of the endpoints."""
        return EndpointPressure(
            sum(each.limit for each in self.concurrency_limits),
            max(each.closed_for for each in self.concurrency_limits),
            any(each.silent for each in self.concurrency_limits),
        )


@dataclass(frozen=True, slots=True)
class RunLimits:
    """The user's limits on requests to an endpoint. None means no limit."""

    concurrency: int | None = None
    """Conversations in flight; None for 64, or for four on a model in this process."""
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None


class _EndpointLimits:
    """The limits of one endpoint, address and key, which all its models share whatever their names."""

    def __init__(self, limits: RunLimits, window: int, longest_wait: float, stop_signal: StopSignal) -> None:
        self._limits = limits
        self._window = window
        self._longest_wait = longest_wait
        self._stop_signal = stop_signal
        self._rate: RateLimit | None = None
        self.concurrency: ConcurrencyLimit | None = None
        """None as long as the endpoint has no model."""

    def apply(self, inner: Model, model: Model) -> Model:
        """Wrap ``inner``, which asks ``model``, in the limits."""
        limits = self._limits
        if limits.requests_per_minute or limits.tokens_per_minute:
            self._rate = (
                self._rate.share(inner)
                if self._rate
                else RateLimit(
                    inner,
                    requests_per_minute=limits.requests_per_minute,
                    tokens_per_minute=limits.tokens_per_minute,
                    sleep=self._stop_signal.sleep,
                )
            )
            inner = self._rate
            if isinstance(model, RemoteModel):
                model.before_again = self._rate.wait_again
        inner = RefusalCheck(inner)
        if self.concurrency is not None:
            return self.concurrency.share(inner)
        self.concurrency = ConcurrencyLimit(
            inner,
            self._window,
            stop_signal=self._stop_signal,
            timed=self._rate is None,  # Waits for the rate limit say nothing about the endpoint's speed.
            proven=not get_traits(model).remote,
            longest_wait=self._longest_wait,
        )
        return self.concurrency


@asynccontextmanager
async def open_run_models(
    names: Mapping[str, str],
    access: ModelOptions,
    limits: RunLimits,
    meter: UsageMeter,
    sink: Callable[[Call], Awaitable[None]],
) -> AsyncGenerator[RunModels]:
    """Open the model that ``names`` gives for each agent; agents that share a name share a model, and models
    that share an endpoint its limits.

    From the outside in: retries, concurrency limit, check of refusals, rate limit, budget, record of failed calls.

    Raises:
        InputError: a name is not that of a model, or its file cannot be used.
    """
    local = any(find_traits(name).in_process for name in names.values())
    window = limits.concurrency or (LOCAL_WINDOW if local else 64)
    access = replace(access, slots=_count_slots(window, names))
    _check_open_files(window)
    models: dict[str, Model] = {}
    endpoints: dict[object, _EndpointLimits] = {}
    opened: list[Model] = []
    stop_signal = StopSignal()
    try:
        for name in dict.fromkeys(names.values()):
            opened.append(open_model(name, access))
            model = opened[-1]
            key = model.endpoint if isinstance(model, RemoteModel) else name
            if key not in endpoints:
                endpoints[key] = _EndpointLimits(limits, window, access.max_wait, stop_signal)
            inner = Budget(Recorder(model, sink, failures_only=True), meter)
            limited = endpoints[key].apply(inner, model)
            retry_policy = _RETRY_POLICY.with_max_wait(access.max_wait)
            models[name] = Retry(limited, retry_policy, notice=access.notice, sleep=stop_signal.sleep)
        concurrency_limits = tuple(
            one.concurrency for one in endpoints.values() if one.concurrency is not None
        )
        by_agent = {agent: models[name] for agent, name in names.items()}
        yield RunModels(by_agent, concurrency_limits, window, tuple(opened), stop_signal)
    finally:
        for model in models.values():
            await model.close()
