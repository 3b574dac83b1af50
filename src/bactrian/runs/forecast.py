"""The forecast of what is left of a run, from its plan and its sessions, for each way of sending its requests."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from math import exp, sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from bactrian.models.budget import Price
from bactrian.models.open import find_traits
from bactrian.models.pricing import find_offers
from bactrian.models.providers import BATCH, FLEX
from bactrian.records.run import Progress, TierUse
from bactrian.records.text import write_count
from bactrian.records.turn import Usage
from bactrian.runs.cost import Estimate, Outlook, SessionPrior, TurnSeconds, estimate_lists
from bactrian.runs.jobs import JobCost, JobIds, SessionCost, is_cut_short
from bactrian.runs.kinds import find_job_kind
from bactrian.runs.scheduler import JobSequence, Spread
from bactrian.runs.wiring import RunOrder
from bactrian.stats.intervals import FEW, find_t_quantile
from bactrian.store import RunStore, open_store

# The ways in which the requests of a run can be sent, what each would cost, and how long it would take.


_SECONDS_PER_CALL = 4.0
_SECONDS_PER_FLEX_CALL = 900.0
"""The longest that a call is waited for."""
_SECONDS_PER_BATCH = 1710.0
"""Mean of the lognormal distribution with the median and the ninth decile that OpenRouter tells of 230,000 batches: 7
minutes and an hour."""
_BATCHED = 5_000
"""Conversations of a train."""
_READ, _WRITTEN = 400.0, 80.0
"""Of the built-in model on two cores that do nothing else: tokens a second of prompts, which both read, and of replies,
which one of them writes, for one conversation or several. By processor time: 214 a second of both, and 73 to 150."""
_BUILT_IN_BYTES, _TRAINED_BYTES = 98e6, 270e6
"""Of the built-in model, and of one trained from it. Larger weights are slower in proportion."""
_LOADED = 3.0
"""Seconds in which a model is loaded."""


def guess_own_seconds(
    models: Iterable[str], prompt: Estimate, completion: Estimate, cached: Estimate
) -> Estimate | None:
    """Return the time of so many tokens if all ``models`` are computed on this computer; None if one is not.

    At most, twice as many tokens as typical go through a processor that is busy with other work.
    """
    sizes = [_weigh(name) for name in dict.fromkeys(models)]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes) or not known:
        return None
    slower = fmean(known) / _BUILT_IN_BYTES
    seconds = [
        slower * (max(0.0, read - kept) / _READ + replies / _WRITTEN)
        for read, replies, kept in zip(prompt, completion, cached, strict=True)
    ]
    usual = seconds[0] + _LOADED * len(known)
    return Estimate(usual, usual, max(seconds[2], 2 * usual) + _LOADED * len(known))


def _weigh(name: str) -> float | None:
    """Return the bytes of the weights of a model on this computer; None for one elsewhere."""
    traits = find_traits(name)
    if not traits.in_process:
        return None
    path = Path(name.partition(":")[2]).expanduser()
    if traits.small or path.is_dir():
        return _BUILT_IN_BYTES
    return float(path.stat().st_size) if path.is_file() else _TRAINED_BYTES


_WAYS = {"live": "", "flex": FLEX, "batch": BATCH}
UNCACHED = TierUse(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Way:
    """What the rest of a run takes if its requests are sent in one way."""

    name: str
    """``live``, ``flex`` or ``batch``."""
    usd: Estimate | None
    """With as much of the prompts from a prefix cache as this run had in this way; None if there is no price."""
    seconds: Estimate
    basis: str = ""
    """What the time is based on."""

    def plus(self, other: Way) -> Way:
        """Return what two runs take, one after the other."""
        usd = self.usd and other.usd and self.usd.plus(*other.usd)
        return Way(self.name, usd, self.seconds.plus(*other.seconds))


@dataclass(frozen=True, slots=True)
class WayComparison:
    """Compares the ways by what is left of a run."""

    models: tuple[str, ...]
    """Of those who make the calls of a session."""
    base_url: str | None
    """The address of ``openai:NAME`` where that is not OpenAI's."""
    uses: Mapping[str, TierUse]
    """How this run was served so far, by tier."""
    price: Callable[[str], Price | None]
    """Returns the mean price of the models at a tier."""
    calls_per_turn: float
    most_calls: float
    """How many times the usual number of calls the most is."""
    tokens: tuple[Estimate, Estimate, Estimate]
    """Of prompts, completions, and those of prompts that a prefix cache can serve."""
    at_once: int
    """Conversations in flight that are asked live."""
    concurrency: int | None
    """What the user said of it."""
    left: int
    """Sessions that have not begun."""
    play: Callable[[int, TurnSeconds], Estimate]
    """Returns the time of all, for a number at once and the seconds of a turn."""
    own_seconds: Estimate | None = None
    """Of models on this computer, guessed from their tokens."""

    def compare(self) -> tuple[Way, ...]:
        """Return the ways that all models offer; none if only the usual one is offered."""
        ways = tuple(
            Way(name, self.estimate_usd(tier, self._find_use(tier)), *self.estimate_seconds(tier))
            for name, tier in _WAYS.items()
            if not tier or all(tier in find_offers(model, self.base_url) for model in self.models)
        )
        return ways if len(ways) > 1 else ()

    def estimate_usd(self, tier: str, use: TierUse | None) -> Estimate | None:
        """Return the cost of a way; without ``use``, with a prefix cache that serves all it can."""
        price = self.price(tier)
        if price is None:
            return None
        costs: list[float] = []
        for prompt, completion, cacheable in zip(*self.tokens, strict=True):
            cached, written = (prompt * use.cached, prompt * use.written) if use else (cacheable, 0.0)
            usage = Usage(round(prompt), round(completion), round(cached), written=round(written))
            costs.append(price.cost(usage))
        return Estimate(*costs)

    def estimate_seconds(self, tier: str) -> tuple[Estimate, str]:
        """Return the time of a way, and what it is based on."""
        use = self.uses.get(tier)
        if tier == BATCH:
            wave = use.seconds if use else _SECONDS_PER_BATCH
            window = max(1, min(self.concurrency or _BATCHED, self.left))
            whose = "of this run" if use else "that OpenRouter tells"
            time = self.play(window, TurnSeconds(wave * self.calls_per_turn))
            return self._limit(time, 2, f"{wave / 60:.2g} minutes a batch, the mean {whose}")
        pace = (
            TurnSeconds(use.seconds - use.growth * use.middle, use.growth)
            if use
            else TurnSeconds(_SECONDS_PER_CALL)
        )
        time = self.play(self.at_once, pace.times(self.calls_per_turn))
        if use is not None:
            about = f"{self.at_once:,} at once, without waits for the endpoint"
            return self._limit(time, 2, f"{use.seconds:.2g} s a call, {about}")
        if self.own_seconds is not None:
            return (
                self.own_seconds,
                "as many tokens a second as the built-in model has on two idle cores, by its processor time.",
            )
        guess = f"{_SECONDS_PER_CALL:.0f} s a call, which is a guess, {self.at_once:,} at once"
        if tier:
            longest = self.play(self.at_once, TurnSeconds(_SECONDS_PER_FLEX_CALL * self.calls_per_turn))
            minutes = f"{_SECONDS_PER_FLEX_CALL / 60:.0f} minutes"
            return replace(
                time, high=longest.value
            ), f"{guess}; at most {minutes}, the longest wait for a reply."
        return self._limit(time, 4, guess)

    def _limit(self, time: Estimate, times: int, about: str) -> tuple[Estimate, str]:
        """Return a time with its most: so many ``times`` the usual one, or that of the most calls if it is more."""
        if self.most_calls > times:
            return replace(
                time, high=self.most_calls * time.value
            ), f"{about}; at most that of the most calls."
        return replace(
            time, high=times * time.value
        ), f"{about}; at most {'twice' if times == 2 else 'four times'} that."

    def _find_use(self, tier: str) -> TierUse:
        """Return how a way was served; flex is expected to be served like live, and batches without a cache."""
        alike = (tier,) if tier == BATCH else (tier, "", FLEX)
        return next((self.uses[each] for each in alike if each in self.uses), UNCACHED)


# The forecast of what is left of a run, from its plan and from the sessions that it has.


@dataclass(frozen=True, slots=True)
class Forecast:
    """The remaining cost of a run.

    Example:
        >>> forecast = bt.open_run("teas.db").forecast(limit=2)
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
        summed: dict[str, Any] = {}
        for name in ("sessions", "jobs", "begun", "open", "equal_roles"):
            summed[name] = getattr(self, name) + getattr(other, name)
        for name in ("calls", "prompt", "completion", "cached", "usd", "usd_cached", "seconds"):
            mine, more = getattr(self, name), getattr(other, name)
            summed[name] = mine and more and mine.plus(*more)
        ways = tuple(way.plus(more) for way in self.ways for more in other.ways if way.name == more.name)
        return Forecast(**summed, basis="", ways=ways, measured=self.measured and other.measured)


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
