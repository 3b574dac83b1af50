"""Schedules the jobs of a grid in order, and requests the lists that they need.

The scheduler walks the grid depth first and keeps only the open branches: memory use depends on the jobs in flight,
not on the size of the grid (25 million jobs and more).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Protocol

from bactrian.generate.lists.source import ListRequest

_CHUNK = 4096

Known = Callable[[str, int], Awaitable[tuple[str, ...] | None]]
"""Returns the items of a list, by its id and the number needed, or None if the list has to be requested."""


class GridAxis(Protocol):
    """The properties of an axis that the scheduler needs."""

    @property
    def name(self) -> str: ...
    @property
    def count(self) -> int: ...
    @property
    def per(self) -> Sequence[str]: ...
    @property
    def items(self) -> tuple[str, ...] | None: ...


@dataclass(frozen=True, slots=True)
class Job:
    """One job: a combination of one item from each axis."""

    id: str
    """Its 1-based positions, for example ``001_002_003``."""
    number: int
    """0-based position in the whole grid, counted as if every list were complete."""
    values: Mapping[str, str]
    """Item by axis name."""


class DoneJobs:
    """A sparse bit set of the numbers of finished jobs."""

    def __init__(self) -> None:
        self._chunks: dict[int, int] = {}

    def add(self, number: int) -> None:
        """Mark the job with this number."""
        chunk, bit = divmod(number, _CHUNK)
        self._chunks[chunk] = self._chunks.get(chunk, 0) | 1 << bit

    def __contains__(self, number: int) -> bool:
        chunk, bit = divmod(number, _CHUNK)
        return bool(self._chunks.get(chunk, 0) >> bit & 1)

    def covers(self, start: int, stop: int) -> bool:
        """Return True if all jobs from ``start`` up to, but not including, ``stop`` are done."""
        while start < stop:
            chunk, bit = divmod(start, _CHUNK)
            here = min(stop - start, _CHUNK - bit)
            mask = (1 << here) - 1 << bit
            if self._chunks.get(chunk, 0) & mask != mask:
                return False
            start += here
        return True


@dataclass(slots=True)
class _Branch:
    """A node of the grid: the items chosen on the first axes, and the list of the next axis."""

    positions: tuple[int, ...]
    """1-based position on each of the first axes."""
    values: Mapping[str, str]
    """Item by name of those axes."""
    items: tuple[str, ...] = ()
    """The list of the next axis."""
    taken: int = 0
    """Number of its items that have been visited."""


@dataclass(slots=True)
class Scheduler:
    """Returns the work that can begin now, one piece per :meth:`take`."""

    axes: Sequence[GridAxis]
    done: DoneJobs
    known: Known
    limit: int | None = None
    """Maximum number of jobs. Lists that only later jobs need are not requested."""
    _open: list[_Branch] = field(default_factory=list[_Branch])
    """Branches with items left: a stack, whose last is the deepest."""
    _waiting: dict[str, list[_Branch]] = field(default_factory=dict[str, list[_Branch]])
    """Branches whose list is in flight, by the list's id."""
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _begun: bool = False

    @property
    def size(self) -> int:
        """Total number of jobs if every list is complete."""
        return count_jobs(self.axes, self.limit)

    async def take(self) -> Job | ListRequest | None:
        """Return the next job or list request, or None if all work is done. Wait for lists in flight."""
        async with self._changed:
            if not self._begun:
                self._begun = True
                if request := await self._enter(_Branch((), {})):
                    return request
            while True:
                if (work := await self._find_next()) is not None:
                    return work
                if not self._waiting:
                    return None
                await self._changed.wait()

    async def supply(self, list_id: str, items: Sequence[str]) -> None:
        """Add a requested list, so that its jobs can begin. An empty list skips them."""
        async with self._changed:
            for branch in self._waiting.pop(list_id, ()):
                branch.items = tuple(items)[: self.axes[len(branch.positions)].count]
                self._open.append(branch)
            self._changed.notify_all()

    async def close(self) -> None:
        """Return no more work, and wake all waiting callers."""
        async with self._changed:
            self._open.clear()
            self._waiting.clear()
            self._changed.notify_all()

    async def _find_next(self) -> Job | ListRequest | None:
        """Return the next job or list request of the open branches, deepest first; None if they are used up."""
        while self._open:
            branch = self._open[-1]
            depth = len(branch.positions)
            if branch.taken == len(branch.items):
                self._open.pop()
                continue
            item = branch.items[branch.taken]
            branch.taken += 1
            positions = (*branch.positions, branch.taken)
            start, stop = self._span(positions)
            if start >= self.size:
                self._open.pop()
                continue
            if self.done.covers(start, min(stop, self.size)):
                continue
            values = {**branch.values, self.axes[depth].name: item}
            if len(positions) == len(self.axes):
                return Job(self._write_id(positions), start, values)
            if request := await self._enter(_Branch(positions, values)):
                return request
        return None

    async def _enter(self, branch: _Branch) -> ListRequest | None:
        """Open the branch if its list is known, else return the request for the list or None if it is in flight."""
        depth = len(branch.positions)
        axis = self.axes[depth]
        if axis.items is not None:
            branch.items = axis.items
            self._open.append(branch)
            return None
        names = [each.name for each in self.axes[:depth]]
        depends = tuple(branch.positions[names.index(name)] for name in axis.per)
        list_id = f"{axis.name}@{self._write_id(depends, axis.per)}"
        if list_id in self._waiting:
            self._waiting[list_id].append(branch)
            return None
        enough = self._enough(branch.positions)
        if (items := await self.known(list_id, enough)) is not None:
            branch.items = items[: axis.count]
            self._open.append(branch)
            return None
        self._waiting[list_id] = [branch]
        return ListRequest(
            list_id, axis.name, {name: branch.values[name] for name in axis.per}, axis.count, enough
        )

    def _enough(self, positions: tuple[int, ...]) -> int:
        """Return how many items of the list at ``positions`` the jobs below the limit need."""
        depth = len(positions)
        axis = self.axes[depth]
        if len(axis.per) < depth:
            return axis.count  # Other branches use the same list and may need more items.
        below = prod(other.count for other in self.axes[depth + 1 :])
        left = self.size - self._span(positions)[0]
        return min(axis.count, (left + below - 1) // below)  # rounded up

    def _span(self, positions: tuple[int, ...]) -> tuple[int, int]:
        """Return the range of numbers of the jobs whose ids begin with ``positions``."""
        below = prod(axis.count for axis in self.axes[len(positions) :])
        number = 0
        for axis, position in zip(self.axes, positions, strict=False):
            number = number * axis.count + position - 1
        return number * below, (number + 1) * below

    def _write_id(self, positions: tuple[int, ...], names: Sequence[str] | None = None) -> str:
        axes = self.axes if names is None else [axis for axis in self.axes if axis.name in names]
        return "_".join(
            f"{position:0{max(3, len(str(axis.count)))}}"
            for axis, position in zip(axes, positions, strict=False)
        )


def write_position(axes: Sequence[GridAxis], place: Mapping[str, int]) -> str:
    """Return the id of a position: the 1-based place on each of ``axes``, such as ``001_002``."""
    return "_".join(f"{place[axis.name]:0{max(3, len(str(axis.count)))}}" for axis in axes)


def count_jobs(axes: Sequence[GridAxis], limit: int | None) -> int:
    """Return the number of jobs if every list is complete, at most ``limit``."""
    whole = prod(axis.count for axis in axes)
    return whole if limit is None else min(whole, limit)


def find_number(job_id: str, axes: Sequence[GridAxis]) -> int | None:
    """Return the number of the job with this id, or None if not found."""
    parts = job_id.split("_")
    if len(parts) != len(axes) or not all(part.isdecimal() for part in parts):
        return None
    number = 0
    for part, axis in zip(parts, axes, strict=True):
        position = int(part)
        if not 0 < position <= axis.count:
            return None
        number = number * axis.count + position - 1
    return number
