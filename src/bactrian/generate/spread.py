"""Jobs spread over the grid instead of in the order of its lists: for samples, and for breadth before depth.

Every item of a list is used once before any is used twice, so that eight jobs of 50 × 50 roles have sixteen different
roles. The order is the same however many jobs are taken: a larger sample contains the smaller one.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from math import prod
from typing import Any

from bactrian.generate.lists.source import ListRequest
from bactrian.generate.scheduler import DoneJobs, GridAxis, Job, Known, write_position
from bactrian.recipes.job_specs import RolePlay
from bactrian.recipes.schema import Recipe

DIFFERENT_ROLES = "different_roles"
"""The option of a run that is true if pairs of equal roles are left out unless asked for."""
_PLACEHOLDER = re.compile(r"\s*\{\{\s*(\w+)\s*\}\}\s*")
_MOST_WAITING = 4096
"""Jobs that wait for lists; more would fill the memory where all wait for one list."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How jobs are spread."""

    seed: int | None = None
    """Shuffles the lists for a sample; None leaves their order, for breadth before depth."""
    equal_roles: bool = False
    """True to keep pairs of equal roles, which the paper's data has."""
    depth: bool = False
    """True for the order of the lists: all jobs of a pair before the next pair."""


def read_spread(options: Mapping[str, Any], seed: int | None) -> Spread | None:
    """Return how the jobs of a run are spread, from its options; None for all jobs in the order of its lists.

    A run that does not say whether its pairs are of different roles was begun before they were left out by default.
    """
    equal = bool(options.get("equal_roles"))
    if options.get("sample") is not None:
        return Spread(seed or 0, equal_roles=equal)
    if options.get("order") == "breadth":
        return Spread(None, equal_roles=equal)
    return Spread(depth=True) if options.get(DIFFERENT_ROLES) and not equal else None


@dataclass(frozen=True)
class SpreadGrid:
    """The jobs of a grid in spread order."""

    axes: Sequence[GridAxis]
    spread: Spread
    roles: tuple[str, str] | None
    """The axes of the two roles; None if the recipe makes them in another way."""
    limit: int | None = None

    @cached_property
    def picked(self) -> frozenset[int] | None:
        """The numbers of the jobs up to the limit; None without a limit."""
        return None if self.limit is None else frozenset(islice(self._iterate(), self.limit))

    @cached_property
    def size(self) -> int:
        """Number of jobs, without those of equal roles as far as their lists are known."""
        if self.picked is not None:
            return len(self.picked)
        return prod(axis.count for axis in self.axes) - self.count_equal()

    def __contains__(self, number: int) -> bool:
        if self.picked is not None:
            return number in self.picked
        return not self._is_equal(self.find_positions(number))

    def __iter__(self) -> Iterator[int]:
        """Yield the numbers of the jobs in their order."""
        return islice(self._iterate(), self.limit)

    def find_positions(self, number: int) -> tuple[int, ...]:
        """Return the 1-based positions of a job on the axes."""
        positions: list[int] = []
        for axis in reversed(self.axes):
            number, position = divmod(number, axis.count)
            positions.append(position + 1)
        return tuple(reversed(positions))

    def _iterate(self) -> Iterator[int]:
        if self.spread.depth:
            numbers = range(prod(axis.count for axis in self.axes))
            yield from (one for one in numbers if not self._is_equal(self.find_positions(one)))
            return
        orders = [self._shuffle(axis) for axis in self.axes]
        for index in range(prod(axis.count for axis in self.axes)):
            rest, shift, number = index, 0, 0
            positions: list[int] = []
            for axis, order in zip(self.axes, orders, strict=True):
                rest, digit = divmod(rest, axis.count)
                # Shifting by the digits before it moves along a diagonal, and still meets each job once.
                position = digit if axis.per else order[(digit + shift) % axis.count]
                shift += 0 if axis.per else digit
                number = number * axis.count + position
                positions.append(position + 1)
            if not self._is_equal(tuple(positions)):
                yield number

    def _shuffle(self, axis: GridAxis) -> Sequence[int]:
        order = list(range(axis.count))
        if self.spread.seed is not None:
            random.Random(f"{self.spread.seed} {axis.name}").shuffle(order)  # noqa: S311
        return order

    @cached_property
    def _names(self) -> tuple[int, int, tuple[str, ...], tuple[str, ...]] | None:
        """Depth and items of the axes of the two roles; None if equal roles stay, or are not known before."""
        if self.spread.equal_roles or self.roles is None:
            return None
        depths = [[axis.name for axis in self.axes].index(name) for name in self.roles]
        first, second = (self.axes[depth].items for depth in depths)
        if first is None or second is None:
            return None
        one, two = (tuple(item.casefold() for item in items) for items in (first, second))
        return depths[0], depths[1], one, two

    def _is_equal(self, positions: Sequence[int]) -> bool:
        if self._names is None:
            return False
        one, two, first, second = self._names
        return first[positions[one] - 1] == second[positions[two] - 1]

    def count_equal(self) -> int:
        """Return the number of jobs that are left out, as far as the lists of roles are known."""
        if self._names is None:
            return 0
        one, two, first, second = self._names
        pairs = sum(a == b for a in first[: self.axes[one].count] for b in second[: self.axes[two].count])
        return pairs * prod(axis.count for depth, axis in enumerate(self.axes) if depth not in (one, two))


def find_roles(recipe: Recipe) -> tuple[str, str] | None:
    """Return the axes that the roles of a role-play are items of; None if a role is made in another way."""
    job = recipe.job
    if not isinstance(job, RolePlay):
        return None
    found = [_PLACEHOLDER.fullmatch(text) for text in (job.assistant, job.user)]
    names = [one[1] for one in found if one is not None]
    known = {axis.name for axis in recipe.axes}
    return (names[0], names[1]) if len(names) == 2 and known.issuperset(names) else None


class SpreadScheduler:
    """Returns the jobs of a :class:`SpreadGrid` in their order, and requests the lists that they need."""

    def __init__(self, grid: SpreadGrid, done: DoneJobs, known: Known) -> None:
        self.size = grid.size
        self._grid = grid
        self._done = done
        self._known = known
        self._numbers = iter(grid)
        self._ready: deque[int] = deque()
        self._waiting: dict[str, list[int]] = {}
        self._short: dict[str, tuple[str, ...]] = {}
        """Lists that have fewer items than were requested, and get no more."""
        self._requested: dict[str, int] = {}
        self._closed = False
        self._changed = asyncio.Condition()

    async def take(self) -> Job | ListRequest | None:
        """Return the next job or list request, or None if all work is done. Wait for lists in flight."""
        async with self._changed:
            while not self._closed:
                number = self._next()
                if number is None:
                    if not self._waiting:
                        return None
                    await self._changed.wait()
                elif number not in self._done and (work := await self._resolve(number)) is not None:
                    return work
            return None

    async def supply(self, list_id: str, items: Sequence[str]) -> None:
        """Add a requested list, so that its jobs can begin. An empty list skips them."""
        async with self._changed:
            if len(items) < self._requested.pop(list_id, 0):
                self._short[list_id] = tuple(items)
            self._ready.extend(self._waiting.pop(list_id, ()))
            self._changed.notify_all()

    async def close(self) -> None:
        """Return no more work, and wake all waiting callers."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _next(self) -> int | None:
        if self._ready:
            return self._ready.popleft()
        if sum(map(len, self._waiting.values())) >= _MOST_WAITING:
            return None
        return next(self._numbers, None)

    async def _resolve(self, number: int) -> Job | ListRequest | None:
        """Return the job, or the request for a list that it needs; None if it waits, or a short list lacks its item."""
        axes, positions = self._grid.axes, self._grid.find_positions(number)
        place = dict(zip((axis.name for axis in axes), positions, strict=True))
        values: dict[str, str] = {}
        for axis, position in zip(axes, positions, strict=True):
            items = axis.items
            if items is None:
                list_id = (
                    f"{axis.name}@{write_position([one for one in axes if one.name in axis.per], place)}"
                )
                if list_id in self._waiting:
                    self._waiting[list_id].append(number)
                    return None
                # The first items are enough where each is a question of its own.
                enough = position if axis.per and getattr(axis, "each", False) else axis.count
                items = self._short.get(list_id) or await self._known(list_id, enough)
                if items is None and list_id in self._short:
                    return None
                if items is None:
                    self._waiting[list_id] = [number]
                    self._requested[list_id] = enough
                    given = {name: values[name] for name in axis.per}
                    return ListRequest(list_id, axis.name, given, axis.count, enough)
            if position > len(items):
                return None
            values[axis.name] = items[position - 1]
        return Job(write_position(axes, place), number, values)
