"""The order of a run's jobs, and the scheduler that gives them out with the lists that they need.

A job has a number: its position in the grid, counted as if every list were complete. An order is an iterator of such
numbers, so that memory use depends on the jobs in flight, not on the size of the grid (25 million jobs and more).
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice, product
from math import prod

from bactrian.recipes.schema import LIST_FILE, Axis, Recipe, RolePlay
from bactrian.records.session import DUPLICATE

_CHUNK = 4096

Known = Callable[[str, int], Awaitable[tuple[str, ...] | None]]
"""Returns the items of a list, by its id and the number needed, or None if the list has to be requested."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job: a combination of one item from each axis."""

    id: str
    """Its 1-based positions, for example ``001_002_003``."""
    number: int
    """0-based position in the whole grid, counted as if every list were complete."""
    values: Mapping[str, str]
    """Item by axis name."""


@dataclass(frozen=True, slots=True)
class ListRequest:
    """A list that is needed before the jobs that use it can begin."""

    id: str
    """The axis and the positions of the items it depends on, for example ``task@001_002``."""
    axis: str
    """Name of the axis."""
    values: Mapping[str, str]
    """The items it depends on, by axis: those that the axis names in ``per``."""
    count: int
    """Items of the whole list."""
    enough: int
    """Number of items that the jobs within the run's limit need; ``count`` without a limit."""


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

    def list_missing(self, start: int, stop: int) -> Iterator[int]:
        """Yield the numbers from ``start`` up to, but not including, ``stop`` that are not done."""
        while start < stop:
            chunk, bit = divmod(start, _CHUNK)
            bits = self._chunks.get(chunk, 0) >> bit
            if bits & 1:
                start += (~bits & (bits + 1)).bit_length() - 1  # past all that are done in a row
            else:
                yield start
                start += 1


def write_positions(axes: Sequence[Axis], positions: Sequence[int]) -> str:
    """Return the id of 1-based ``positions`` on ``axes``, such as ``001_002``."""
    return "_".join(
        f"{position:0{max(3, len(str(axis.count)))}}" for axis, position in zip(axes, positions, strict=True)
    )


def find_positions(number: int, axes: Sequence[Axis]) -> tuple[int, ...]:
    """Return the 1-based positions on ``axes`` of the job with this number."""
    positions: list[int] = []
    for axis in reversed(axes):
        number, position = divmod(number, axis.count)
        positions.append(position + 1)
    return tuple(reversed(positions))


def find_number(job_id: str, axes: Sequence[Axis]) -> int | None:
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


_PLACEHOLDER = re.compile(r"\s*\{\{\s*(\w+)\s*\}\}\s*")


@dataclass(frozen=True, slots=True)
class Spread:
    """How jobs are spread over the grid: for samples, and for breadth before depth.

    Every item of a list is used once before any is used twice, so that eight jobs of 50 × 50 roles have sixteen
    different roles. The order is the same however many jobs are taken: a larger sample contains the smaller one.
    """

    seed: int | None = None
    """Shuffles the lists for a sample; None leaves their order, for breadth before depth."""
    equal_roles: bool = False
    """True to keep pairs of equal roles, which the paper's data has."""
    depth: bool = False
    """True for the order of the lists: all jobs of a pair before the next pair."""


IN_ORDER = Spread(equal_roles=True, depth=True)
"""All jobs, in the order of the lists."""


# Shards: the jobs of one grid, divided among runs that know nothing of each other.


@dataclass(frozen=True, slots=True)
class Shard:
    """One of ``count`` equal parts of the jobs of a grid."""

    number: int
    """From 1 to ``count``."""
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


WHOLE = Shard(1, 1)


def count_shared_axes(axes: Sequence[Axis]) -> int:
    """Return how many of the first ``axes`` all jobs of one group share.

    Lists are asked for each item of some of the axes. Jobs of one group need the same lists, and no two groups need the
    same list, but for those that :func:`list_shared` names.
    """
    needed = [axis.per for axis in axes if _is_asked(axis) and axis.per and axes[0].name in axis.per]
    depth = 0
    while depth < len(axes) and all(axes[depth].name in per for per in needed):
        depth += 1
    return depth


def list_shared(axes: Sequence[Axis]) -> list[str]:
    """Return the axes whose lists the jobs of several groups need."""
    return [axis.name for axis in axes if _is_asked(axis) and axes[0].name not in axis.per]


def _is_asked(axis: Axis) -> bool:
    """Return True if the list is neither given nor read from a file, which is the same for all."""
    from_file = axis.source is not None and axis.source.startswith(LIST_FILE) and axis.ask is None
    return axis.items is None and not from_file


@dataclass(frozen=True)
class JobSequence:
    """The numbers of the jobs of a grid that a run makes, in their order."""

    axes: Sequence[Axis]
    spread: Spread = IN_ORDER
    roles: tuple[str, str] | None = None
    """The axes of the two roles; None if the recipe makes them in another way."""
    limit: int | None = None
    """Number of jobs of all shards."""
    shard: Shard = WHOLE

    @classmethod
    def of_recipe(
        cls,
        recipe: Recipe,
        axes: Sequence[Axis],
        spread: Spread,
        limit: int | None,
        shard: Shard = WHOLE,
    ) -> JobSequence:
        """Return the order of a recipe's jobs, whose grid has these ``axes``."""
        order = cls(axes, spread, find_roles(recipe), limit, shard)
        if order.count_equal() == order.whole:  # a recipe of one role asks for equal roles
            return replace(order, spread=replace(spread, equal_roles=True))
        return order

    @cached_property
    def whole(self) -> int:
        """Number of jobs of the whole grid if every list is complete."""
        return prod(axis.count for axis in self.axes)

    @cached_property
    def size(self) -> int:
        """Number of jobs if every list is complete, without those of equal roles as far as their lists are known."""
        if self.shard == WHOLE:
            return self._size_of_all
        if self._equal or not self.spread.depth:
            return sum(1 for _ in self)
        return sum(stop - start for start, stop in self._list_groups(0, self.stop))

    @cached_property
    def _size_of_all(self) -> int:
        most = self.whole - self.count_equal()
        return most if self.limit is None else min(most, self.limit)

    @cached_property
    def stop(self) -> int:
        """In the order of the lists: the number after that of the last job of all shards."""
        size = self._size_of_all
        if not self._equal or not size:
            return size
        if size == self.whole - self.count_equal():
            return self.whole
        every = replace(self, shard=WHOLE)
        return next(islice(every.list_missing(DoneJobs(), 0, self.whole), size - 1, None)) + 1

    @cached_property
    def group(self) -> int:
        """Number of jobs in a group, whose jobs follow each other and are in the same shard."""
        return prod(axis.count for axis in self.axes[count_shared_axes(self.axes) :])

    def _is_mine(self, number: int) -> bool:
        return number // self.group % self.shard.count == self.shard.number - 1

    def _list_groups(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges of the numbers from ``start`` to ``stop`` that are in the shard."""
        size, count = self.group, self.shard.count
        first = start // size
        for group in range(first + (self.shard.number - 1 - first) % count, -(-stop // size), count):
            yield max(start, group * size), min(stop, (group + 1) * size)

    @cached_property
    def _picked(self) -> frozenset[int] | None:
        """Of jobs that are spread, the numbers up to the limit; None without a limit."""
        return None if self.limit is None else frozenset(islice(self._iterate_spread(), self.limit))

    def __contains__(self, number: int) -> bool:
        if not self._is_mine(number):
            return False
        if self.spread.depth:
            return number < self.stop and not self._is_equal(find_positions(number, self.axes))
        if self._picked is not None:
            return number in self._picked
        return not self._is_equal(find_positions(number, self.axes))

    def __iter__(self) -> Iterator[int]:
        """Yield the numbers of the jobs."""
        return self.iterate(DoneJobs())

    def iterate(self, done: DoneJobs) -> Iterator[int]:
        """Yield the numbers of the jobs that are not ``done``."""
        if self.spread.depth:
            return self.list_missing(done, 0, self.stop)
        jobs = islice(self._iterate_spread(), self.limit)
        return (number for number in jobs if number not in done and self._is_mine(number))

    def list_missing(self, done: DoneJobs, start: int, stop: int) -> Iterator[int]:
        """Yield the numbers from ``start`` to ``stop`` of jobs that are not ``done``, in the order of the lists."""
        if self.shard == WHOLE:
            missing = done.list_missing(start, stop)
        else:
            groups = self._list_groups(start, stop)
            missing = chain.from_iterable(done.list_missing(*group) for group in groups)
        if not self._equal:
            return missing
        return (number for number in missing if not self._is_equal(find_positions(number, self.axes)))

    def list_places(self, start: int, stop: int) -> Iterator[int]:
        """Yield the numbers of the jobs at these places."""
        if self.spread.depth:
            return self.list_missing(DoneJobs(), start, stop)
        return islice(self._iterate_spread(), start, stop)

    def find_block(self, number: int, depth: int) -> tuple[int, int]:
        """Return the range of the numbers that have the same positions on the first ``depth`` axes."""
        below = prod(axis.count for axis in self.axes[depth:])
        start = number // below * below
        return start, start + below

    def count_needed(self, number: int, depth: int, position: int) -> int:
        """Return how many items of the list of an axis its jobs need, if the job with this number is the first of them.

        ``depth`` is the position of the axis, and ``position`` that of the job's item.
        """
        axis = self.axes[depth]
        if not self.spread.depth:
            # The first items are enough where each is a question of its own.
            return position if axis.per and axis.each else axis.count
        if len(axis.per) < depth:
            return axis.count  # other branches use the same list and may need more items
        below = prod(other.count for other in self.axes[depth + 1 :])
        left = self.stop - self.find_block(number, depth)[0]
        return min(axis.count, -(-left // below))

    def _iterate_spread(self) -> Iterator[int]:
        orders = [self._shuffle(axis) for axis in self.axes]
        for index in range(self.whole):
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

    def _shuffle(self, axis: Axis) -> Sequence[int]:
        order = list(range(axis.count))
        if self.spread.seed is not None:
            random.Random(f"{self.spread.seed} {axis.name}").shuffle(order)  # noqa: S311
        return order

    @cached_property
    def _equal(self) -> tuple[tuple[int, int], frozenset[tuple[int, int]]] | None:
        """Depths of the axes of the roles, and positions there of equal roles; None if they stay, or are unknown."""
        if self.spread.equal_roles or self.roles is None:
            return None
        names = [axis.name for axis in self.axes]
        depths = names.index(self.roles[0]), names.index(self.roles[1])
        axes = [self.axes[depth] for depth in depths]
        if any(axis.items is None for axis in axes):
            return None
        first, second = ([item.casefold() for item in (axis.items or ())[: axis.count]] for axis in axes)
        pairs = product(enumerate(first, 1), enumerate(second, 1))
        return depths, frozenset((left, right) for (left, role), (right, other) in pairs if role == other)

    def _is_equal(self, positions: Sequence[int]) -> bool:
        if self._equal is None:
            return False
        (first, second), pairs = self._equal
        return (positions[first], positions[second]) in pairs

    def count_equal(self) -> int:
        """Return the number of jobs that are left out, as far as the lists of roles are known."""
        if self._equal is None:
            return 0
        (first, second), pairs = self._equal
        return len(pairs) * self.whole // (self.axes[first].count * self.axes[second].count)


def _find_repeated(items: Sequence[str], position: int) -> int | None:
    """Return the number of the first item that the one at ``position`` repeats but for case and white space."""
    item, *before = (
        " ".join(text.casefold().split()) for text in (items[position - 1], *items[: position - 1])
    )
    return before.index(item) + 1 if item in before else None


def find_roles(recipe: Recipe) -> tuple[str, str] | None:
    """Return the axes that the roles of a role-play are items of; None if a role is made in another way."""
    job = recipe.job
    if not isinstance(job, RolePlay):
        return None
    matches = [_PLACEHOLDER.fullmatch(text) for text in (job.assistant, job.user)]
    names = [match[1] for match in matches if match is not None]
    known = {axis.name for axis in recipe.axes}
    return (names[0], names[1]) if len(names) == 2 and known.issuperset(names) else None


_MOST_WAITING = 4096
"""Jobs, or blocks of them, that wait for lists; more would fill the memory where all wait for one list."""
_MOST_LISTS = 16
"""Lists that are kept for the next job; others are read from the run again."""


class Scheduler:
    """Returns the jobs of an order, and requests the lists that they need, one piece of work per :meth:`take`.

    With ``lists_only``, it returns no jobs.
    """

    def __init__(self, order: JobSequence, done: DoneJobs, known: Known, *, lists_only: bool = False) -> None:
        self._order = order
        self.lists_only = lists_only
        self._done = done
        self._known = known
        self._open: list[tuple[Iterator[int], int]] = [(order.iterate(done), order.stop)]
        """Jobs to visit, with the number after the last of them. Those whose list arrived last come first."""
        self._waiting: dict[str, list[tuple[int, int]]] = {}
        """Ranges of jobs whose list is in flight, by the list's id."""
        self._waiting_count = 0
        self._known_items = [axis.items for axis in order.axes]
        if lists_only and None not in self._known_items:
            self._open.clear()
        self._depends = [
            [depth for depth, other in enumerate(order.axes) if other.name in axis.per] for axis in order.axes
        ]
        """Depths of the axes that the list of each axis depends on."""
        self._lists: dict[str, tuple[str, ...]] = {}
        """The lists used last."""
        self._short: dict[str, tuple[str, ...]] = {}
        """Lists that have fewer items than were needed, and get no more."""
        self._requested: dict[str, int] = {}
        """Number of items that were requested, by list."""
        self._changed = asyncio.Condition()

    async def take(self) -> Job | ListRequest | None:
        """Return the next job or list request, or None if all work is done. Wait for lists in flight."""
        async with self._changed:
            while True:
                if (work := await self._find_next()) is not None:
                    return work
                if not self._waiting:
                    return None
                await self._changed.wait()

    async def supply(self, list_id: str, items: Sequence[str]) -> None:
        """Add a requested list, so that its jobs can begin. An empty list skips them."""
        async with self._changed:
            ranges = self._waiting.pop(list_id, [])
            self._waiting_count -= len(ranges)
            self._keep(list_id, tuple(items), self._requested.pop(list_id, 0))
            if self._order.spread.depth:
                self._open += [(self._order.list_missing(self._done, *each), each[1]) for each in ranges]
            else:
                self._open.append((iter([start for start, _ in ranges]), 0))
            self._changed.notify_all()

    async def release(self, job: Job, *, ended: bool) -> None:
        """Note that ``job`` has ended, or was left open."""

    async def close(self) -> None:
        """Return no more work, and wake all waiting callers."""
        async with self._changed:
            self._open.clear()
            self._waiting.clear()
            self._changed.notify_all()

    async def _find_next(self) -> Job | ListRequest | None:
        """Return the next job or list request of the jobs to visit; None if they are used up, or too many wait."""
        while self._open and (len(self._open) > 1 or self._waiting_count < _MOST_WAITING):
            number = next(self._open[-1][0], None)
            if number is None:
                self._open.pop()
            elif (work := await self._resolve(number)) is not None:
                return work
        return None

    async def find_known(self, request: ListRequest) -> tuple[str, ...] | None:
        """Return the items of a requested list if they have been stored since; None otherwise."""
        return await self._known(request.id, request.enough)

    async def _resolve(self, number: int) -> Job | ListRequest | None:
        """Return the job, or the request for a list that it needs; None if it waits, or a short list lacks its item."""
        order = self._order
        positions = find_positions(number, order.axes)
        values: dict[str, str] = {}
        for depth, (axis, position) in enumerate(zip(order.axes, positions, strict=True)):
            items = self._known_items[depth]
            if items is None:
                list_id = self._name_list(depth, positions)
                needed = order.count_needed(number, depth, position)
                in_flight = list_id in self._waiting
                items = None if in_flight else await self._find_list(list_id, needed)
                if items is None:
                    self._waiting.setdefault(list_id, []).append(self._skip(number, depth))
                    self._waiting_count += 1
                    if in_flight:
                        return None
                    self._requested[list_id] = needed
                    depends = {name: values[name] for name in axis.per}
                    return ListRequest(list_id, axis.name, depends, axis.count, needed)
            if position > min(len(items), axis.count):
                self._skip(number, depth)
                return None
            values[axis.name] = items[position - 1]
            if axis.each and (earlier := _find_repeated(items, position)):
                values[DUPLICATE] = str(earlier)
        if self.lists_only:
            self._skip(number, max(depth for depth, items in enumerate(self._known_items) if items is None))
            return None
        return Job(write_positions(order.axes, positions), number, values)

    def _skip(self, number: int, depth: int) -> tuple[int, int]:
        """Leave out the jobs from ``number`` on that use the same list of the axis at ``depth``; return their range.

        Where jobs are spread, that is this one alone: the others are met later.
        """
        if not self._order.spread.depth:
            return number, number + 1
        _, last = self._open[-1]
        stop = min(last, self._order.find_block(number, depth)[1])
        self._open[-1] = self._order.list_missing(self._done, stop, last), last
        return number, stop

    def _name_list(self, depth: int, positions: Sequence[int]) -> str:
        axes, depends = self._order.axes, self._depends[depth]
        below = write_positions([axes[each] for each in depends], [positions[each] for each in depends])
        return f"{axes[depth].name}@{below}"

    async def _find_list(self, list_id: str, needed: int) -> tuple[str, ...] | None:
        """Return a list with the items ``needed``, or a shorter one that gets no more; None if it is not known."""
        items = self._short.get(list_id) or self._lists.get(list_id)
        if list_id in self._short or (items is not None and len(items) >= needed):
            return items or ()
        items = await self._known(list_id, needed)
        if items is not None:
            self._keep(list_id, items, needed)
        return items

    def _keep(self, list_id: str, items: tuple[str, ...], needed: int) -> None:
        if len(items) < needed:
            self._short[list_id] = items
            return
        self._lists[list_id] = items
        if len(self._lists) > _MOST_LISTS:
            del self._lists[next(iter(self._lists))]
