"""The plan of a run, fixed before its first call, and forks, which take unchanged lists from another run."""

from __future__ import annotations

import re
import shlex
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from bactrian.errors import InputError
from bactrian.options import SamplingSpec
from bactrian.recipes.load import find_differences
from bactrian.recipes.schema import Recipe
from bactrian.records.run import ItemList
from bactrian.records.session import Task
from bactrian.records.turn import Usage
from bactrian.roleplay.chosen_endings import find_code
from bactrian.roleplay.endings import Rule
from bactrian.roleplay.tools import NO_TOOLS, Toolbox
from bactrian.runs.scheduler import WHOLE, Shard
from bactrian.store import RunStore, open_store
from bactrian.tables.tables import to_compact_json

SHARD = "shard"
"""The key of the shard in the content of a run; a run of all jobs has none."""
RED_TEAM = "red-team"
"""The mark of a session generated to study misuse."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Recipe, models and seed."""

    recipe: Recipe
    models: Mapping[str, str]
    """Model name by agent."""
    seed: int | None = None
    endings: tuple[Rule, ...] = ()
    """The user's own parameters, in addition to those of the recipe."""
    distrusted: frozenset[str] = frozenset()
    """Model names that come from a file and not from the user. Keys are never sent to an address in such a name."""
    shard: Shard = WHOLE
    """The part of the jobs that the run makes."""

    @property
    def axis_names(self) -> frozenset[str]:
        """Names of the recipe's axes, or of the columns of its table of jobs."""
        return frozenset(name for axis in self.recipe.axes for name in axis.names)

    @property
    def parameters(self) -> dict[str, tuple[SamplingSpec, ...]]:
        """The recipe's sampling parameters by agent."""
        return self.recipe.parameters.by_agent() if self.recipe.parameters else {}

    @property
    def mark(self) -> str | None:
        """The mark of each session, or None for ordinary sessions."""
        return RED_TEAM if self.recipe.red_team else None

    def content(self, of_kind: Mapping[str, Any], tools: Mapping[str, Toolbox] = NO_TOOLS) -> dict[str, Any]:
        """Return the content that is frozen in the run, with the content of the job kind and the tools."""
        offered = {
            agent: {tool.name: to_compact_json(asdict(tool)) for tool in box.kit.tools}
            for agent, box in tools.items()
        }
        return {
            **({"tools": offered} if offered else {}),
            "recipe": self.recipe.content(),
            **of_kind,
            **({"endings": [find_code(rule) for rule in self.endings]} if self.endings else {}),
            "models": dict(self.models),
            "seed": self.seed,
            **({} if self.shard == WHOLE else {SHARD: str(self.shard)}),
        }


class OtherPlan(InputError):
    """The run was begun with another plan."""


def check_same(stored: Mapping[str, Any], wanted: Mapping[str, Any], where: str) -> None:
    """Check that a run is resumed under the same plan.

    Raises:
        InputError: the plans differ; the message lists the differences.
    """
    before, now = (str(plan["recipe"].get("name")) for plan in (stored, wanted))
    if before != now:
        raise InputError(
            f"This run is {before}, and the command is for {now}.",
            where=where,
            next=f"`bactrian resume {shlex.quote(where)}` resumes it; another run=PATH begins a new one.",
        )
    before, now = (plan.get(SHARD) for plan in (stored, wanted))
    if before != now:
        kind = f"shard {before}" if before else "a run of all jobs"
        raise InputError(
            f"This run is {kind}, and the command is for {f'shard {now}' if now else 'all jobs'}.",
            where=where,
            next=f"Give it {f'shard={before}' if before else 'no shard'}, or another run=PATH. `bactrian merge` "
            "puts shards together.",
        )
    if changed := find_differences(stored, wanted):
        listed = "; ".join(changed[:8]) + (f"; and {len(changed) - 8} more" if len(changed) > 8 else "")
        next = "Use the plan it was begun with, or begin another run from it with origin=RUN."
        if all(".max_messages: " in line for line in changed):
            next = (
                "A run continues with a larger limit of messages, never with a smaller one. Use origin=RUN to make "
                "its conversations again."
            )
        raise OtherPlan(f"The run was begun with another plan: {listed}.", where=where, next=next)


def is_other_limit(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return True if two contents are the same but for the limit of messages."""
    return stored != wanted and _drop_limit(stored) == _drop_limit(wanted)


def _drop_limit(content: Mapping[str, Any]) -> dict[str, Any]:
    recipe: dict[str, Any] = dict(content.get("recipe", {}))
    for key, value in recipe.items():
        if not isinstance(value, Mapping):
            continue
        table = dict(cast("Mapping[str, Any]", value))
        table.pop("max_messages", None)
        if isinstance(endings := table.get("endings"), str):
            table["endings"] = re.sub(r"max_messages=\d+", "max_messages", endings)
        recipe[key] = table
    return {**content, "recipe": recipe}


# A fork: a new run under another plan takes over the unchanged lists of another run.


@asynccontextmanager
async def open_origin(origin: Path) -> AsyncGenerator[RunStore]:
    """Open the run ``origin`` to fork it.

    Raises:
        InputError: it is not a run of a recipe.
    """
    async with open_store(origin, read_only=True) as store:
        if await store.recipe() is None:
            raise InputError(
                "This run was not made from a recipe.", where=str(origin), next="Fork another one."
            )
        yield store


_TASKS = "specified-task@"
"""Begins the id under which a fork stores a task of its origin, as a list; no axis has such a name."""


async def copy_lists(origin: RunStore, fork: RunStore, recipe: Recipe, *, keep_tasks: bool) -> None:
    """Copy the finished lists of ``origin`` whose axes are unchanged in ``recipe``, unless ``fork`` has its own.

    With ``keep_tasks``, copy its specified and planned tasks, too, so that the jobs work on the very same ones.

    Raises:
        InputError: the lists differ, so the jobs whose tasks are to be kept are not the same.
    """
    stored = await origin.recipe()
    assert stored is not None
    before = {axis["name"]: axis for axis in stored["recipe"]["axes"]}
    same: set[str] = set()
    for axis in recipe.axes:  # identical, as are all axes that it depends on
        unchanged = before.get(axis.name) == axis.model_dump(mode="json", exclude_none=True)
        if unchanged and same.issuperset(axis.per):
            same.add(axis.name)
    async for items in origin.item_lists():
        if items.complete and items.id.partition("@")[0] in same and await fork.item_list(items.id) is None:
            await fork.save_list(replace(items, usage=Usage(), calls=0))  # the origin paid for it
    if not keep_tasks:
        return
    if other := [axis.name for axis in recipe.axes if axis.name not in same]:
        raise InputError(
            f"The tasks cannot be kept: the list {other[0]!r} of the new run is another one.",
            option="keep_tasks",
            next="Leave keep_tasks=True out, or change the lists.",
        )
    imported = await origin.list_imported()
    async for session in origin.sessions():
        task = session.task
        if session.id not in imported and (task.specified, task.planned) != (None, None):
            texts = (task.specified or "", task.planned or "")
            await fork.save_list(ItemList(f"{_TASKS}{session.id}", texts, True, Usage(), 0))
    # Last, so that a fork that was killed before has to be named again.
    await fork.save_list(ItemList(_TASKS, (origin.path.name,), True, Usage(), 0))


async def has_tasks(store: RunStore) -> bool:
    """Return True if the run is a fork that keeps the tasks of its origin."""
    return await store.item_list(_TASKS) is not None


async def find_task(store: RunStore, job_id: str, original: str) -> Task:
    """Return the task of a job as the origin of a fork specified it; only ``original`` if the origin did not."""
    items = await store.item_list(f"{_TASKS}{job_id}")
    if items is None:
        return Task(original)
    specified, planned = items.items
    return Task(original, specified or None, planned or None)
