"""Jobs of a run that several processes make together: who may play which."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import Protocol

from bactrian.runs.progress import RunProgress
from bactrian.runs.scheduler import DoneJobs, Job, JobSequence, Known, ListRequest, Scheduler

_MOST_GROUP = 64
"""Jobs of a list group that stay together; of a larger one, each list is still asked for once."""


@dataclass(frozen=True, slots=True)
class JobBlock:
    """Jobs that one process plays: those at the places ``start`` to ``stop`` of the order of jobs."""

    start: int
    stop: int
    retry: bool = False
    """True to play the failed jobs again."""


class Claims(Protocol):
    """Divides a run among processes. Each method raises StoreError once others have taken over this one's jobs."""

    async def begin(
        self, jobs: str, progress: RunProgress, divide: Callable[[int, float], object], *, retry: bool
    ) -> None:
        """Join the run, whose jobs are in the order ``jobs``; with ``retry``, its failed ones are played again.

        ``progress`` is that of this process; what others do is added to it. ``divide`` is told whenever another number
        of processes share the rate limits, and how many seconds this one waits until the others know.

        Raises:
            InputError: other processes play the jobs in another order.
        """
        ...

    async def claim(self, stop: int, unit: int) -> JobBlock | float | None:
        """Return the next block of the jobs before the place ``stop``, in multiples of ``unit`` jobs.

        It is the seconds to wait if others play what is left, since they may die; None if nothing is left.
        """
        ...

    async def finish(self, block: JobBlock, *, whole: bool) -> None:
        """Note that the jobs of ``block`` have ended; not ``whole`` if some of them were left open."""
        ...

    async def find_ended(self, ids: Sequence[str], *, retry: bool) -> set[str]:
        """Return those of the sessions ``ids`` that have ended; with ``retry``, without the failed ones."""
        ...

    def ask_alone(self, list_id: str) -> AbstractAsyncContextManager[None]:
        """Wait until no other process asks for this list, and keep others from asking meanwhile."""
        ...


@dataclass(slots=True)
class _Played:
    """A block that this process plays."""

    block: JobBlock
    numbers: frozenset[int]
    in_flight: int = 0
    left_open: bool = False


class ClaimingScheduler(Scheduler):
    """Returns the jobs of one block after another, each of which it claims first."""

    def __init__(
        self,
        order: JobSequence,
        known: Known,
        claims: Claims,
        name_job: Callable[[int], str],
        *,
        lists_only: bool,
    ) -> None:
        super().__init__(order, DoneJobs(), known, lists_only=lists_only)
        self._open.clear()
        self._claims = claims
        self._name_job = name_job
        self._unit = order.group if order.spread.depth and order.group <= _MOST_GROUP else 1
        self._playing: list[_Played] = []
        self._look_again = 0.0
        self._idle = 0
        """Callers that wait for work."""
        self._closed = False

    async def take(self) -> Job | ListRequest | None:
        """Return the next job or list request, or None if nothing is left for this process."""
        async with self._changed:
            self._idle += 1
            try:
                return await self._find_work()
            finally:
                self._idle -= 1

    async def _find_work(self) -> Job | ListRequest | None:
        while not self._closed:
            if (work := await self._find_next()) is not None:
                if isinstance(work, Job):
                    self._find(work.number).in_flight += 1
                return work
            await self._finish_blocks()
            soon = sum(stop - start for ranges in self._waiting.values() for start, stop in ranges)
            # Jobs that wait for a list are enough for who is idle: other processes may have the rest.
            enough = soon >= self._idle and not self.lists_only
            wait = 1.0 if enough else self._look_again - time.monotonic()
            if wait <= 0:
                order = self._order
                answer = await self._claims.claim(
                    order.stop if order.spread.depth else order.size, self._unit
                )
                if isinstance(answer, JobBlock):
                    await self._begin_block(answer)
                    continue
                if answer is None and not self._waiting:
                    return None
                wait = answer or 1.0
                self._look_again = time.monotonic() + wait
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()
        return None

    async def supply(self, list_id: str, items: Sequence[str]) -> None:
        """Add a requested list. The jobs of an empty one, refused by a limit or failed, are left to a later command."""
        if not items:
            waiting = [start for start, _ in self._waiting.get(list_id, ())]
            for played in self._playing:
                played.left_open |= not played.numbers.isdisjoint(waiting)
        await super().supply(list_id, items)

    async def release(self, job: Job, *, ended: bool) -> None:
        """Note that ``job`` has ended, or was left open."""
        played = self._find(job.number)
        played.in_flight -= 1
        played.left_open |= not ended
        if not self._open:
            await self._finish_blocks()

    async def close(self) -> None:
        """Return no more work, and wake all waiting callers."""
        self._closed = True
        await super().close()

    def _find(self, number: int) -> _Played:
        return next(played for played in self._playing if number in played.numbers)

    async def _begin_block(self, block: JobBlock) -> None:
        numbers = list(self._order.list_places(block.start, block.stop))
        names = {self._name_job(number): number for number in numbers}
        ended = await self._claims.find_ended(list(names), retry=block.retry)
        for name in ended:
            self._done.add(names[name])
        self._playing.append(_Played(block, frozenset(numbers)))
        if self._order.spread.depth:
            self._open.append((self._order.list_missing(self._done, block.start, block.stop), block.stop))
        else:
            self._open.append((iter([number for name, number in names.items() if name not in ended]), 0))

    async def _finish_blocks(self) -> None:
        """Tell of the blocks whose jobs have all been played: only those wait for lists that are not in flight."""
        if self.lists_only:  # They are left to others with this process.
            return
        waiting = [start for ranges in self._waiting.values() for start, _ in ranges]
        for played in [each for each in self._playing if not each.in_flight]:
            if not self._closed and played.numbers.isdisjoint(waiting) and played in self._playing:
                self._playing.remove(played)
                await self._claims.finish(played.block, whole=not played.left_open)
