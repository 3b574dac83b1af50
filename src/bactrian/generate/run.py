"""Assembles new and resumed runs from their parts."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bactrian.files.identity import check_replaceable
from bactrian.generate.admission import Admission
from bactrian.generate.fork import copy_lists, copy_tasks, has_tasks, open_origin
from bactrian.generate.job_ids import JobIds, NamedPlayer, RowPlayer
from bactrian.generate.jobs.base import JobContext, JobKind
from bactrian.generate.jobs.registry import find_job_kind
from bactrian.generate.lists.ask import ModelSource
from bactrian.generate.lists.costs import estimate_lists
from bactrian.generate.lists.files import ListFiles
from bactrian.generate.lists.source import ListFunction, ListSource, find_list_source
from bactrian.generate.outlook import Outlook, SessionPrior, mix_prices
from bactrian.generate.plan import Plan, check_same, is_other_limit
from bactrian.generate.progress import RunProgress, ShortList
from bactrian.generate.remaining import is_cut_short
from bactrian.generate.run_models import RunLimits, RunModels, open_run_models
from bactrian.generate.runner import Runner
from bactrian.generate.scheduler import DoneJobs, GridAxis, Job, Scheduler, count_jobs
from bactrian.generate.session_cost import apply_critic
from bactrian.generate.spread import Spread, SpreadGrid, SpreadScheduler, find_roles
from bactrian.models.pricing import FREE
from bactrian.models.registry import ModelOptions, find_traits
from bactrian.models.seeds import RunSeeds
from bactrian.models.wrappers.budget import UsageMeter
from bactrian.play.sampling_defaults import MAX_MESSAGES
from bactrian.play.tools.loading import open_tools
from bactrian.recipes.axis import LIST_FILE, Axis
from bactrian.recipes.load import list_earlier_recipes, read_recipe_content
from bactrian.recipes.schema import Recipe
from bactrian.records.run import Command
from bactrian.records.usage import Usage
from bactrian.store import Store, open_store


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """The remaining work of a run, with its runner."""

    runner: Runner
    progress: RunProgress
    scheduler: Scheduler | SpreadScheduler


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
    spread: Spread | None = None
    """How the jobs are spread over the grid; None for the order of its lists."""
    keep_tasks: bool = False
    """True to take over the specified tasks of ``origin``, too."""


@asynccontextmanager
async def prepare_run(order: RunOrder) -> AsyncGenerator[PreparedRun]:
    """Open or create the run, and find the remaining work.

    Raises:
        InputError: the run was begun with another plan or is the one to read, or a part of the plan cannot be used.
        StoreError: the run is damaged, in use, or from a newer version of this program.
    """
    plan, meter = await find_begun_plan(order), order.meter
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
        seeds = RunSeeds.of_run(frozen)
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
        if columns := plan.recipe.axes[0].columns:
            player = RowPlayer(player, columns)
        sources = _find_sources(plan.recipe, _make_lister(kind, run_models, seeds), order.list_sources)
        progress = RunProgress(
            meter,
            0,
            has_price=set(plan.models.values()) <= meter.prices.keys(),
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
        picks = arrange_jobs(plan.recipe, grid.axes, order)
        await _reopen_shorter(store, ids, kind.limit)
        done, begun = await _find_done(store, ids, progress, picks, retry_failed=order.retry_failed)
        known = _KnownLists(store, grid.axes, progress, retry_failed=order.retry_failed)
        scheduler = (
            Scheduler(grid.axes, done, known, order.limit)
            if picks is None
            else SpreadScheduler(picks, done, known)
        )
        progress.total = scheduler.size
        await _expect_lists(progress, store, plan, order)
        if progress.done < progress.total:
            await run_models.load()
        runner = Runner(
            scheduler,
            NamedPlayer(player, ids) if ids.imported else player,
            sources,
            store,
            progress,
            window=run_models.window,
            begun=[
                (job, turns)
                for job, turns in begun
                if (job.number < scheduler.size if picks is None else job.number in picks)
            ],
            halt=run_models.stop_signal.stop,
        )
        yield PreparedRun(runner, progress, scheduler)


def arrange_jobs(recipe: Recipe, axes: Sequence[GridAxis], order: RunOrder) -> SpreadGrid | None:
    """Return the jobs that ``order`` asks for, in its order; None for all jobs in the order of the lists."""
    if order.spread is None:
        return None
    grid = SpreadGrid(axes, order.spread, find_roles(recipe), order.limit)
    left_out = grid.count_equal()
    if left_out and left_out == count_jobs(axes, None):  # A recipe of one role asks for equal roles.
        return SpreadGrid(axes, replace(order.spread, equal_roles=True), grid.roles, order.limit)
    return grid if left_out or not order.spread.depth else None


def _is_longer(kind: JobKind[Any], frozen: Mapping[str, Any], content: Mapping[str, Any]) -> bool:
    """Return True if the plan differs from the run's in nothing but a larger limit of messages."""
    if not is_other_limit(frozen, content):
        return False
    stored = replace(kind.plan, recipe=read_recipe_content(frozen["recipe"]))
    before, after = type(kind)(stored).limit, kind.limit
    return after is not None and (before or MAX_MESSAGES) < after


async def _reopen_shorter(store: Store, ids: JobIds, limit: int | None) -> None:
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
    turns = cost.session.calls.plus(cost.given_turns).times(cost.sessions)
    size = apply_critic(cost.session.times(cost.sessions), cost.critic, guessed=True)
    price = mix_prices([meter.prices.get(kind.plan.models[agent]) for agent in cost.speakers])
    return SessionPrior(turns, size.prompt, size.completion, price, cost.given_turns)


async def find_begun_plan(order: RunOrder) -> Plan:
    """Return the plan to resume: the order's, or with the run's recipe if an earlier version wrote it."""
    plan = order.plan
    if not await asyncio.to_thread(order.run.exists):
        return plan
    async with open_store(order.run, read_only=True) as store:
        stored = await store.recipe()
    if stored is None:
        return plan
    if plan.earlier_models is not None and stored.get("models") == plan.earlier_models:
        plan = replace(plan, models=stored["models"])
    if stored["recipe"] == plan.recipe.content():
        return plan
    for earlier in list_earlier_recipes(plan.recipe):
        if earlier.content() == stored["recipe"]:
            if order.access.notice is not None:
                order.access.notice(
                    f"The run was begun with an earlier version of the recipe {earlier.name!r}, and continues with it."
                )
            return replace(plan, recipe=earlier)
    return plan


def tune_gc() -> None:
    """Run Python's garbage collector less often, until the process ends.

    A thousand conversations are a million objects. The collector would scan them repeatedly and free nothing.
    """
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)


class _KnownLists:
    """Looks up the lists that the run stores, for the scheduler."""

    def __init__(
        self, store: Store, axes: Sequence[GridAxis], progress: RunProgress, *, retry_failed: bool
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
    store: Store, ids: JobIds, progress: RunProgress, picks: SpreadGrid | None, *, retry_failed: bool
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
            if picks is None or number in picks:
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


async def _expect_lists(progress: RunProgress, store: Store, plan: Plan, order: RunOrder) -> None:
    """Count the known lists, and estimate the cost of the others."""
    progress.lists = estimate_lists(
        plan.recipe.axes,
        progress.total,
        spread=order.spread is not None and not order.spread.depth,
        price=progress.meter.prices.get(plan.models.get("lister", "")),
    )
    async for items in store.item_lists():
        if items.complete:
            progress.lists.finish(items)


async def _count_spent(store: Store, progress: RunProgress, models: Mapping[str, str]) -> None:
    for agent, usage in (await store.count_spent()).items():
        price = progress.meter.prices.get(models.get(agent, models["lister"]))
        progress.count_before(usage, price.cost(usage) if price else 0.0)
