"""What was paid for in a run, told alike by commands, reports and pages.

The cost of a run is that of all requests that were paid for in it: turns and all that led to them (specifier, planner,
critic, tools, proposals that were not taken), lists, failed and repeated requests, and turns that were never completed.
What a judge of findings cost is told apart. A call costs what it did when it was made: a command with other prices is
stored with what was paid for before it (``RunStore.add_command``). docs/reading.md says so to the user.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from bactrian.models.budget import Price
from bactrian.models.open import find_traits
from bactrian.models.pricing import FREE, make_pricing
from bactrian.records.run import PAID, Command, Spent, list_keys
from bactrian.records.session import Session
from bactrian.records.turn import Usage
from bactrian.store import RunStore

Prices = Callable[[str], Price | None]
"""Returns the price of a model; None if it is unknown."""


@dataclass(frozen=True, slots=True)
class Spending:
    """What was paid for: tokens and US dollars."""

    usage: Usage = Usage()
    usd: float | None = 0.0
    """None if a price is unknown."""
    unpriced: tuple[str, ...] = ()
    """Models without a known price."""
    agents: Mapping[str, Usage] = field(default_factory=dict[str, Usage])
    models: frozenset[str] = frozenset()
    prepared_usd: float | None = 0.0
    """What of the cost prepared tasks and lists."""

    @property
    def prepared(self) -> Mapping[str, float | None]:
        """Tokens and US dollars of what prepared tasks and lists, as a JSON object."""
        tokens = sum(used.total for agent, used in self.agents.items() if agent in _PREPARERS)
        return {"tokens": tokens, "usd": self.prepared_usd}


_PREPARERS = frozenset(("lister", "task_planner", "task_specifier"))
_Part = tuple[str, str, Usage, Price | None]


def add_up(parts: Iterable[_Part]) -> Spending:
    """Return the sum of parts: agent, model, usage and the model's price each."""
    every = [(agent, model or "unknown", usage, price) for agent, model, usage, price in parts]
    agents: defaultdict[str, Usage] = defaultdict(Usage)
    for agent, _, usage, _ in every:
        agents[agent] += usage
    return Spending(
        sum(agents.values(), Usage()),
        _add_costs(every),
        tuple(sorted({model for _, model, _, price in every if price is None})),
        dict(sorted(agents.items())),
        frozenset(model for _, model, _, _ in every),
        _add_costs([part for part in every if part[0] in _PREPARERS]),
    )


def _add_costs(parts: Sequence[_Part]) -> float | None:
    costs = [None if price is None else price.cost(usage) for _, _, usage, price in parts]
    return None if None in costs else sum(filter(None, costs), 0.0)


async def read_spending(store: RunStore, sessions: Sequence[str] | None = None) -> Spending:
    """Return what was paid for some sessions of a run; with its lists, for the whole run if None."""
    pricing = await read_pricing(store)
    return pricing.add_up(await store.list_spent(sessions, each=pricing.by_session))


async def count_paid(store: RunStore, sessions: Sequence[str] | None = None) -> Mapping[str, Usage]:
    """Return the tokens that were paid for each of some sessions of a run; for all, and its lists, if None."""
    paid: defaultdict[str, Usage] = defaultdict(Usage)
    for part in await store.list_spent(sessions):
        paid[part.session] += part.usage
    return paid


def add_paid(session: Session, paid: Mapping[str, Usage]) -> Session:
    """Return a session with what :func:`count_paid` counts of it, which its turns do not: calls that led to none."""
    beside = paid.get(session.id, Usage()) - session.usage
    return replace(session, beside=beside) if beside.total > 0 else session


@dataclass(frozen=True, slots=True)
class _Terms:
    """The prices of a command, and where in each session they begin to hold."""

    prices: Prices
    begun: float
    paid: Mapping[str, Mapping[tuple[str, str], Usage]] | None
    """Before it, by session, and by agent and tier, without sessions that had ended; None if prices stayed the same."""

    def find_start(self, part: Spent, created: float | None) -> Usage | None:
        """Return what of ``part`` was paid for before the command; None if all of it was."""
        if self.paid is None or (
            created is not None and created < self.begun and part.session not in self.paid
        ):
            return None
        tier, nothing = part.usage.tier, Usage(tier=part.usage.tier)
        if created is not None and created >= self.begun:
            return nothing
        return self.paid.get(part.session, {}).get((part.agent, tier), nothing)


@dataclass(frozen=True, slots=True)
class RunPricing:
    """The models and prices by which what was paid for in a run is counted."""

    models: Mapping[str, str]
    """Of a run of a recipe, by agent; empty for others."""
    sessions: Mapping[str, Mapping[str, str]]
    """Models of each session by agent; empty if all have those of the run."""
    created: Mapping[str, float]
    """When each session began; empty if prices never changed."""
    plays: Mapping[str, Sequence[_Terms]]
    """By the session of a call of ``play``."""
    others: Sequence[_Terms]
    late: Prices
    """Given to tell the cost: for calls whose price no command knew."""
    judges: Prices
    """Of findings, who may be models that made nothing in the run: those have their usual price at its endpoint."""
    by_session: bool
    """True if usage has to be known by session."""

    def add_up(self, spent: Iterable[Spent]) -> Spending:
        """Return the sum of what was paid for. Before the first reply, models without a price make it unknown."""
        made = add_up(priced for part in spent for priced in self.divide(part))
        if made.usage.total:
            return made
        played = [
            (each, names) for each, names in self.sessions.items() if {*list_keys(each)} & self.plays.keys()
        ]
        asked = {(each, model) for each, names in (("", self.models), *played) for model in names.values()}
        unpriced = sorted({model for each, model in asked if self._has_no_price(each, model)})
        return replace(made, usd=None, unpriced=tuple(unpriced)) if unpriced else made

    def _has_no_price(self, session: str, model: str) -> bool:
        known = (*(terms.prices for terms in self._list_terms(session)), self.late)
        return _find_first(known, model) is None

    def _list_terms(self, session: str) -> Sequence[_Terms]:
        """Return the terms of the commands that made a session, the oldest first."""
        return next(
            (self.plays[key] for key in reversed(list_keys(session)) if key in self.plays), self.others
        )

    def divide(self, part: Spent) -> Iterator[tuple[str, str, Usage, Price | None]]:
        """Yield agent, model, usage and price of what was paid for at each price."""
        model = self.sessions.get(part.session, self.models).get(part.agent) or self.models.get("lister", "")
        every, created = self._list_terms(part.session), self.created.get(part.session)
        starts = [(0, Usage(tier=part.usage.tier))]
        for place, terms in enumerate(every[1:], 1):
            if (start := terms.find_start(part, created)) is not None and start.total < part.usage.total:
                starts.append((place, start))
        ends = [start for _, start in starts[1:]]
        for (place, start), end in zip(starts, [*ends, part.usage], strict=True):
            price = _find_first([*(terms.prices for terms in every[place:]), self.late], model)
            if (used := end - start).total or len(starts) == 1:
                yield part.agent, model, used, price


def _find_first(several: Iterable[Prices], model: str) -> Price | None:
    return next((price for prices in several if (price := prices(model)) is not None), None)


async def read_pricing(store: RunStore, prices: Prices | None = None, session: str = "") -> RunPricing:
    """Return how what was paid for in a run, or in one ``session``, is priced.

    It is priced as the run's commands counted it, and by ``prices`` the rest.
    """
    only = await store.outlines(ids=[session]) if session else []
    commands = await store.commands()
    models: Mapping[str, str] = (await store.recipe() or {}).get("models") or {}
    plays: defaultdict[str, list[_Terms]] = defaultdict(list)
    for call in commands:
        for key in list_keys(call.session) if call.verb == "play" else ():
            plays[key].append(_read_terms(call))
    changed = any(PAID in command.options for command in commands)
    by_session = bool(plays) or not models or changed
    terms: Mapping[str, Any] = commands[-1].options if commands else {}
    others = [_read_terms(each) for each in commands if each.verb != "play"]
    # Without any command, only models that never cost anything have a price.
    others = others or [*map(_read_terms, commands[-1:])] or [_Terms(cache(_price_free), 0.0, None)]
    late: Prices = prices or dict[str, Price]().get
    usual = make_pricing(terms.get("price"), terms.get("base_url"))
    return RunPricing(
        models,
        {each.id: each.models for each in only} or (await store.list_models() if by_session else {}),
        {each.id: each.created for each in only} or (await store.list_created() if changed else {}),
        plays,
        others,
        late,
        lambda judge: _find_first((late, others[-1].prices, usual), judge),
        by_session,
    )


def _price_free(model: str) -> Price | None:
    return FREE if model and not model.startswith("python:") and not find_traits(model).priced else None


def _read_terms(command: Command) -> _Terms:
    stored: Mapping[str, Sequence[Any]] = command.options.get("prices") or {}
    prices = {name: Price(*values) for name, values in stored.items()}.get
    if PAID not in command.options:
        return _Terms(prices, command.created, None)
    paid: defaultdict[str, dict[tuple[str, str], Usage]] = defaultdict(dict)
    for session, agent, tier, prompt, completion, cached, written in command.options[PAID]:
        paid[session][agent, tier] = Usage(prompt, completion, cached, written=written, tier=tier)
    return _Terms(prices, command.created, paid)
