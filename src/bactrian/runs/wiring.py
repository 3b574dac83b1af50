"""Assembles new and resumed runs from their parts, with the models and all that wraps them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import Any
from warnings import warn

from bactrian.batches.ledger import Ledger
from bactrian.batches.trains import Batches, BatchTerms
from bactrian.errors import BactrianWarning, InputError
from bactrian.files.atomic import check_replaceable, raise_file_limit
from bactrian.models.budget import Budget, UsageMeter
from bactrian.models.faults import Recorder, RefusalCheck, Retry, RetryPolicy
from bactrian.models.limits import ConcurrencyLimit, RateLimit
from bactrian.models.model import Model, Observer, RemoteModel, RunSeeds, StopSignal, get_traits
from bactrian.models.open import ModelOptions, find_traits, load_local, open_model
from bactrian.models.pricing import FREE
from bactrian.models.providers import BATCH
from bactrian.models.replicas import Replicas
from bactrian.recipes.load import read_recipe_content
from bactrian.recipes.schema import LIST_FILE, Axis
from bactrian.records.run import Call, Command
from bactrian.records.text import write_count
from bactrian.records.turn import Usage
from bactrian.roleplay.setup import MAX_MESSAGES
from bactrian.roleplay.tools import open_tools
from bactrian.runs.admission import Admission, Window
from bactrian.runs.claims import ClaimingScheduler, Claims
from bactrian.runs.cost import Outlook, SessionPrior, estimate_lists
from bactrian.runs.jobs import JobContext, JobIds, JobKind, is_cut_short
from bactrian.runs.kinds import find_job_kind
from bactrian.runs.lists import ListFiles, ListFunction, ModelSource, SharedList, find_list_source
from bactrian.runs.plan import Plan, check_same, copy_lists, has_tasks, is_other_limit, open_origin
from bactrian.runs.progress import EndpointPressure, RunProgress, ShortList, list_caching
from bactrian.runs.runner import Crew, JobPlayer, ListSource, Runner
from bactrian.runs.scheduler import (
    IN_ORDER,
    WHOLE,
    DoneJobs,
    Job,
    JobSequence,
    Scheduler,
    Spread,
    list_shared,
)
from bactrian.runs.spending import read_spending
from bactrian.store import RunStore, name_run, open_store

_SLOW_START = "the first reply will show how long a conversation takes on this computer"


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
    batch: BatchTerms | None = None
    """How requests are sent in batches; None to send each by itself."""
    lists_only: bool = False
    """True to make the lists and no jobs."""
    opener: Callable[[RunOrder], AbstractAsyncContextManager[tuple[RunStore, Claims]]] | None = None
    """Opens a run that other processes make, too, and what this one may play of it; None if none does."""
    apart: Callable[[RunOrder, RunStore], AbstractAsyncContextManager[Crew]] | None = None
    """Opens the processes that play the jobs; None to play them in this one."""

    @property
    def trusted_access(self) -> ModelOptions:
        """The options for opening models; no key goes to an address in a name that comes from a file."""
        return replace(self.access, distrusted=self.access.distrusted | self.plan.distrusted)

    @property
    def tier(self) -> str:
        """The tier at which most calls will be served; empty for the usual one."""
        return BATCH if self.batch else self.access.tier


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
        claims = None
        if order.opener is None:
            store = await stack.enter_async_context(open_store(order.run))
        else:
            store, claims = await stack.enter_async_context(order.opener(order))
        crew = order.apart and await stack.enter_async_context(order.apart(order, store))
        telemetry = None if crew else await stack.enter_async_context(_open_telemetry(order))
        run_models = await stack.enter_async_context(_open_models(order, store, telemetry))
        # What can be refused is refused before the code of tools is loaded, which runs it.
        if stored := await store.recipe():
            before, now = ({**each, "tools": None} for each in (stored, plan.content(kind.content())))
            if not _is_longer(kind, before, now):
                check_same(kind.identify(before), kind.identify(now), name_run(order.run))
        lister = crew or _make_lister(kind, run_models)
        grid = await kind.read_grid()
        sources = {axis.name: _find_source(axis, lister, order) for axis in plan.recipe.axes}
        sources |= {name: SharedList(name) for name in list_shared(grid.axes) if plan.shard != WHOLE}
        tools = await stack.enter_async_context(open_tools(kind.tools(), embodied=kind.embodied))
        content = plan.content(kind.content(), tools)
        frozen = await store.freeze(content)
        longer = _is_longer(kind, frozen, content)
        if longer or (frozen != content and kind.identify(frozen) == kind.identify(content)):
            frozen = await store.extend(content)
        check_same(frozen, content, name_run(order.run))
        await store.add_command(
            Command.begin("generate", {**order.command, "prices": meter.describe_prices()})
        )
        if origin is not None:
            await copy_lists(origin, store, plan.recipe, keep_tasks=order.keep_tasks)
        player = crew or await kind.open(
            JobContext(run_models.models, tools, RunSeeds(plan.seed), stack, await has_tasks(store))
        )
        in_process = any(find_traits(name).in_process for name in plan.models.values())
        progress = RunProgress(
            meter,
            0,
            admission=await _prepare_admission(kind, order),
            window=run_models.window.size,
            free=all(meter.prices.get(name) == FREE for name in plan.models.values()),
            slow_start=_SLOW_START if in_process else "",
            read_pressure=crew.read_pressure if crew else run_models.pressure,
            caching=list_caching(plan.models.values(), order.command.get("addresses") or {}),
        )
        ids = JobIds(grid, await store.list_imported())
        jobs = _list_jobs(order, grid.axes)
        work = _WorkLeft(order, kind, store, ids, jobs, progress)
        scheduler, begun = await work.find(claims, run_models.divide, longer=longer)
        progress.total = progress.done if order.lists_only else jobs.size
        price = meter.prices.get(plan.models.get("lister", ""))
        price = price and price.at(order.tier)
        spread = not order.spread.depth
        progress.lists = estimate_lists(plan.recipe.axes, jobs.size, spread=spread, price=price)
        async for items in store.item_lists():
            if items.complete:
                progress.lists.finish(items)
        if crew is None and (progress.done < progress.total or order.lists_only):
            for model in run_models.opened:
                await load_local(model)
        yield Runner(
            scheduler,
            player,
            sources,
            store,
            progress,
            complete=ids.complete,
            begun=[] if order.lists_only else begun,
            window=run_models.window,
            halt=crew.halt if crew else run_models.stop_signal.stop,
            ask_alone=claims.ask_alone if claims else None,
            telemetry=telemetry,
        )


@dataclass(frozen=True, slots=True)
class Playing:
    """What plays the jobs of a run in a process, and asks for its lists."""

    player: JobPlayer
    lister: ListSource
    models: RunModels
    telemetry: Observer | None


@asynccontextmanager
async def open_playing(order: RunOrder, store: RunStore) -> AsyncGenerator[Playing]:
    """Open what plays the jobs of a run that another process has prepared.

    Raises:
        InputError: a part of the plan cannot be used.
        SandboxError: an agent is embodied, and this computer has no sandbox.
    """
    kind = find_job_kind(order.plan.recipe)(order.plan)
    async with AsyncExitStack() as stack:
        telemetry = await stack.enter_async_context(_open_telemetry(order))
        models = await stack.enter_async_context(_open_models(order, store, telemetry))
        tools = await stack.enter_async_context(open_tools(kind.tools()))
        seeds = RunSeeds(kind.plan.seed)
        player = await kind.open(JobContext(models.models, tools, seeds, stack, await has_tasks(store)))
        for model in models.opened:
            await load_local(model)
        yield Playing(player, _make_lister(kind, models), models, telemetry)


def _open_telemetry(order: RunOrder) -> AbstractAsyncContextManager[Observer | None]:
    terms = order.access.telemetry
    return terms.open(order.access.run, order.access.report) if terms else nullcontext()


def _open_models(
    order: RunOrder, store: RunStore, telemetry: Observer | None
) -> AbstractAsyncContextManager[RunModels]:
    if order.batch is None:
        return open_run_models(order, store.add_call, telemetry)
    return open_batched_models(order, order.batch, store.add_call, telemetry)


def _make_lister(kind: JobKind[Any], models: RunModels) -> ModelSource:
    plan, style = kind.plan, kind.list_style()
    return ModelSource(
        plan.recipe.axes,
        models.models["lister"],
        preamble=style.preamble,
        enforced=style.enforced,
        seeds=RunSeeds(plan.seed),
        parameters=plan.parameters.get("lister", ()),
    )


@dataclass(frozen=True, slots=True)
class _WorkLeft:
    """What is left of a run."""

    order: RunOrder
    kind: JobKind[Any]
    store: RunStore
    ids: JobIds
    jobs: JobSequence
    progress: RunProgress

    async def find(
        self, claims: Claims | None, divide: Callable[[int, float], object], *, longer: bool
    ) -> tuple[Scheduler, list[tuple[Job, int]]]:
        """Return what gives out the jobs that are left, and those that an earlier command left open, with their turns.

        The limit of messages may be ``longer`` than it was.
        """
        order, limit = self.order, self.kind.limit
        if limit is not None and (claims is None or longer):
            # Sessions that stopped at a smaller limit of messages continue.
            listed = self.ids.list_jobs(self.store)
            shorter = [session.id async for _, session in listed if is_cut_short(session, limit)]
            await asyncio.gather(*map(self.store.reopen, shorter))
            if shorter and order.access.report is not None:
                told = write_count(len(shorter), "conversation")
                order.access.report(f"{told} may now have {limit:,} messages, and will go on.")
        if claims is None:
            spent = await read_spending(self.store)
            self.progress.count_before(spent.usage, spent.usd or 0.0, spent.unpriced)
            done, begun = await self._find_done()
            return Scheduler(self.jobs, done, self._find_known, lists_only=order.lists_only), begun
        await claims.begin(str(order.spread), self.progress, divide, retry=order.retry_failed or longer)
        name_job, lists_only = self.ids.name_job, order.lists_only
        return ClaimingScheduler(self.jobs, self._find_known, claims, name_job, lists_only=lists_only), []

    async def _find_known(self, list_id: str, enough: int) -> tuple[str, ...] | None:
        """Return the items of a list, or None if it has to be fetched. Short lists are counted."""
        stored = await self.store.item_list(list_id)
        if stored is None or len(stored.items) >= enough:
            return stored and stored.items
        if self.order.retry_failed or not stored.complete:
            return None
        count = next(axis.count for axis in self.ids.grid.axes if axis.name == list_id.partition("@")[0])
        self.progress.short[list_id] = ShortList(len(stored.items), count)
        return stored.items

    async def _find_done(self) -> tuple[DoneJobs, list[tuple[Job, int]]]:
        """Return the numbers of jobs that have begun, and the jobs that were left open, with their turns."""
        jobs, progress = self.jobs, self.progress
        done = DoneJobs()
        begun: list[tuple[Job, int]] = []
        # By number of turns: sessions, and tokens of prompts, completions and caches.
        ended: dict[int, list[int]] = {}
        left: list[tuple[str, int]] = []
        async for number, session in self.ids.list_jobs(self.store):
            progress.beside += number not in jobs
            if session.ending is None:
                left.append((session.id, number))
            elif session.ending == "failed" and self.order.retry_failed:
                continue
            else:
                if number in jobs:
                    progress.done += 1
                    progress.endings[session.ending] += 1
                sums = ended.setdefault(session.turns or 0, [0, 0, 0, 0])
                for position, value in enumerate((1, session.prompt, session.completion, session.cached)):
                    sums[position] += value or 0
            done.add(number)
        for turns, (count, prompt, completion, cached) in ended.items():
            progress.admission.outlook.learn(turns, Usage(prompt, completion, cached), count)
        for session_id, number in left:
            stored = await self.store.session(session_id)
            assert stored is not None
            if number in jobs:
                begun.append((Job(session_id, number, stored.values), len(stored.turns)))
        return done, sorted(begun, key=itemgetter(1))


def _list_jobs(order: RunOrder, axes: Sequence[Axis]) -> JobSequence:
    """Return the jobs of the run in their order. Warn of a shard without any."""
    plan = order.plan
    jobs = JobSequence.of_recipe(plan.recipe, axes, order.spread, order.limit, plan.shard)
    if not jobs.size and plan.shard != WHOLE:
        fewer = f"Shard {plan.shard} has no jobs: there are fewer groups of jobs than shards."
        warn(fewer, BactrianWarning, stacklevel=2)
    return jobs


def _is_longer(kind: JobKind[Any], frozen: Mapping[str, Any], content: Mapping[str, Any]) -> bool:
    """Return True if the plan differs from the run's in nothing but a larger limit of messages."""
    if not is_other_limit(frozen, content):
        return False
    stored = replace(kind.plan, recipe=read_recipe_content(frozen["recipe"]))
    before, after = type(kind)(stored).limit, kind.limit
    return after is not None and (before or MAX_MESSAGES) < after


async def _prepare_admission(kind: JobKind[Any], order: RunOrder) -> Admission:
    """Return what begins the sessions, with the assumed cost of one."""
    cost = await kind.estimate()
    size = cost.apply_critic(cost.session.times(cost.sessions), guessed=True)
    price = cost.mix_prices(kind.plan.models, order.meter.prices, order.tier)
    outlook = Outlook(
        SessionPrior(cost.turns.times(cost.sessions), size.prompt, size.completion, price, cost.free_turns)
    )
    if order.batch is not None:
        order.meter.count_wave = lambda: sum(outlook.open)
    return Admission(order.meter, outlook)


def tune_gc() -> None:
    """Run Python's garbage collector less often, until the process ends.

    A thousand conversations are a million objects. The collector would scan them repeatedly and free nothing.
    """
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)


def _find_source(axis: Axis, lister: ListSource, order: RunOrder) -> ListSource:
    """Return the list source of an axis. Raises InputError if it is not found."""
    name, sources = axis.source, order.list_sources
    if name is None:
        return lister
    if name.startswith(LIST_FILE) and name not in sources:
        folder = order.plan.recipe.folder
        return ListFiles(name.removeprefix(LIST_FILE), folder, None if axis.ask is None else lister)
    return find_list_source(name, sources)


# The models of a run, wrapped for many sessions at once.

# A single session gives up after three bad replies; among 80,000 calls, three in a row happen by bad luck alone.
_RETRY_POLICY = RetryPolicy(attempts=1_000, bad_replies=5, first_wait=0.1)
"""Transient faults are retried for half an hour without a limit on attempts; invalid replies are retried four times."""
LOCAL_WINDOW = 4
"""Conversations in flight for a model in this process. Measured on two cores, in tokens a second: 37 with two
conversations, 63 with four, 47 with eight."""
_LONG_REST = 2
"""Usual replies that a conversation waits before another one begins in its place."""
_OTHER_FILES = 64
"""Files that a run may have open besides its connections."""


def _check_open_files(window: int) -> None:
    """Raise the limit of open files where needed: each conversation in flight may have its own connection.

    Raises:
        InputError: the hard limit is too low.
    """
    needed = window + _OTHER_FILES
    if (most := raise_file_limit(needed)) < needed:
        raise InputError(
            f"{window:,} conversations at once need {needed:,} open files, and this process may have {most:,}.",
            option="concurrency",
            next="Lower it, or raise the limit (ulimit -n).",
        )


@dataclass(frozen=True, slots=True)
class RunModels:
    """The models by agent, with their shared state."""

    models: Mapping[str, Model]
    concurrency_limits: tuple[ConcurrencyLimit, ...]
    rates: tuple[RateLimit, ...]
    window: Window
    """Conversations to have in flight."""
    opened: tuple[Model, ...]
    """The models without their wrappers."""
    stop_signal: StopSignal
    """Stopping it cancels the calls that have not been sent."""

    def divide(self, parts: int, wait: float = 0.0) -> None:
        """Use one of ``parts`` equal parts of the user's rate limits; begin after ``wait`` seconds."""
        for rate in self.rates:
            rate.divide(parts, wait)

    def pressure(self) -> EndpointPressure:
        """Return the current limits of the endpoints."""
        return EndpointPressure(
            sum(each.limit for each in self.concurrency_limits),
            max((each.closed_for for each in self.concurrency_limits), default=0.0),
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


@asynccontextmanager
async def open_run_models(
    order: RunOrder, sink: Callable[[Call], Awaitable[None]], telemetry: Observer | None = None
) -> AsyncGenerator[RunModels]:
    """Open the model of each agent; agents that share a name share a model, and models that share an endpoint its
    limits.

    From the outside in: retries, concurrency limit, check of refusals, rate limit, budget, telemetry if there is one,
    record of failed calls.

    Raises:
        InputError: a name is not that of a model, or its file cannot be used.
    """

    names, access, limits, meter = order.plan.models, order.trusted_access, order.limits, order.meter

    def note_repeat(text: str) -> None:
        meter.repeated += 1
        if access.notice is not None:
            access.notice(text)

    window = limits.choose_window(names.values())
    # Cache slots: one for each agent in flight, and two for a session that begins while others are newer. With fewer,
    # agents push each other's conversations out of the cache.
    access = replace(access, slots=(3 if "critic" in names else 2) * window + 2)
    _check_open_files(window)
    models: dict[str, Model] = {}
    rates: dict[object, RateLimit] = {}
    concurrency: dict[object, ConcurrencyLimit] = {}
    opened: list[Model] = []
    stop_signal = StopSignal()
    in_flight = Window(window)

    async def rest(limit: ConcurrencyLimit, seconds: float) -> None:
        # With several endpoints, each may have as many requests as there are conversations: no other begins.
        makes_room = len(concurrency) == 1 and not limit.silent and 0 < _LONG_REST * limit.latency < seconds
        async with in_flight.rest() if makes_room else nullcontext():
            await stop_signal.sleep(seconds)

    retry_policy = _RETRY_POLICY.with_max_wait(access.max_wait)
    has_rate = bool(limits.requests_per_minute or limits.tokens_per_minute)

    def limit(model: Model, *, proven: bool) -> tuple[Model, ConcurrencyLimit]:
        """Wrap the model of one endpoint by the limits of that endpoint."""
        # Address and key, whose limits all models share whatever their names.
        endpoint = model.endpoint if isinstance(model, RemoteModel) else model.name
        # A call that was answered is a turn already, with model, tokens and time.
        inner: Model = Recorder(model, sink, failures_only=True)
        inner = Budget(telemetry.trace(inner) if telemetry else inner, meter, tier=access.tier)
        if has_rate:
            rates[endpoint] = inner = (
                rates[endpoint].share(inner)
                if endpoint in rates
                else RateLimit(
                    inner,
                    requests_per_minute=limits.requests_per_minute,
                    tokens_per_minute=limits.tokens_per_minute,
                    sleep=stop_signal.sleep,
                )
            )
            if isinstance(model, RemoteModel):
                model.before_again = inner.wait_again
        inner = RefusalCheck(inner)
        if endpoint in concurrency:
            inner = concurrency[endpoint].share(inner)
        else:
            concurrency[endpoint] = inner = ConcurrencyLimit(
                inner,
                window,
                stop_signal=stop_signal,
                timed=not has_rate,  # Waits for the rate limit say nothing about the endpoint's speed.
                proven=proven or not get_traits(model).remote,
                longest_wait=access.max_wait,
            )
        return inner, concurrency[endpoint]

    try:
        for name in dict.fromkeys(names.values()):
            opened.append(open_model(name, access))
            model = opened[-1]
            if isinstance(model, Replicas):
                # One of the servers may not be up yet, which says nothing about the others.
                limited = [limit(each, proven=True) for each in model.models]
                inner: Model = Replicas(name, [each for each, _ in limited])
            else:
                limited = [limit(model, proven=False)]
                inner = limited[0][0]
            models[name] = Retry(inner, retry_policy, notice=note_repeat, sleep=partial(rest, limited[0][1]))
        by_agent = {agent: models[name] for agent, name in names.items()}
        yield RunModels(
            by_agent,
            tuple(concurrency.values()),
            tuple(rates.values()),
            in_flight,
            tuple(opened),
            stop_signal,
        )
    finally:
        for model in models.values():
            await model.close()


@asynccontextmanager
async def open_batched_models(
    order: RunOrder, terms: BatchTerms, sink: Callable[[Call], Awaitable[None]], telemetry: Observer | None
) -> AsyncGenerator[RunModels]:
    """Open the models like :func:`open_run_models`, with requests that wait for each other and are sent in batches.

    Raises:
        InputError: a model has no batch interface.
        StoreError: the ledger of the batches cannot be opened.
    """
    names, access, meter = order.plan.models, order.trusted_access, order.meter
    in_flight, stop_signal = Window(order.limits.concurrency or terms.size), StopSignal()
    ledger = Ledger(order.run)
    ledger.open()
    batches = Batches(
        ledger,
        terms,
        access,
        stop_signal=stop_signal,
        count_running=lambda: in_flight.inside,
        can_go_live=meter.is_ample,
    )
    policy = replace(_RETRY_POLICY, budget=inf)  # A batch takes hours.
    models: dict[str, Model] = {}
    opened: list[Model] = []
    try:
        for name in dict.fromkeys(names.values()):
            opened.append(open_model(name, access))
            batches.add(opened[-1])
            recorder = Recorder(opened[-1], sink, failures_only=True)
            inner = telemetry.trace(recorder) if telemetry else recorder
            budget = Budget(inner, meter, tier=BATCH)
            models[name] = Retry(budget, policy, notice=access.notice, sleep=stop_signal.sleep)
        batches.collect()
        yield RunModels(
            {agent: models[name] for agent, name in names.items()},
            (),
            (),
            in_flight,
            tuple(opened),
            stop_signal,
        )
    finally:
        await batches.close()
        for model in opened:
            await model.close()
