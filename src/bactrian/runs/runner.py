"""Runs the jobs of a run concurrently until all have ended or the run is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass
from typing import Protocol

from bactrian.errors import BactrianError, BudgetReached, GaveUp, Halted, InputError, ModelError
from bactrian.models.model import Observer
from bactrian.records.events import Ended, Event, Spoke, Started
from bactrian.records.run import ItemList
from bactrian.records.turn import Usage
from bactrian.runs.admission import Window
from bactrian.runs.progress import EndpointPressure, RunProgress, ShortList
from bactrian.runs.scheduler import Job, ListRequest, Scheduler
from bactrian.store import RunStore


class JobPlayer(Protocol):
    """Plays the jobs of a run."""

    def play(self, job: Job, store: RunStore) -> AsyncGenerator[Event]:
        """Play the session of ``job`` from its current state to its ending. Each event is stored before it is yielded.

        A model failure ends the session as ``failed``; an endpoint fault leaves it open.

        Raises:
            InputError: an item of the job cannot be a role or an idea.
        """
        ...


@dataclass(frozen=True, slots=True)
class ListProgress:
    """The state of a list."""

    items: tuple[str, ...]
    finished: bool
    """True if no further question will be asked; the list may still be short."""
    usage: Usage
    """Of all its calls."""
    calls: int
    why: str = ""
    """The reason why the last reply contained no items; empty if it did."""
    in_flight: int = 0
    """Number of answers in flight, which are kept even if the run stops."""


class ListSource(Protocol):
    """Provides the items of lists."""

    def list_items(self, request: ListRequest, begun: ListProgress | None, /) -> AsyncGenerator[ListProgress]:
        """Yield the whole list after each step, so that it is stored before the next step; the last is finished.

        ``begun`` is what an earlier command stored of this list, None if it stored nothing.

        Raises:
            BactrianError: the items are not available.
        """
        ...


class Crew(JobPlayer, ListSource, Protocol):
    """Other processes, which play the jobs of a run and ask for its lists."""

    def read_pressure(self) -> EndpointPressure:
        """Return the current limits of the endpoints."""
        ...

    def halt(self) -> None:
        """Let no conversation go on after its next turn, and cancel calls that have not been sent."""
        ...


@dataclass(slots=True)
class Runner:
    """Plays the jobs of ``scheduler``, as many at once as ``window`` says."""

    scheduler: Scheduler
    player: JobPlayer
    sources: Mapping[str, ListSource]
    """Provide the lists, by axis."""
    store: RunStore
    progress: RunProgress
    complete: Callable[[Job], Job]
    """Adds to a job what only the run knows."""
    begun: list[tuple[Job, int]]
    """The sessions that an earlier command left open, with their numbers of turns, the longest last: it runs first."""
    window: Window
    halt: Callable[[], None]
    """Cancels calls that have not been sent."""
    ask_alone: Callable[[str], AbstractAsyncContextManager[None]] | None = None
    """Keeps other processes that make the run from asking for a list meanwhile; None if none makes it."""
    telemetry: Observer | None = None
    """Where the ends of sessions are reported."""
    _stopping: bool = False
    _fault: BactrianError | None = None
    _failures: int = 0
    """Sessions and lists that failed in a row; a model's answer sets it back to 0."""

    async def run(self) -> None:
        """Run all jobs, or until :meth:`stop` is called.

        Raises:
            BactrianError: the run cannot continue. Turns that were in flight have been finished and stored.
        """
        admission = self.progress.admission
        await asyncio.gather(*(self._work() for _ in range(self.window.most)))
        admission.left_open += [turns for _, turns in self.begun]
        if admission.refused and self._fault is None:
            self._fault = admission.explain_refusal()
        if self._fault is not None:
            raise self._fault

    async def stop(self) -> None:
        """Start no more jobs. Turns in flight are finished and stored, then :meth:`run` returns."""
        self._stopping = True
        self.halt()
        self.progress.admission.close()
        await self.scheduler.close()
        await self.window.close()

    async def _work(self) -> None:
        while True:
            async with self.window.enter() as may_begin:
                if not may_begin or self._stopping or not await self._do_next():
                    break
        await self.window.close()

    async def _do_next(self) -> bool:
        """Do the next job or list; return False if no other may begin."""
        work, turns = self.begun.pop() if self.begun else (await self.scheduler.take(), 0)
        if work is None or self._stopping:
            return False
        try:
            if isinstance(work, ListRequest):
                return await self._ask_list(work)
            if await self.progress.admission.admit(turns):
                await self._play_session(work, turns)
            else:
                self.progress.admission.left_open += [turns] if turns else []
                await self.scheduler.release(work, ended=False)
                return False
        except Halted:
            return False
        except BactrianError as error:
            await self._stop_with(error)
        return True

    async def _play_session(self, job: Job, turns: int) -> None:
        """Play the session of ``job``, which has ``turns`` turns."""
        progress, admission = self.progress, self.progress.admission
        outlook = admission.outlook
        code, begun, refused, complete = "", False, False, self.complete(job)
        async with aclosing(self.player.play(complete, self.store)) as events:
            try:
                async for event in events:
                    progress.take(event)
                    match event:
                        case Spoke(turn):
                            turns += 1
                            outlook.speak(turns, turn.usage, turn.seconds)
                            self._failures = 0
                            if self._stopping or (admission.is_tight() and not await admission.stay(turns)):
                                return
                        case Started(session):
                            stored, begun = len(session.turns), True
                            if not turns:
                                outlook.prepare(session.preparation)
                            if stored > turns:
                                outlook.move(turns, stored)
                                turns = stored
                        case Ended(_, ModelError(endpoint_wide=True) as fault):
                            await self._leave_open(fault)
                        case Ended(ending):
                            code = ending.code
                            progress.last = job, turns, ending
                        case _:
                            pass
            except InputError as error:
                progress.refuse(job.id, error.what)
                refused = True
            finally:
                admission.leave(turns, ended=bool(code))
                progress.silent += begun and not turns and not code
                await self.scheduler.release(job, ended=bool(code) or refused)
                if self.telemetry is not None:
                    self.telemetry.end_session(complete.id, turns, code)

    async def _leave_open(self, fault: ModelError) -> None:
        """Count a session or list that ``fault`` left open, and stop the run if it concerns every request.

        A :class:`GaveUp` concerns every request once as many came in a row as sessions run at once.
        """
        self.progress.open += 1
        if isinstance(fault, GaveUp):
            self._failures += 1
            if self._failures < self.progress.window:
                self.progress.explain(fault)
                return
        await self._stop_with(fault)

    async def _stop_with(self, error: BactrianError) -> None:
        reached = isinstance(error, BudgetReached)
        # Report the limit; other failures while the run shuts down are consequences.
        if self._fault is None or (reached and not isinstance(self._fault, BudgetReached)):
            self._fault = error
        if reached:  # The next turns of other sessions may cost less, and end them.
            self.progress.admission.close()
            await self.scheduler.close()
        else:
            await self.stop()

    async def _ask_list(self, request: ListRequest) -> bool:
        """Fetch a list once the limits can pay for a session with it; return False if they cannot."""
        admission, items = self.progress.admission, 0
        if self.scheduler.lists_only:
            await self._fetch_list(request)
            return True
        if not await admission.admit_list():
            await self.scheduler.supply(request.id, ())  # for those that wait for it
            return False
        try:
            async with self.ask_alone(request.id) if self.ask_alone else nullcontext():
                items = await self._fetch_list(request)
        finally:
            admission.end_list(has_items=items >= request.enough)
        return True

    async def _fetch_list(self, request: ListRequest) -> int:
        """Fetch a list, store it after each step, give its items to the scheduler, and return their number."""
        progress = self.progress
        if self.ask_alone and (known := await self.scheduler.find_known(request)) is not None:
            await self.scheduler.supply(request.id, known)
            return len(known)
        stored = await self.store.item_list(request.id)
        if self._stopping:
            return 0
        latest = stored and ListProgress(stored.items, False, stored.usage, stored.calls)
        progress.lists_in_flight += 1
        try:
            async with aclosing(self.sources[request.axis].list_items(request, latest)) as steps:
                async for latest in steps:
                    items = ItemList(request.id, latest.items, latest.finished, latest.usage, latest.calls)
                    await self.store.save_list(items)
                    self._failures = 0
                    if self._stopping and not latest.in_flight:
                        return 0
        except ModelError as error:
            if error.endpoint_wide:
                await self._leave_open(error)
                await self.scheduler.supply(request.id, ())
                return 0
            progress.refuse(request.id, error.what)
        finally:
            progress.lists_in_flight -= 1
        items, why = (latest.items, latest.why) if latest else ((), "")
        if latest:
            progress.lists.finish(ItemList(request.id, items, True, latest.usage, latest.calls))
        if len(items) < request.enough:
            progress.short[request.id] = ShortList(len(items), request.count, why)
        await self.scheduler.supply(request.id, items)
        return len(items)
