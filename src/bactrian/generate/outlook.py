"""A forecast for a plan, with what its run has taught so far."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from math import prod

from bactrian.generate.forecast import (
    PLAY,
    SMALL_PLAY,
    Forecast,
    Remaining,
    SessionCost,
    add_critic,
    average,
    compute_forecast,
    guess_answers,
    guess_role_plays,
    guess_translations,
)
from bactrian.generate.jobs.translate import find_source
from bactrian.generate.plan import Plan
from bactrian.generate.run import RunOrder
from bactrian.generate.run_models import LOCAL_WINDOW
from bactrian.generate.scheduler import find_number
from bactrian.models.registry import find_traits
from bactrian.models.wrappers.budget import Price
from bactrian.play.sampling_defaults import MAX_MESSAGES, SMALL_MAX_MESSAGES
from bactrian.records.candidate import read_search
from bactrian.records.run import Progress
from bactrian.records.usage import Usage
from bactrian.store import open_store

_ITEM = 15
"""Tokens of an item in a list; of one that is asked for alone, ten times as many."""
_LIST_PROMPT = 80
_SPECIFIED = Usage(prompt=140, completion=70)
_PLANNED = Usage(prompt=200, completion=200)
_ANSWER = (180, 500)
"""Tokens of a question with the system prompt, and of its answer."""


async def forecast_run(order: RunOrder) -> Forecast:
    """What is left of the run, reckoned before anything is spent.

    Raises:
        InputError: the run cannot be read.
    """
    plan = order.plan
    originals = await _originals(plan)
    size = plan.recipe.size * (1 if originals is None else len(originals))
    size = size if order.limit is None else min(size, order.limit)
    ended: list[Progress] = []
    lists_done: set[str] = set()
    seconds: float | None = None
    if await asyncio.to_thread(order.run.exists):
        async with open_store(order.run, read_only=True) as store:
            ended = [one async for one in store.progress() if one.ending is not None]
            lists_done = {items.id async for items in store.item_lists() if items.complete}
            seconds = await store.mean_seconds()
    if originals is None:
        numbers = [find_number(one.id, plan.recipe.axes) for one in ended]
        left = size - sum(number is not None and number < size for number in numbers)
    else:
        left = max(0, size - len(ended))
    usage, calls = _beside(plan, size, lists_done)
    good = [one for one in ended if one.prompt]
    for step in _preparation(plan):
        calls += left
        if not good:  # What ended sessions used has this in it.
            usage += Usage(step.prompt * left, step.completion * left)
    speakers = _speakers(plan)
    traits = [find_traits(name) for name in speakers]
    small = all(each.small for each in traits)
    local = any(each.in_process for each in traits)
    window = order.limits.concurrency or (LOCAL_WINDOW if local else 64)
    price = _price(order)
    if good:
        sizes = average(good, left, calls_beside=plan.recipe.answer is not None)
    elif originals is None:
        sizes = _guess(plan, small=small)
    else:
        sizes = guess_translations(originals)
    if (society := plan.society()) is not None:
        # Each stage is a session of its own, and only the last one counts as the job's.
        sizes = sizes.times(len(society[0].stages))
    if critic := plan.recipe.critic:
        width, depth = read_search(critic.search) if critic.search else (1, 1)
        # Each level of a search after its first continues every line that is alive.
        proposals = critic.proposals * -(-(1 + width * (depth - 1)) // depth)
        sizes = add_critic(sizes, proposals, critic.rounds, guessed=not good)
    return compute_forecast(sizes, Remaining(left, usage, calls, price, seconds, window))


def _preparation(plan: Plan) -> list[Usage]:
    """What each call before a session takes."""
    leaf = plan.recipe.role_play
    if leaf is None:
        return []
    return [_SPECIFIED] * leaf.specify + [_PLANNED] * leaf.plan


async def _originals(plan: Plan) -> list[Progress] | None:
    """The sessions that a translation translates; None for any other recipe."""
    leaf = plan.recipe.translate
    if leaf is None:
        return None
    async with open_store(find_source(leaf), read_only=True) as store:
        return [one async for one in store.progress() if one.ending not in (None, "failed") and one.turns]


def _guess(plan: Plan, *, small: bool) -> SessionCost:
    leaf = plan.recipe.role_play or plan.recipe.society
    if leaf is None:
        return guess_answers(*_ANSWER)
    longest = float(leaf.max_messages or (SMALL_MAX_MESSAGES if small else MAX_MESSAGES))
    shape = SMALL_PLAY if small else PLAY
    return guess_role_plays(replace(shape, messages=min(shape.messages, longest)), longest)


def _beside(plan: Plan, size: int, done: set[str]) -> tuple[Usage, int]:
    """What the lists take that have not been asked for, and in how many calls."""
    usage, calls = Usage(), 0
    axes = plan.recipe.axes
    for position, axis in enumerate(axes):
        if axis.items is not None:
            continue
        below = prod(other.count for other in axes[position:])
        lists = min(prod(other.count for other in axes if other.name in axis.per), -(-size // below))
        lists -= sum(name.partition("@")[0] == axis.name for name in done)
        if lists <= 0:
            continue
        asked = axis.count if axis.each else 1
        tokens = axis.count * _ITEM * (10 if axis.each else 1)
        usage += Usage(lists * asked * _LIST_PROMPT, lists * tokens)
        calls += lists * asked
    return usage, calls


def _speakers(plan: Plan) -> list[str]:
    """The models of those who converse."""
    if plan.recipe.answer is not None or plan.recipe.translate is not None:
        return [plan.models["assistant"]]
    if plan.recipe.society is None:
        return [plan.models["user"], plan.models["assistant"]]
    return [name for agent, name in plan.models.items() if agent != "lister"]


def _price(order: RunOrder) -> Price | None:
    """The price of a call; with several models, the middle of those that talk."""
    prices = [order.meter.prices.get(name) for name in _speakers(order.plan)]
    known = [price for price in prices if price is not None]
    if len(known) < len(prices):
        return None
    return Price(
        sum(price.prompt for price in known) / len(known),
        sum(price.completion for price in known) / len(known),
        sum(price.prompt if price.cached is None else price.cached for price in known) / len(known),
    )
