"""Assembles new and resumed runs from their parts."""

from __future__ import annotations

import asyncio
import gc
import resource
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

from bactrian.errors import InputError
from bactrian.files.atomic import check_replaceable
from bactrian.models.budget import Budget, UsageMeter
from bactrian.models.limits import ConcurrencyLimit, RateLimit
from bactrian.models.model import Model, RemoteModel, StopSignal, get_traits
from bactrian.models.open import ModelOptions, find_traits, load_local, open_model
from bactrian.models.pricing import FREE
from bactrian.models.retry import Recorder, RefusalCheck, Retry, RetryPolicy
from bactrian.models.seeds import RunSeeds
from bactrian.recipes.load import read_recipe_content
from bactrian.recipes.schema import LIST_FILE, Axis, Recipe
from bactrian.records.run import Call, Command
from bactrian.records.turn import Usage
from bactrian.roleplay.setup import MAX_MESSAGES
from bactrian.roleplay.tool_sources import open_tools
from bactrian.runs.admission import Admission
from bactrian.runs.cost import Outlook, SessionPrior, estimate_lists
from bactrian.runs.jobs import JobContext, JobIds, JobKind, is_cut_short
from bactrian.runs.kinds import find_job_kind
from bactrian.runs.lists import ListFiles, ListFunction, ListSource, ModelSource, find_list_source
from bactrian.runs.plan import (
    Plan,
    check_same,
    copy_lists,
    copy_tasks,
    has_tasks,
    is_other_limit,
    open_origin,
)
from bactrian.runs.progress import EndpointPressure, RunProgress, ShortList
from bactrian.runs.runner import Runner
from bactrian.runs.scheduler import IN_ORDER, DoneJobs, Job, JobSequence, Scheduler, Spread
from bactrian.store import RunStore, open_store


@dataclass(frozen=True, slots=True)
class RunOrder:
    """The options of a command."""

    plan: Plan
    run: Path
    access: ModelOptions
    meter: UsageMeter
    limits: RunLimits
    limit: int | None = None
    """Maximum number of jobs, from the start of the recipe."""
    retry_failed: bool = False
    """True to retry failed jobs and short lists."""
    origin: Path | None = None
    """Another run. This run copies its lists whose axes are unchanged."""
    list_sources: Mapping[str, ListSource | ListFunction] = field(
        default_factory=dict[str, ListSource | ListFunction]
    )
    """The user's own sources, by the name that an axis gives as its ``source``."""
    command: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The options as JSON values, without keys, to store with the run."""
    spread: Spread = IN_ORDER
    """How the jobs are spread over the grid."""
    keep_tasks: bool = False
    """True to take over the specified tasks of ``origin``, too."""


@asynccontextmanager
async def prepare_run(order: RunOrder) -> AsyncGenerator[Runner]:
    """Open or create the run, and find the remaining work.

    Raises:
        InputError: the run was begun with another plan or is the one to read, or a part of the plan cannot be used.
        StoreError: the run is damaged, in use, or from a newer version of this program.
    """
    plan, meter = order.plan, order.meter
    kind = find_job_kind(plan.recipe)(plan)
    check_replaceable(order.run, kind.list_inputs())
    async with AsyncExitStack() as stack:
        origin = order.origin and await stack.enter_async_context(open_origin(order.origin))
        store = await stack.enter_async_context(open_store(order.run))
        tools = await stack.enter_async_context(open_tools(kind.tools()))
        content = plan.content(kind.content(), tools)
        frozen = await store.freeze(content)
        if _is_longer(kind, frozen, content):
            frozen = await store.extend(content)
        check_same(frozen, content, str(order.run))
        await store.add_command(Command.begin("generate", order.command))
        seeds = RunSeeds(plan.seed)
        if origin is not None:
            await copy_lists(origin, store, plan.recipe)
            if order.keep_tasks:
                await copy_tasks(origin, store, plan.recipe)
        access = replace(order.access, distrusted=order.access.distrusted | plan.distrusted)
        run_models = await stack.enter_async_context(
            open_run_models(plan.models, access, order.limits, meter, store.add_call)
        )
        grid = await kind.read_grid()
        player = await kind.open(JobContext(run_models.models, tools, seeds, stack, await has_tasks(store)))
        sources = _find_sources(plan.recipe, _make_lister(kind, run_models, seeds), order.list_sources)
        progress = RunProgress(
            meter,
            0,
            admission=Admission(meter, Outlook(await _assume_session(kind, meter))),
            window=run_models.window,
            free=all(meter.prices.get(name) == FREE for name in plan.models.values()),
            unpriced=next((name for name in plan.models.values() if name not in meter.prices), ""),
            slow_start=_explain_slow_start(plan.models),
            read_pressure=run_models.pressure,
        )
        if meter.limited:
            await _count_spent(store, progress, plan.models)
        ids = JobIds(grid, await store.list_imported())
        jobs = JobSequence.of_recipe(plan.recipe, grid.axes, order.spread, order.limit)
        await _reopen_shorter(store, ids, kind.limit)
        done, begun = await _find_done(store, ids, progress, jobs, retry_failed=order.retry_failed)
        known = _KnownLists(store, grid.axes, progress, retry_failed=order.retry_failed)
        scheduler = Scheduler(jobs, done, known)
        progress.total = jobs.size
        await _expect_lists(progress, store, plan, order)
        if progress.done < progress.total:
            await run_models.load()
        yield Runner(
            scheduler,
            player,
            sources,
            store,
            progress,
            complete=ids.complete,
            begun=sorted(((job, turns) for job, turns in begun if job.number in jobs), key=itemgetter(1)),
            halt=run_models.stop_signal.stop,
        )


def _is_longer(kind: JobKind[Any], frozen: Mapping[str, Any], content: Mapping[str, Any]) -> bool:
    """Return True if the plan differs from the run's in nothing but a larger limit of messages."""
    if not is_other_limit(frozen, content):
        return False
    stored = replace(kind.plan, recipe=read_recipe_content(frozen["recipe"]))
    before, after = type(kind)(stored).limit, kind.limit
    return after is not None and (before or MAX_MESSAGES) < after


async def _reopen_shorter(store: RunStore, ids: JobIds, limit: int | None) -> None:
    """Remove the endings of sessions that stopped at a smaller limit of messages, so that they continue."""
    if limit is None:
        return
    shorter = [one.id async for _, one in ids.list_jobs(store) if is_cut_short(one, limit)]
    await asyncio.gather(*map(store.reopen, shorter))


def _explain_slow_start(models: Mapping[str, str]) -> str:
    """Return what to expect of a model in this process before its first reply; empty if there is no such model."""
    local = any(find_traits(name).in_process for name in models.values())
    return "the first reply will show how long a conversation takes on this computer" if local else ""


async def _assume_session(kind: JobKind[Any], meter: UsageMeter) -> SessionPrior:
    """Return the assumed cost of a session of this kind."""
    cost = await kind.estimate()
    size = cost.apply_critic(cost.session.times(cost.sessions), guessed=True)
    price = cost.mix_prices(kind.plan.models, meter.prices)
    return SessionPrior(
        cost.turns.times(cost.sessions), size.prompt, size.completion, price, cost.given_turns
    )


def tune_gc() -> None:
    """Run Python's garbage collector less often, until the process ends.

    A thousand conversations are a million objects. The collector would scan them repeatedly and free nothing.
    """
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)


class _KnownLists:
    """Looks up the lists that the run stores, for the scheduler."""

    def __init__(
        self, store: RunStore, axes: Sequence[Axis], progress: RunProgress, *, retry_failed: bool
    ) -> None:
        self._store = store
        self._counts = {axis.name: axis.count for axis in axes}
        self._progress = progress
        self._retry_failed = retry_failed

    async def __call__(self, list_id: str, enough: int) -> tuple[str, ...] | None:
        """Return the items of a list, or None if it has to be fetched. Short lists are counted."""
        stored = await self._store.item_list(list_id)
        if stored is None:
            return None
        if len(stored.items) >= enough:
            return stored.items
        if not stored.complete:
            return None
        count = self._counts[list_id.partition("@")[0]]
        if len(stored.items) < count:
            if self._retry_failed:
                return None
            self._progress.short[list_id] = ShortList(len(stored.items), count)
        return stored.items


def _make_lister(kind: JobKind[Any], run_models: RunModels, seeds: RunSeeds) -> ModelSource:
    """Return the source that asks the model for the lists of a recipe."""
    style = kind.list_style()
    return ModelSource(
        kind.plan.recipe.axes,
        run_models.models["lister"],
        preamble=style.preamble,
        enforced=style.enforced,
        seeds=seeds,
        parameters=kind.plan.parameters.get("lister", ()),
    )


def _find_sources(
    recipe: Recipe, model: ListSource, own: Mapping[str, ListSource | ListFunction]
) -> dict[str, ListSource]:
    """Return the list source of each axis.

    Raises:
        InputError: a source is not found.
    """
    return {
        axis.name: model
        if axis.source is None
        else _find_source(axis, axis.source, recipe.folder, model, own)
        for axis in recipe.axes
    }


def _find_source(
    axis: Axis, name: str, folder: str, model: ListSource, own: Mapping[str, ListSource | ListFunction]
) -> ListSource:
    if name.startswith(LIST_FILE) and name not in own:
        return ListFiles(name.removeprefix(LIST_FILE), folder, None if axis.ask is None else model)
    return find_list_source(name, own)


async def _find_done(
    store: RunStore, ids: JobIds, progress: RunProgress, jobs: JobSequence, *, retry_failed: bool
) -> tuple[DoneJobs, list[tuple[Job, int]]]:
    """Return the numbers of jobs that have begun, and the jobs that an earlier command left open, with their turns."""
    done = DoneJobs()
    open_: list[tuple[str, int]] = []
    ended: dict[int, list[int]] = {}
    """By number of turns: sessions, and tokens of prompts, completions and caches."""
    async for number, one in ids.list_jobs(store):
        if one.ending is None:
            open_.append((one.id, number))
        elif one.ending == "failed" and retry_failed:
            continue
        else:
            if number in jobs:
                progress.done += 1
                progress.endings[one.ending] += 1
            sums = ended.setdefault(one.turns or 0, [0, 0, 0, 0])
            for position, value in enumerate((1, one.prompt, one.completion, one.cached)):
                sums[position] += value or 0
        done.add(number)
    for turns, (count, prompt, completion, cached) in ended.items():
        progress.admission.outlook.learn(turns, Usage(prompt, completion, cached), count)
    begun: list[tuple[Job, int]] = []
    for session_id, number in open_:
        session = await store.session(session_id)
        assert session is not None
        begun.append((Job(session_id, number, session.values), len(session.turns)))
    return done, begun


async def _expect_lists(progress: RunProgress, store: RunStore, plan: Plan, order: RunOrder) -> None:
    """Count the known lists, and estimate the cost of the others."""
    progress.lists = estimate_lists(
        plan.recipe.axes,
        progress.total,
        spread=not order.spread.depth,
        price=progress.meter.prices.get(plan.models.get("lister", "")),
    )
    async for items in store.item_lists():
        if items.complete:
            progress.lists.finish(items)


async def _count_spent(store: RunStore, progress: RunProgress, models: Mapping[str, str]) -> None:
    for agent, usage in (await store.count_spent()).items():
        price = progress.meter.prices.get(models.get(agent, models["lister"]))
        progress.count_before(usage, price.cost(usage) if price else 0.0)


# The models of a run, wrapped for many sessions at once.

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

    def choose_window(self, models: Iterable[str]) -> int:
        """Return the number of conversations in flight with these models."""
        local = any(find_traits(name).in_process for name in models)
        return self.concurrency or (LOCAL_WINDOW if local else 64)


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
    window = limits.choose_window(names.values())
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
