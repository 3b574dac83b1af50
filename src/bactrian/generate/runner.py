"""Runs the jobs of a run concurrently until none is left or the run is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing

from bactrian.errors import BactrianError, BudgetReached, GaveUp, Halted, InputError, ModelError
from bactrian.generate.jobs.base import JobPlayer
from bactrian.generate.lists.source import ListProgress, ListRequest, ListSource
from bactrian.generate.progress import RunProgress, ShortList
from bactrian.generate.scheduler import Job, Scheduler
from bactrian.records.events import Ended, Spoke
from bactrian.records.run import ItemList
from bactrian.store import Store


class Runner:
    """Plays the jobs of ``frontier``, ``window`` at once. A session that began is finished before a new one begins.

    ``sources`` give the lists, by axis. ``begun`` are the sessions that an earlier command left open; they come first.
    ``halt`` lets go of calls that have not been sent.
    """

    def __init__(
        self,
        frontier: Scheduler,
        player: JobPlayer,
        sources: Mapping[str, ListSource],
        store: Store,
        tally: RunProgress,
        *,
        window: int,
        begun: list[Job],
        halt: Callable[[], None] = lambda: None,
    ) -> None:
        self._frontier = frontier
        self._player = player
        self._sources = sources
        self._store = store
        self._tally = tally
        self._window = window
        self._begun = begun[::-1]
        self._halt = halt
        self._stopping = False
        self._fault: BactrianError | None = None
        self._given_up = 0

    async def run(self) -> None:
        """Work until nothing is left, or until :meth:`stop`.

        Raises:
            BactrianError: the run cannot go on; what was in flight has been finished and kept.
        """
        await asyncio.gather(*(self._work() for _ in range(self._window)))
        if self._fault is not None:
            raise self._fault

    async def stop(self) -> None:
        """Start no more jobs. Turns in flight are finished and stored, then :meth:`run` returns."""
        self._stopping = True
        self._halt()
        await self._frontier.close()

    async def _work(self) -> None:
        while not self._stopping:
            work = self._begun.pop() if self._begun else await self._frontier.take()
            if work is None or self._stopping:
                return
            self._tally.in_flight += 1
            try:
                await (self._list(work) if isinstance(work, ListRequest) else self._session(work))
            except Halted:
                return
            except BactrianError as error:
                await self._stop_with(error)
            finally:
                self._tally.in_flight -= 1

    async def _session(self, job: Job) -> None:
        async with aclosing(self._player.play(job, self._store)) as events:
            try:
                async for event in events:
                    self._tally.take(event)
                    match event:
                        case Spoke():
                            self._given_up = 0
                            if self._stopping:
                                return
                        case Ended(_, ModelError(endpoint_wide=True) as fault):
                            await self._record_open(fault)
                        case _:
                            pass
            except InputError as error:
                self._tally.refuse(job.id, error.what)

    async def _record_open(self, fault: ModelError) -> None:
        """One session may have had bad luck; as many in a row as there are at once, and the endpoint is gone."""
        self._tally.open += 1
        self._given_up += 1
        if not isinstance(fault, GaveUp) or self._given_up >= self._window:
            await self._stop_with(fault)
        else:
            self._tally.explain(fault.what)

    async def _stop_with(self, error: BactrianError) -> None:
        # Report the limit; other failures while the run shuts down are consequences.
        if self._fault is None or isinstance(error, BudgetReached) > isinstance(self._fault, BudgetReached):
            self._fault = error
        await self.stop()

    async def _list(self, wanted: ListRequest) -> None:
        stored = await self._store.item_list(wanted.id)
        if self._stopping:
            return
        listing = stored and ListProgress(
            stored.items, finished=False, usage=stored.usage, calls=stored.calls
        )
        source = self._sources[wanted.axis]
        try:
            async with aclosing(source.list_items(wanted, listing)) as asked:
                async for listing in asked:
                    await self._store.save_list(
                        ItemList(wanted.id, listing.items, listing.finished, listing.usage, listing.calls)
                    )
                    self._given_up = 0
                    if self._stopping and not listing.in_flight:
                        return
        except ModelError as error:
            if error.endpoint_wide:
                await self._record_open(error)
                await self._frontier.supply(wanted.id, ())
                return
            self._tally.refuse(wanted.id, error.what)
        items = listing.items if listing else ()
        if len(items) < wanted.enough:
            why = listing.why if listing else ""
            self._tally.short[wanted.id] = ShortList(len(items), wanted.count, why)
        await self._frontier.supply(wanted.id, items)
