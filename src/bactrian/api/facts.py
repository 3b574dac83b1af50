"""The facts of a run that commands, reports and pages tell alike: what it contains, and what it cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bactrian.records.session import HUMAN
from bactrian.records.turn import Usage
from bactrian.runs.progress import LATE, list_caching, warn_of_cache
from bactrian.runs.spending import Prices, Spending, add_up, read_pricing
from bactrian.stats.intervals import Proportion, are_independent
from bactrian.store import RunStore


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a run contains and what it cost, as of one moment."""

    sessions: int
    messages: int
    imported: int
    open: int
    """Sessions that have begun and not ended."""
    endings: Mapping[str, Proportion]
    """Share of the sessions that have ended, by code, the most frequent first."""
    models: tuple[str, ...]
    """Models that wrote something in it, and ``human`` if a person did."""
    spending: Spending
    cache_warning: str
    """What is wrong with the servers' prefix cache; empty if nothing is known to be."""
    judged: Spending
    """What judges of findings cost, which :attr:`spending` leaves out."""

    @property
    def failed(self) -> int:
        """Sessions that failed."""
        return self.endings["failed"].count if "failed" in self.endings else 0


async def describe_usage(store: RunStore, prices: Prices | None = None) -> dict[str, Any]:
    """Return what was paid for in a run, and its models, as the JSON of a report. ``prices`` as for read_facts."""
    facts = await read_facts(store, prices)
    spending = facts.spending
    return {
        **_count_tokens(spending.usage),
        "estimated": spending.usage.estimated,
        "cached_share": spending.usage.cached_share,
        "cache_warning": facts.cache_warning,
        "usd": spending.usd,
        "unpriced": list(spending.unpriced),
        "agents": {agent: _count_tokens(usage) for agent, usage in spending.agents.items()},
        "models": list(facts.models),
    }


def _count_tokens(usage: Usage) -> dict[str, int]:
    return {
        "prompt": usage.prompt,
        "completion": usage.completion,
        "cached": usage.cached,
        "total": usage.total,
    }


async def read_facts(store: RunStore, prices: Prices | None = None) -> RunFacts:
    """Return the facts of a run. Reads the row of every turn, which takes seconds for a million.

    Args:
        store: The run; a snapshot of it if another process writes it.
        prices: Replace the prices that its commands counted by.
    """
    sessions, messages = await store.count_rows()
    by_session = await store.list_models()
    pricing = await read_pricing(store, prices)
    imported = len(await store.list_imported())
    spending = pricing.add_up(await store.list_spent(each=pricing.by_session))
    if imported and imported == sessions and not spending.usage.total:
        # Another program made all of it, and its tokens are not known.
        spending = replace(spending, usd=None)
    written = {model for models in by_session.values() for model in models.values()}
    people = {HUMAN} if await store.has_person() else set[str]()
    addresses: dict[str, str] = {}
    for command in await store.commands():
        addresses |= command.options.get("addresses") or {}
    caching = list_caching(written, addresses)
    judges = [
        (name.partition(" ")[0], usage) for name, usage in (await store.list_judged()).items() if usage.total
    ]
    return RunFacts(
        sessions,
        messages,
        imported,
        *await count_endings(store),
        tuple(sorted(people | (written or {*pricing.models.values()}) | spending.models)),
        spending,
        warn_of_cache(await store.count_late(LATE), caching) if caching else "",
        add_up((judge, judge, usage, pricing.judges(judge)) for judge, usage in judges),
    )


async def count_endings(store: RunStore) -> tuple[int, dict[str, Proportion]]:
    """Count the sessions that have not ended, and the others by the code of their ending, the most frequent first."""
    counts = Counter([session.ending or "" async for session in store.progress()])
    unfinished = counts.pop("", 0)
    independent = are_independent(*await store.count_distinct())
    shares = {code: Proportion(count, counts.total(), independent) for code, count in counts.most_common()}
    return unfinished, shares
