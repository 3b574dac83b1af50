"""What was paid for in a run, told alike by commands, reports and pages.

The cost of a run is that of all requests that were paid for in it: turns and all that led to them (specifier, planner,
critic, tools, proposals that were not taken), lists, failed and repeated requests, and turns that were never completed.
What a judge of findings cost is told apart. The price of a model is the one that the command counted by which made the
conversation; docs/reading.md says so to the user.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bactrian.models.budget import Price
from bactrian.models.open import find_traits
from bactrian.models.pricing import FREE, make_pricing
from bactrian.records.run import Command, Spent
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


def add_up(parts: Iterable[tuple[str, str, Usage, Price | None]]) -> Spending:
    """Return the sum of parts: agent, model, usage and the model's price each."""
    usd = 0.0
    agents: defaultdict[str, Usage] = defaultdict(Usage)
    models, unpriced = set[str](), set[str]()
    for agent, model, usage, price in parts:
        agents[agent] += usage
        models.add(model or "unknown")
        if price is None:
            unpriced.add(model or "unknown")
        else:
            usd += price.cost(usage)
    total = sum(agents.values(), Usage())
    by_agent = dict(sorted(agents.items()))
    return Spending(total, None if unpriced else usd, tuple(sorted(unpriced)), by_agent, frozenset(models))


async def read_spending(store: RunStore, sessions: Sequence[str] | None = None) -> Spending:
    """Return what was paid for some sessions of a run; with its lists, for the whole run if None."""
    pricing = await read_pricing(store)
    return pricing.add_up(await store.list_spent(sessions, each=pricing.by_session))


@dataclass(frozen=True, slots=True)
class RunPricing:
    """The models and prices by which what was paid for in a run is counted."""

    models: Mapping[str, str]
    """Of a run of a recipe, by agent; empty for others."""
    sessions: Mapping[str, Mapping[str, str]]
    """Models of each session by agent; empty if all have those of the run."""
    plays: Mapping[str, Prices]
    """By the session of a call of ``play``."""
    others: Prices
    judges: Prices
    """Of findings, who may be models that made nothing in the run: those have their usual price at its endpoint."""
    by_session: bool
    """True if usage has to be known by session."""

    def add_up(self, spent: Iterable[Spent]) -> Spending:
        """Return the sum of what was paid for. Before the first reply, models without a price make it unknown."""
        made = add_up(self._find(part) for part in spent)
        if made.usage.total:
            return made
        played = [
            (each, names) for each, names in self.sessions.items() if {*_list_keys(each)} & self.plays.keys()
        ]
        asked = {(each, model) for each, names in (("", self.models), *played) for model in names.values()}
        unpriced = sorted({model for each, model in asked if self.find_price(each, model) is None})
        return replace(made, usd=None, unpriced=tuple(unpriced)) if unpriced else made

    def find_price(self, session: str, model: str) -> Price | None:
        """Return the price of a model in a session."""
        keys = reversed(_list_keys(session))
        return next((self.plays[key] for key in keys if key in self.plays), self.others)(model)

    def _find(self, part: Spent) -> tuple[str, str, Usage, Price | None]:
        model = self.sessions.get(part.session, self.models).get(part.agent) or self.models.get("lister", "")
        return part.agent, model, part.usage, self.find_price(part.session, model)


async def read_pricing(store: RunStore, prices: Prices | None = None) -> RunPricing:
    """Return how what was paid for in a run is priced; by ``prices`` if given, otherwise as its commands counted it."""
    commands = await store.commands()
    models: Mapping[str, str] = (await store.recipe() or {}).get("models") or {}
    calls = [command for command in commands if command.verb == "play"]
    by_session = bool(calls) or not models
    others = prices or _find_last([command for command in commands if command.verb != "play"] or commands)
    terms: Mapping[str, Any] = commands[-1].options if commands else {}
    usual = make_pricing(terms.get("price"), terms.get("base_url"))
    return RunPricing(
        models,
        await store.list_models() if by_session else {},
        {} if prices else {key: _read_prices(call) for call in calls for key in _list_keys(call.session)},
        others,
        lambda judge: others(judge) or usual(judge),
        by_session,
    )


def _list_keys(session: str) -> tuple[str, ...]:
    """Return the keys by which the sessions of a call are found.

    The stages of a society share its command: their ids differ in what follows the last hyphen.
    """
    stages, hyphen, _ = session.rpartition("-")
    return (f"{stages}-", session) if hyphen else (session,)


def _find_last(commands: Sequence[Command]) -> Prices:
    """Return the prices of the last command; without one, only models that never cost anything have a price."""
    return _read_prices(commands[-1]) if commands else _price_free


def _price_free(model: str) -> Price | None:
    return FREE if model and not model.startswith("python:") and not find_traits(model).priced else None


def _read_prices(command: Command) -> Prices:
    stored: Mapping[str, Sequence[Any]] = command.options.get("prices") or {}
    return {name: Price(*values) for name, values in stored.items()}.get
