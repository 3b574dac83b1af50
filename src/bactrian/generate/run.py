"""A run, put together from its parts and ready to go on from wherever it is."""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bactrian.generate.fork import copy_lists, open_origin
from bactrian.generate.jobs.answer import AnswerJobs
from bactrian.generate.jobs.role_play import RED_TEAM, JobPlayer, RolePlayJobs
from bactrian.generate.jobs.society import SocietyJobs
from bactrian.generate.jobs.translate import TranslateJobs, find_source, list_translatable
from bactrian.generate.lists.ask import ModelSource
from bactrian.generate.lists.source import ListFunction, ListSource, find_list_source
from bactrian.generate.plan import Plan, check_same
from bactrian.generate.progress import RunProgress, ShortList
from bactrian.generate.run_models import RunLimits, RunModels, open_run_models
from bactrian.generate.runner import Runner
from bactrian.generate.scheduler import DoneJobs, GridAxis, Job, Scheduler, find_number
from bactrian.models.registry import ModelOptions
from bactrian.models.wrappers.budget import UsageMeter
from bactrian.play.tools.loading import open_tools
from bactrian.play.tools.toolbox import Toolbox
from bactrian.prompts.pack import Pack
from bactrian.store import Store, open_store

_Number = Callable[[str], int | None]


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """What is left of a run, and who does it."""

    runner: Runner
    tally: RunProgress
    frontier: Scheduler


@dataclass(frozen=True, slots=True)
class _Sources:
    """A translation's second axis: the sessions of the run that it translates."""

    items: tuple[str, ...]
    name: str = "source"
    per: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return len(self.items)


@dataclass(frozen=True, slots=True)
class RunOrder:
    """What a command asks for."""

    plan: Plan
    run: Path
    access: ModelOptions
    meter: UsageMeter
    limits: RunLimits
    limit: int | None = None
    """Only the first so many jobs of the recipe."""
    retry_failed: bool = False
    """Failed jobs and short lists are taken up again."""
    origin: Path | None = None
    """Another run, whose lists this one takes over where they stay the same."""
    list_sources: Mapping[str, ListSource | ListFunction] = field(
        default_factory=dict[str, ListSource | ListFunction]
    )
    """Sources of the user's own, by the name that an axis has as its ``source``."""


@asynccontextmanager
async def prepare_run(order: RunOrder) -> AsyncGenerator[PreparedRun]:
    """Open the run, or begin it, and find what is left to do.

    Raises:
        InputError: the run was begun with another plan, or something of the plan cannot be used.
        StoreError: the run is damaged, in use, or of a newer version of this program.
    """
    plan, meter, retry_failed = order.plan, order.meter, order.retry_failed
    pack = plan.pack()
    async with AsyncExitStack() as stack:
        origin = order.origin and await stack.enter_async_context(open_origin(order.origin))
        store = await stack.enter_async_context(open_store(order.run))
        tools = await stack.enter_async_context(open_tools(plan.load_tools()))
        content = plan.content(pack, tools)
        check_same(await store.freeze(content), content, str(order.run))
        if origin is not None:
            await copy_lists(origin, store, plan.recipe)
        crew = await stack.enter_async_context(
            open_run_models(plan.models, order.access, order.limits, meter, store.add_call)
        )
        leaf, axes, number = await _leaf(plan, pack, crew, tools, stack)
        sources = _find_sources(plan, crew, order.list_sources)
        tally = RunProgress(
            meter, 0, has_price=set(plan.models.values()) <= meter.prices.keys(), throttle=crew.pressure
        )
        if meter.limited:
            await _count_spent(store, tally, plan.models)
        done, begun = await _find_done(store, number, tally, retry_failed=retry_failed)

        async def known(list_id: str, enough: int) -> tuple[str, ...] | None:
            stored = await store.item_list(list_id)
            if stored is None:
                return None
            if len(stored.items) >= enough:
                return stored.items
            if not stored.complete:
                return None
            wanted = next(axis.count for axis in axes if axis.name == list_id.partition("@")[0])
            if len(stored.items) < wanted:
                if retry_failed:
                    return None
                tally.short[list_id] = ShortList(len(stored.items), wanted)
            return stored.items

        frontier = Scheduler(axes, done, known, order.limit)
        tally.total = frontier.size
        if tally.done < tally.total:
            await crew.load()

        runner = Runner(
            frontier,
            leaf,
            sources,
            store,
            tally,
            window=crew.window,
            begun=[cell for cell in begun if cell.number < frontier.size],
            halt=crew.rest.stop,
        )
        yield PreparedRun(runner, tally, frontier)


def tune_gc() -> None:
    """Have Python's garbage collector look less often, for the rest of the process.

    A thousand conversations are a million objects, which it would walk again and again and find nothing.
    """
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)


async def _leaf(
    plan: Plan,
    pack: Pack | None,
    crew: RunModels,
    tools: Mapping[str, Toolbox],
    stack: AsyncExitStack,
) -> tuple[JobPlayer, tuple[GridAxis, ...], _Number]:
    """What is done at each job, over which axes, and the number of the job that a session's id tells."""
    recipe = plan.recipe
    names = frozenset(axis.name for axis in recipe.axes)
    mark = RED_TEAM if recipe.red_team else None
    if recipe.role_play is not None:
        assert pack is not None
        plays = RolePlayJobs(recipe.role_play, names, plan.setup, pack, crew.models, tools, mark=mark)
        return plays, recipe.axes, partial(find_number, axes=recipe.axes)
    if recipe.answer is not None:
        answers = AnswerJobs(recipe.answer, names, recipe.name, crew.models, seed=plan.seed, mark=mark)
        return answers, recipe.axes, partial(find_number, axes=recipe.axes)
    if (society := plan.society()) is not None:
        assert recipe.society is not None
        societies = SocietyJobs(recipe.society, names, society, crew.models, tools, seed=plan.seed, mark=mark)
        return societies, recipe.axes, partial(find_number, axes=recipe.axes)
    assert recipe.translate is not None
    source = await stack.enter_async_context(open_store(find_source(recipe.translate), read_only=True))
    sessions = await list_translatable(source)
    languages = recipe.axes[0].items or ()
    pairs = ((language, session) for language in languages for session in sessions)
    numbers = {f"{language}_{session}": number for number, (language, session) in enumerate(pairs)}
    translations = TranslateJobs(recipe.translate, recipe.name, crew.models, source, seed=plan.seed)
    return translations, (*recipe.axes, _Sources(sessions)), numbers.get


def _find_sources(
    plan: Plan, crew: RunModels, own: Mapping[str, ListSource | ListFunction]
) -> dict[str, ListSource]:
    """Where the lists of each axis come from.

    Raises:
        InputError: a source is not there.
    """
    role_play = plan.recipe.role_play
    model = ModelSource(
        plan.recipe.axes,
        crew.models["lister"],
        preamble=role_play.preamble if role_play else "",
        enforced=role_play is not None and role_play.protocol == "enforced",
        seed=plan.seed,
    )
    return {
        axis.name: model if axis.source is None else find_list_source(axis.source, own)
        for axis in plan.recipe.axes
    }


async def _find_done(
    store: Store, number_of_session: _Number, tally: RunProgress, *, retry_failed: bool
) -> tuple[DoneJobs, list[Job]]:
    """The jobs that need not be begun, and those among them that an earlier command left open."""
    done = DoneJobs()
    open_: list[tuple[str, int]] = []
    async for one in store.progress():
        number = number_of_session(one.id)
        if number is None:
            continue
        if one.ending is None:
            open_.append((one.id, number))
        elif one.ending == "failed" and retry_failed:
            continue
        else:
            tally.done += 1
            tally.endings[one.ending] += 1
        done.add(number)
    begun: list[Job] = []
    for session_id, number in open_:
        session = await store.session(session_id)
        assert session is not None
        begun.append(Job(session_id, number, session.values))
    return done, begun


async def _count_spent(store: Store, tally: RunProgress, models: Mapping[str, str]) -> None:
    for agent, usage in (await store.spent()).items():
        price = tally.meter.prices.get(models.get(agent, models["lister"]))
        tally.count_before(usage, price.cost(usage) if price else 0.0)
