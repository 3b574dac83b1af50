"""The summary of a run: its progress, endings, usage and cost in a few lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from bactrian.api.reading.status import read_cost
from bactrian.api.reading.stored import read_stored_run
from bactrian.recipes.load import read_recipe_content
from bactrian.records.run import Progress
from bactrian.records.text import write_dollars
from bactrian.records.usage import Usage
from bactrian.store import RunReader, open_store


def count_endings(progress: Iterable[Progress]) -> dict[str, int]:
    """Count sessions by code of their ending, the most frequent first; ``unfinished`` for those without one."""
    return dict(Counter(one.ending or "unfinished" for one in progress).most_common())


async def read_price(store: RunReader) -> str | None:
    """Return the price that was given when the run was made; None if none was given."""
    given = [one.options.get("price") for one in await store.commands() if one.verb == "generate"]
    return given[-1] if given else None


async def read_common_price(*runs: Path) -> str | None:
    """Return the price that all ``runs`` were made with; None if it differs, or none was given."""
    given: set[str | None] = set()
    for run in runs:
        async with open_store(run, read_only=True) as store:
            given.add(await read_price(store))
    return given.pop() if len(given) == 1 else None


async def read_facts(store: RunReader, path: Path) -> list[tuple[str, str]]:
    """Return the summary of the run at ``path``, each fact with its label."""
    progress = [one async for one in store.progress()]
    spent = await store.count_spent()
    content = await store.recipe() or {}
    ended = sum(one.ending not in (None, "failed") for one in progress)
    facts = [("run", str(path)), ("sessions", f"{ended:,} ended of {len(progress):,} begun")]
    if "recipe" in content:
        size = read_recipe_content(content["recipe"]).size
        facts.insert(1, ("recipe", f"{content['recipe']['name']}, {size:,} jobs in all"))
        facts.append(("models", ", ".join(dict.fromkeys(content["models"].values()))))
    endings = count_endings(progress)
    facts.append(("endings", ", ".join(f"{code} {count:,}" for code, count in endings.items()) or "none"))
    used = sum(spent.values(), Usage())
    about = "about " if used.estimated else ""
    facts.append(("tokens", f"{about}{used.prompt:,} prompt + {used.completion:,} completion"))
    if "models" in content:
        facts.append(("cost", await _describe_cost(store, spent)))
    return facts


async def _describe_cost(store: RunReader, spent: Mapping[str, Usage]) -> str:
    usd = await read_cost(store, await read_stored_run(store), spent)
    return write_dollars(usd)
