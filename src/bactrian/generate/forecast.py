"""Forecast of a run's cost, estimated from its plan and from its finished sessions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from bactrian.generate.job_ids import JobIds
from bactrian.generate.jobs.registry import find_job_kind
from bactrian.generate.lists.costs import estimate_lists
from bactrian.generate.outlook import mix_prices
from bactrian.generate.remaining import JobStates, Lengths, estimate_extended, estimate_remaining, read_states
from bactrian.generate.run import RunOrder, arrange_jobs, find_begun_plan
from bactrian.generate.run_models import LOCAL_WINDOW
from bactrian.generate.scheduler import count_jobs
from bactrian.generate.session_cost import Estimate, SessionCost, apply_critic, list_three
from bactrian.models.registry import find_traits
from bactrian.models.wrappers.budget import Price
from bactrian.records.usage import Usage
from bactrian.store import open_store

_SECONDS_PER_CALL = 4.0
_GROWTH = (
    "Every call sends the whole conversation again, so prompt tokens grow with the square of its length."
)


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
    equal_roles: int = 0
    """Jobs of the recipe that are left out because their roles are equal."""


@dataclass(frozen=True, slots=True)
class Remaining:
    """What is left of a run, apart from the size of its sessions."""

    sessions: int
    other: Usage
    """The cost of lists and preparations."""
    other_calls: int
    price: Price | None
    seconds_per_call: float | None
    """None if no call of this run has been seen."""
    window: int
    """Sessions in flight."""
    begun: SessionCost | None = None
    """The remaining cost of all begun sessions together; None if there are none."""


async def forecast_run(order: RunOrder) -> Forecast:
    """Estimate the remaining cost of the run before anything is spent.

    Raises:
        InputError: the run cannot be read.
    """
    plan = await find_begun_plan(order)
    kind = find_job_kind(plan.recipe)(plan)
    kind.content()  # A run that cannot begin has no cost.
    grid = await kind.read_grid()
    picks = arrange_jobs(plan.recipe, grid.axes, order)
    size = count_jobs(grid.axes, order.limit) if picks is None else picks.size
    left = size
    states = JobStates()
    spread = order.spread is not None and not order.spread.depth
    lists = estimate_lists(plan.recipe.axes, size, spread=spread)
    seconds: float | None = None
    if await asyncio.to_thread(order.run.exists):
        async with open_store(order.run, read_only=True) as store:
            ids = JobIds(grid, await store.list_imported())
            asked = range(size) if picks is None else picks
            states = await read_states(store, ids, kind.limit, asked, retry=order.retry_failed)
            left -= states.begun
            async for items in store.item_lists():
                if items.complete:
                    lists.finish(items)
            seconds = await store.mean_seconds()
    usage, calls = lists.estimate(), lists.count_calls()
    cost = await kind.estimate()
    turns = cost.session.calls.plus(cost.given_turns)
    lengths = Lengths(turns.value, kind.limit or turns.high)
    measured = states.has_usage
    for step in cost.preparation:
        calls += left
        if not measured:  # The usage of ended sessions includes this.
            usage += Usage(step.prompt * left, step.completion * left)
    session = cost.session
    if measured:
        session = estimate_extended(states, lengths, left, calls_beside=cost.given_turns)
    session = apply_critic(session.times(cost.sessions), cost.critic, guessed=not measured)
    remaining = estimate_remaining((*states.shorter, *states.open), lengths)
    remaining = remaining and apply_critic(remaining, cost.critic, guessed=False)
    speakers = [plan.models[agent] for agent in cost.speakers]
    local = any(find_traits(name).in_process for name in speakers)
    window = order.limits.concurrency or (LOCAL_WINDOW if local else 64)
    price = mix_prices([order.meter.prices.get(name) for name in speakers])
    forecast = compute_forecast(session, Remaining(left, usage, calls, price, seconds, window, remaining))
    if turns.value > 2:  # A question and its answer have no common prefix.
        forecast = replace(forecast, basis=f"{forecast.basis} {_GROWTH}")
    begun = len(states.shorter) + len(states.open)
    left_out = 0 if picks is None else picks.count_equal()
    return replace(forecast, sessions=left + begun, jobs=size, equal_roles=left_out)


def compute_forecast(sizes: SessionCost, left: Remaining) -> Forecast:
    """Compute the cost of all sessions that are left."""
    sessions, other, price = left.sessions, left.other, left.price
    whole = sizes.times(sessions).plus(left.begun)
    prompt, completion = whole.prompt.or_about(other.prompt), whole.completion.or_about(other.completion)
    cached, calls = whole.cached, whole.calls.plus(left.other_calls).reach(left.other_calls)
    basis = sizes.basis
    per_call = left.seconds_per_call or _SECONDS_PER_CALL
    at_once = max(1, min(left.window, sessions))
    seconds = calls.times(per_call / at_once)
    if left.seconds_per_call is None:
        basis += (
            f" Time: {per_call:.0f} s a call, which is a guess; the range is a quarter to four times that."
        )
        seconds = Estimate(seconds.value, seconds.low / 4, seconds.high * 4)
    else:
        basis += f" Time: {per_call:.2g} s a call, {at_once:,} at once, without waits and the slower end of the run."
        seconds = Estimate(seconds.value, seconds.low * 0.8, seconds.high * 2)
    plain = saved = None
    if price is not None:
        totals = [
            (p, c, k)
            for p, c, k in zip(list_three(prompt), list_three(completion), list_three(cached), strict=True)
        ]
        plain = Estimate(*(price.cost(Usage(round(p), round(c))) for p, c, _ in totals))
        saved = Estimate(*(price.cost(Usage(round(p), round(c), round(k))) for p, c, k in totals))
    return Forecast(
        sessions,
        calls,
        prompt,
        completion,
        cached,
        plain,
        saved,
        seconds,
        basis,
    )
