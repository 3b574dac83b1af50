"""The forecast of what is left of a run, from its plan and from the sessions that it has."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from math import exp, sqrt
from statistics import fmean, stdev

from bactrian.records.run import Progress, TierUse
from bactrian.records.text import write_count
from bactrian.records.turn import Usage
from bactrian.runs.cost import Estimate, Outlook, SessionPrior, TurnSeconds, estimate_lists
from bactrian.runs.jobs import JobCost, JobIds, SessionCost, is_cut_short
from bactrian.runs.kinds import find_job_kind
from bactrian.runs.scheduler import JobSequence, Spread
from bactrian.runs.ways import UNCACHED, Way, WayComparison, guess_own_seconds
from bactrian.runs.wiring import RunOrder
from bactrian.stats.intervals import FEW, find_t_quantile
from bactrian.store import RunStore, open_store


@dataclass(frozen=True, slots=True)
class Forecast:
    """The remaining cost of a run.

    Example:
        >>> forecast = bt.open_run("teas.db").forecast()
        >>> forecast.sessions, forecast.calls.low <= forecast.calls.value <= forecast.calls.high
        (1, True)
    """

    sessions: int
    calls: Estimate
    prompt: Estimate
    """Tokens."""
    completion: Estimate
    cached: Estimate
    """Prompt tokens that a prefix cache can serve."""
    usd: Estimate | None
    """Without any prefix cache; None if there is no price."""
    usd_cached: Estimate | None
    """With a prefix cache that serves all it can."""
    seconds: Estimate
    basis: str
    """The basis of the numbers, and their uncertainty."""
    jobs: int = 0
    """Jobs that were asked for, those that ended among them."""
    begun: int = 0
    """Sessions that the jobs asked for have, ended or not."""
    open: int = 0
    """Those of them that have not ended."""
    equal_roles: int = 0
    """Jobs of the recipe that are left out because their roles are equal."""
    ways: tuple[Way, ...] = ()
    """The ways that all models offer: the usual one, flex, batches."""
    measured: bool = False
    """Whether the ranges are 95 % intervals, from ten sessions of this run or more. The time never is.

    If not, the low end is the typical value. The high end is the cost of sessions that all go to their limit.
    """

    def write_ends(self, of: Estimate, write: Callable[[float], str]) -> str:
        """Return the range of an estimate in words: both ends, or the most where nothing was measured.

        Example:
            >>> forecast.write_ends(forecast.calls, str).startswith("at most ")
            True
        """
        return f"{write(of.low)} to {write(of.high)}" if self.measured else f"at most {write(of.high)}"

    def plus(self, other: Forecast) -> Forecast:
        """Return the remaining cost of two runs, one after the other. It has no basis: each has its own.

        Example:
            >>> forecast.plus(forecast).sessions
            2
        """
        return Forecast(
            sessions=self.sessions + other.sessions,
            calls=self.calls.plus(*other.calls),
            prompt=self.prompt.plus(*other.prompt),
            completion=self.completion.plus(*other.completion),
            cached=self.cached.plus(*other.cached),
            usd=self.usd and other.usd and self.usd.plus(*other.usd),
            usd_cached=self.usd_cached and other.usd_cached and self.usd_cached.plus(*other.usd_cached),
            seconds=self.seconds.plus(*other.seconds),
            basis="",
            jobs=self.jobs + other.jobs,
            begun=self.begun + other.begun,
            open=self.open + other.open,
            equal_roles=self.equal_roles + other.equal_roles,
            ways=tuple(way.plus(more) for way in self.ways for more in other.ways if way.name == more.name),
            measured=self.measured and other.measured,
        )


def choose_pilot(order: RunOrder, jobs: int) -> RunOrder:
    """Return the order of some of the run's ``jobs``, which tell what the others will cost.

    Of a whole grid they are drawn at random, by the seed of the run, because its first jobs have the same roles. Of a
    sample or a limit they are the first ones.
    """
    if order.limit is not None:
        return replace(order, limit=min(jobs, order.limit))
    equal = order.spread.equal_roles
    return replace(order, limit=jobs, spread=Spread(order.plan.seed or 0, equal_roles=equal))


async def forecast_run(order: RunOrder, opened: RunStore | None = None) -> Forecast:
    """Estimate the remaining cost of the run before anything is spent; ``opened`` is the run if it is open.

    Raises:
        InputError: the run cannot be read.
    """
    plan = order.plan
    kind = find_job_kind(plan.recipe)(plan)
    kind.content()  # A run that cannot begin has no cost.
    grid = await kind.read_grid()
    jobs = JobSequence.of_recipe(plan.recipe, grid.axes, order.spread, order.limit, plan.shard)
    left = jobs.size
    states = JobStates()
    lists = estimate_lists(plan.recipe.axes, jobs.size, spread=not order.spread.depth)
    uses: Mapping[str, TierUse] = {}
    if opened or await asyncio.to_thread(order.run.exists):
        async with nullcontext(opened) if opened else open_store(order.run, read_only=True) as store:
            ids = JobIds(grid, await store.list_imported())
            await states.read(store, ids, kind.limit, jobs, retry=order.retry_failed)
            left -= states.begun
            async for items in store.item_lists():
                if items.complete:
                    lists.finish(items)
            uses = await store.measure_tiers()
    # A list of which one item is asked at a time is never complete.
    usage, calls = (lists.estimate(), lists.count_calls()) if left else (Usage(), 0)
    cost = await kind.estimate()
    turns = replace(cost.turns, high=kind.limit or cost.turns.high)
    ended = sum(bool(session.prompt) for session in (*states.done, *states.shorter))
    for step in cost.preparation:
        calls += left
        if not ended:  # The usage of ended sessions includes this.
            usage += Usage(step.prompt * left, step.completion * left)
    session = _estimate_extended(states, turns, left, cost.free_turns) if ended else cost.session
    session = _widen(session, cost.session, ended) if 0 < ended < FEW else session
    session = cost.apply_critic(session.times(cost.sessions), guessed=not ended)
    whole = session.times(left)
    begun = (*states.shorter, *states.open)
    if begun:
        whole = whole.plus(cost.apply_critic(_estimate_rest(begun, turns), guessed=False))
    speakers = [plan.models[agent] for agent in cost.speakers]
    all_calls = whole.calls.plus(calls, calls, 2 * calls)
    at_once = max(1, min(order.limits.choose_window(speakers), left + len(begun)))
    prompt, completion = (
        part.plus(tokens, tokens / 2, tokens * 2)
        for part, tokens in ((whole.prompt, usage.prompt), (whole.completion, usage.completion))
    )
    cached = whole.cached
    if ended < FEW:
        parts = (replace(of, low=of.value) for of in (all_calls, prompt, completion, cached))
        all_calls, prompt, completion, cached = parts
    ways = WayComparison(
        tuple(speakers),
        order.access.base_url,
        uses,
        partial(cost.mix_prices, plan.models, order.meter.prices),
        all_calls.value / max(1.0, whole.calls.value),
        all_calls.high / max(1.0, all_calls.value),
        (prompt, completion, cached),
        at_once,
        order.limits.concurrency,
        left,
        partial(states.estimate_seconds, cost, left * cost.sessions),
        guess_own_seconds(speakers, prompt, completion, cached) if all_calls.value else None,
    )
    time, about = ways.estimate_seconds(order.tier)
    return Forecast(
        sessions=left + len(begun),
        calls=all_calls,
        prompt=prompt,
        completion=completion,
        cached=cached,
        usd=ways.estimate_usd(order.tier, UNCACHED),
        usd_cached=ways.estimate_usd(order.tier, None),
        seconds=time,
        measured=ended >= FEW,
        basis=f"{session.basis} Time: {about}",
        jobs=jobs.size,
        begun=states.of_jobs.total(),
        open=states.of_jobs[None],
        equal_roles=jobs.count_equal(),
        ways=ways.compare(),
    )


async def list_asked(order: RunOrder) -> frozenset[str]:
    """Return the ids of the sessions of the jobs asked for, begun or ended; the run may have more of a larger sample.

    Raises:
        StoreError: the run cannot be read.
    """
    plan = order.plan
    grid = await find_job_kind(plan.recipe)(plan).read_grid()
    jobs = JobSequence.of_recipe(plan.recipe, grid.axes, order.spread, order.limit, plan.shard)
    async with open_store(order.run, read_only=True) as store:
        listed = JobIds(grid, await store.list_imported()).list_jobs(store)
        return frozenset([session.id async for number, session in listed if number in jobs])


# Sessions that have begun: left open by an earlier command, or stopped at a smaller limit.


_OTHERWISE = 1.25
"""How much longer or shorter than its earlier turns the later ones of a session may be."""


@dataclass(slots=True)
class JobStates:
    """The sessions of a run's jobs, by what is left of them."""

    done: list[Progress] = field(default_factory=list[Progress])
    shorter: list[Progress] = field(default_factory=list[Progress])
    """Ended at a smaller limit of messages, and will continue."""
    open: list[Progress] = field(default_factory=list[Progress])
    """Left open by an earlier command, with their usage so far; sessions without a turn are not included."""
    begun: int = 0
    """Jobs asked for that are done, shorter or open."""
    of_jobs: Counter[str | None] = field(default_factory=Counter[str | None])
    """The sessions of jobs asked for, by the code of their ending."""

    async def read(
        self, store: RunStore, ids: JobIds, limit: int | None, jobs: JobSequence, *, retry: bool
    ) -> None:
        """Read the states of the jobs; with ``retry``, failed ones are not done. ``jobs`` are those asked for."""
        async for number, progress in ids.list_jobs(store):
            self.of_jobs[progress.ending] += number in jobs
            if progress.ending is None or (progress.ending == "failed" and retry):
                session = await store.session(progress.id)
                if session is None or not session.turns or number not in jobs:
                    continue
                usage = session.usage
                so_far = {"prompt": usage.prompt, "completion": usage.completion, "cached": usage.cached}
                self.open.append(replace(progress, turns=len(session.turns), **so_far))
            elif not is_cut_short(progress, limit):
                self.done.append(progress)
            elif number in jobs:
                self.shorter.append(progress)
            self.begun += number in jobs

    def estimate_seconds(self, cost: JobCost, left: int, at_once: int, pace: TurnSeconds) -> Estimate:
        """Return the time that ``left`` more sessions take, ``at_once`` in flight.

        Its low end is its value, since how an endpoint will answer is not in the run.
        """
        outlook = Outlook(SessionPrior(cost.turns, cost.session.prompt, cost.session.completion))
        for session in self.done:
            outlook.learn(session.turns or 0, Usage())
        for session in (*self.shorter, *self.open):
            outlook.begin(0)
            outlook.move(0, session.turns or 0)
        seconds = outlook.estimate_seconds(left, at_once, pace) or 0.0
        return Estimate(seconds, seconds, 2 * seconds)


def _extend(session: Progress, turns: float) -> Progress:
    """Return a session that ended, or got so far, with what it will have used after ``turns`` turns.

    Each turn adds a reply to the prompts of all later ones.
    """
    so_far = session.turns or 0
    if turns <= so_far or not so_far:
        return session
    factor = turns / so_far
    prompt, completion, cached = session.prompt or 0, session.completion or 0, session.cached or 0
    added = completion / so_far * turns * (turns - so_far) / 2
    whole = prompt * factor + added
    return replace(
        session,
        turns=round(turns),
        prompt=round(whole),
        completion=round(completion * factor),
        cached=round(cached / prompt * whole) if prompt else 0,
    )


def _list_extended(session: Progress, turns: Estimate) -> tuple[Progress, Progress, Progress]:
    """Return the session as it probably ends, with its next turn, and at its limit."""
    fewest = (session.turns or 0) + 1
    most = max(fewest, turns.high)
    usual = min(most, max(fewest, turns.value))
    return _extend(session, usual), _extend(session, fewest), _extend(session, most)


def _estimate_extended(states: JobStates, turns: Estimate, left: int, calls_beside: int) -> SessionCost:
    """Return the mean of sessions of this run, if those that stopped at a smaller limit continue."""
    done = [session for session in states.done if session.prompt]
    extended = [_list_extended(session, turns) for session in states.shorter if session.prompt]
    usual, low, high = (
        _average([*done, *(ends[which] for ends in extended)], left, calls_beside=calls_beside)
        for which in range(3)
    )
    if not states.shorter:
        return usual
    parts = zip(usual.parts, low.parts, high.parts, strict=True)
    return SessionCost(
        *(Estimate(part.value, least.low, most.high) for part, least, most in parts),
        basis=f"{usual.basis} Of these, {len(states.shorter):,} stopped at a smaller limit and will become longer.",
    )


def _widen(measured: SessionCost, assumed: SessionCost, ended: int) -> SessionCost:
    """Return the means of a few sessions, with the most that is assumed of one."""
    parts = zip(measured.parts, assumed.parts, strict=True)
    return SessionCost(
        *(Estimate(mean.value, mean.value, max(mean.value, most.high)) for mean, most in parts),
        basis=f"From {write_count(ended, 'session')} of this run that ended; an interval needs {FEW}. At most: all go "
        "to their limit, with texts twice as long.",
    )


def _estimate_rest(begun: Sequence[Progress], turns: Estimate) -> SessionCost:
    """Return the remaining cost of all sessions of ``begun``."""
    extended = [_list_extended(session, turns) for session in begun]

    def add_up(name: str) -> Estimate:
        before = sum(getattr(session, name) or 0 for session in begun)
        return Estimate(
            *(float(sum(getattr(ends[which], name) or 0 for ends in extended) - before) for which in range(3))
        )

    tokens = (
        add_up(name).times(1, 1 / _OTHERWISE, _OTHERWISE) for name in ("prompt", "completion", "cached")
    )
    return SessionCost(add_up("turns"), *tokens, basis="")


def _average(ended: Sequence[Progress], left: int, *, calls_beside: int) -> SessionCost:
    """Return the mean cost of the run's ended sessions, with the 95 % interval of the mean of ``left`` others.

    ``calls_beside`` is how many turns of a session were not asked of a model.
    """
    calls, prompt, completion, cached = (
        _mean([float(getattr(session, name) or 0) for session in ended], left)
        for name in ("turns", "prompt", "completion", "cached")
    )
    return SessionCost(
        calls.plus(-calls_beside),
        prompt,
        completion,
        cached,
        f"From the {write_count(len(ended), 'session')} of this run that ended; the shortest end first. Ranges are "
        "95 % intervals.",
    )


def _mean(values: Sequence[float], left: int) -> Estimate:
    """Return the mean of ``values``, with the 95 % range of the mean of ``left`` further ones.

    Both means vary. The range is Student's on the logarithmic scale, because costs are skewed.
    """
    mean, count = fmean(values), len(values)
    if count < 2 or not mean:
        return Estimate(mean, mean / 3, mean * 3)
    spread = stdev(values) / mean * sqrt(1 / count + 1 / max(1, left))
    factor = exp(min(find_t_quantile(count - 1) * spread, 50.0))
    return Estimate(mean, mean / factor, mean * factor)
