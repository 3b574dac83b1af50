"""Runs the jobs of a run concurrently until all have ended or the run is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing

from bactrian.errors import (
    BactrianError,
    BudgetReached,
    GaveUp,
    Halted,
    InputError,
    ModelError,
)
from bactrian.records.events import Ended, Spoke, Started
from bactrian.records.run import ItemList
from bactrian.runs.jobs import JobPlayer
from bactrian.runs.lists import ListProgress, ListRequest, ListSource
from bactrian.runs.progress import RunProgress, ShortList
from bactrian.runs.scheduler import Job, Scheduler
from bactrian.store import RunStore


class Runner:
    """Plays the jobs of ``scheduler``, ``window`` at once.

    ``sources`` provide the lists, by axis; ``complete`` adds to a job what only the run knows. ``begun`` has the
    sessions that an earlier command left open, with their numbers of turns; they run first, the longest before the
    others. ``halt`` cancels calls that have not been sent.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        player: JobPlayer,
        sources: Mapping[str, ListSource],
        store: RunStore,
        progress: RunProgress,
        *,
        complete: Callable[[Job], Job],
        window: int,
        begun: list[tuple[Job, int]],
        halt: Callable[[], None] = lambda: None,
    ) -> None:
        self._scheduler = scheduler
        self._player = player
        self._sources = sources
        self._store = store
        self._progress = progress
        self._complete = complete
        self._window = window
        self._begun = sorted(begun, key=lambda work: work[1])
        self._admission = progress.admission
        self._halt = halt
        self._stopping = False
        self._fault: BactrianError | None = None
        self._given_up = 0

    async def run(self) -> None:
        """Run all jobs, or until :meth:`stop` is called.

        Raises:
            BactrianError: the run cannot continue. Turns that were in flight have been finished and stored.
        """
        await asyncio.gather(*(self._work() for _ in range(self._window)))
        self._admission.left_open += [turns for _, turns in self._begun]
        if self._admission.refused and self._fault is None:
            self._fault = self._admission.explain_refusal()
        if self._fault is not None:
            raise self._fault

    async def stop(self) -> None:
        """Start no more jobs. Turns in flight are finished and stored, then :meth:`run` returns."""
        self._stopping = True
        self._halt()
        self._admission.close()
        await self._scheduler.close()

    async def _work(self) -> None:
        while not self._stopping:
            work, turns = self._begun.pop() if self._begun else (await self._scheduler.take(), 0)
            if work is None or self._stopping:
                return
            if isinstance(work, Job) and not await self._admission.admit(turns):
                if turns:
                    self._admission.left_open.append(turns)
                return
            self._progress.in_flight += 1
            try:
                await (
                    self._fetch_list(work)
                    if isinstance(work, ListRequest)
                    else self._play_session(work, turns)
                )
            except Halted:
                return
            except BactrianError as error:
                await self._stop_with(error)
            finally:
                self._progress.in_flight -= 1

    async def _play_session(self, job: Job, turns: int) -> None:
        """Play the session of ``job``, which has ``turns`` turns."""
        progress, admission = self._progress, self._admission
        outlook = admission.outlook
        ended = False
        async with aclosing(self._player.play(self._complete(job), self._store)) as events:
            try:
                async for event in events:
                    progress.take(event)
                    match event:
                        case Spoke(turn):
                            turns += 1
                            outlook.speak(turns, turn.usage)
                            self._note_answer()
                            if self._stopping:
                                return
                            if admission.is_tight() and not await self._wait_for_limits(turns):
                                return
                        case Started(session):
                            stored = len(session.turns)
                            if not turns:
                                outlook.prepare(session.preparation)
                            if stored > turns:
                                outlook.move(turns, stored)
                                turns = stored
                        case Ended(_, ModelError(endpoint_wide=True) as fault):
                            await self._record_open(fault)
                        case Ended(ending):
                            ended = True
                            progress.finish(job, turns, ending)
                        case _:
                            pass
            except InputError as error:
                progress.refuse(job.id, error.what)
            finally:
                admission.leave(turns, ended=ended)

    async def _wait_for_limits(self, turns: int) -> bool:
        """Wait until the limits pay for the session's next turns; return False if they do not."""
        self._progress.in_flight -= 1
        try:
            return await self._admission.stay(turns)
        finally:
            self._progress.in_flight += 1

    def _note_answer(self) -> None:
        """Count failures in a row from zero again: a model has answered."""
        self._given_up = 0

    async def _record_open(self, fault: ModelError) -> None:
        """Count a session or list that ``fault`` left open, and stop the run if it concerns every request.

        That is so for ``window`` :class:`GaveUp` in a row.
        """
        self._progress.open += 1
        if isinstance(fault, GaveUp):
            self._given_up += 1
        if not isinstance(fault, GaveUp) or self._given_up >= self._window:
            await self._stop_with(fault)
            return
        self._progress.explain(fault.what)

    async def _stop_with(self, error: BactrianError) -> None:
        # Report the limit; other failures while the run shuts down are consequences.
        if self._fault is None or (
            isinstance(error, BudgetReached) and not isinstance(self._fault, BudgetReached)
        ):
            self._fault = error
        if isinstance(error, BudgetReached):  # The next turns of other sessions may cost less, and end them.
            self._admission.close()
            await self._scheduler.close()
        else:
            await self.stop()

    async def _fetch_list(self, request: ListRequest) -> None:
        """Fetch a list, store it after each step, and give its items to the scheduler."""
        begun = await self._read_begun(request)
        if self._stopping:
            return
        latest = begun
        try:
            async with aclosing(self._sources[request.axis].list_items(request, begun)) as steps:
                async for step in steps:
                    latest = step
                    await self._save_list(request, step)
                    self._note_answer()
                    if self._stopping and not step.in_flight:
                        return
        except ModelError as error:
            if error.endpoint_wide:
                await self._record_open(error)
                await self._scheduler.supply(request.id, ())
                return
            self._progress.refuse(request.id, error.what)
        await self._finish_list(request, latest)

    async def _read_begun(self, request: ListRequest) -> ListProgress | None:
        """Return what an earlier command stored of the list, or None if it stored nothing."""
        stored = await self._store.item_list(request.id)
        if stored is None:
            return None
        return ListProgress(stored.items, finished=False, usage=stored.usage, calls=stored.calls)

    async def _save_list(self, request: ListRequest, step: ListProgress) -> None:
        await self._store.save_list(ItemList(request.id, step.items, step.finished, step.usage, step.calls))

    async def _finish_list(self, request: ListRequest, latest: ListProgress | None) -> None:
        """Give the items to the scheduler, and record a list with too few of them."""
        items = latest.items if latest else ()
        if latest is not None:
            self._progress.lists.finish(ItemList(request.id, items, True, latest.usage, latest.calls))
        if len(items) < request.enough:
            why = latest.why if latest else ""
            self._progress.short[request.id] = ShortList(len(items), request.count, why)
        await self._scheduler.supply(request.id, items)
