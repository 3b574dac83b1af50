"""Processes of this computer that play the conversations of a run, while this one schedules, counts and writes.

They are not workers with claims, as those of a run in PostgreSQL are. Here one process outlives the others and decides,
so one scheduler, one budget and one progress serve all: the run differs from that of one process only in where its
conversations are played. A process that dies takes nothing with it: what it played goes on in another one, from the
last turn on disk.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, cast

from bactrian.errors import BactrianError, Halted
from bactrian.models.budget import UsageMeter
from bactrian.records.events import Event, Spoke, Started
from bactrian.records.session import Session
from bactrian.records.text import Text, write_count
from bactrian.records.turn import Turn, Usage
from bactrian.runs.progress import EndpointPressure
from bactrian.runs.runner import Crew, ListProgress
from bactrian.runs.scheduler import Job, ListRequest
from bactrian.runs.wiring import RunLimits, RunOrder
from bactrian.shared.player_process import Link, Message
from bactrian.store import RunStore
from bactrian.store.store import STATEMENTS
from bactrian.store.write import RowWriter

_MODULE = "bactrian.shared.player_process"
_MOST_LOSSES = 3
"""Processes that may die at the same turn of a conversation, which may be what kills them."""
_END = 10.0
"""Seconds that a process has to end by itself."""
_SILENCE = 5.0
"""Seconds without a message after which a process may have been stopped: it sends one twice a second."""
_LOST = object()
_NO_TEXT = Text("")


@asynccontextmanager
async def open_crew(processes: int, order: RunOrder, store: RunStore) -> AsyncGenerator[Crew]:
    """Open processes that play the jobs of ``order``. They start with the first job or list."""
    crew = ProcessCrew(processes, order, store)
    waking = asyncio.create_task(crew.wake())
    try:
        yield crew
    finally:
        waking.cancel()
        await crew.close()


class ProcessCrew:
    """Gives each conversation and list to the process that has the fewest; see :class:`~bactrian.runs.runner.Crew`."""

    def __init__(self, processes: int, order: RunOrder, store: RunStore) -> None:
        limits, meter = order.limits, order.meter
        window = limits.choose_window(order.plan.models.values())
        self._size = min(processes, window)
        self._meter = meter
        self._access = order.access
        self._writer = store.writer
        access = replace(
            order.access, progress=None, notice=None, report=None, recorded=None, person=None, meter=None
        )
        share = RunLimits(-(-window // self._size), limits.requests_per_minute, limits.tokens_per_minute)
        spending = meter.max_tokens, meter.max_usd, dict(meter.prices)
        self._terms = order.plan, order.run.absolute(), access, share, spending
        self._members: list[_Member] = []
        self._burials: set[asyncio.Task[None]] = set()
        self._closing = self._halted = False
        self._busy = 0

    def play(self, job: Job, store: RunStore) -> AsyncGenerator[Event]:  # noqa: ARG002  theirs is the same run
        """Play the session of ``job`` in a process; in another one if that dies.

        Raises:
            BactrianError: what playing it raises, or the processes that play it die again and again.
        """
        # With a limit, the run says after each turn whether the conversation goes on.
        return self._follow("play", lambda: (job,), job.id, stepwise=self._meter.limited)

    async def list_items(
        self, request: ListRequest, begun: ListProgress | None
    ) -> AsyncGenerator[ListProgress]:
        """Have a process ask for a list; if that dies, another one goes on from what was stored."""
        steps = self._follow("list", lambda: (request, begun), request.id, stepwise=True)
        async with aclosing(steps):
            async for step in steps:
                begun = step
                yield step

    def read_pressure(self) -> EndpointPressure:
        """Return the current limits of the endpoints, of all processes."""
        states = [member.pressure for member in self._members]
        return EndpointPressure(
            sum(state.limit for state in states),
            max((state.closed_for for state in states), default=0.0),
            any(state.silent for state in states),
        )

    def halt(self) -> None:
        """Let no conversation go on after its next turn, and cancel calls that have not been sent."""
        self._halted = True
        for member in self._members:
            member.process.send_signal(signal.SIGCONT)  # A person waits; see :meth:`wake`.
            member.link.send("halt")

    async def wake(self) -> None:
        """Continue processes that somebody stopped (SIGSTOP), again and again: others would wait for them for ever."""
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(_SILENCE)
            for member in self._members:
                if clock() - member.heard > _SILENCE:
                    member.process.send_signal(signal.SIGCONT)  # which does nothing to one that is busy

    async def close(self) -> None:
        """End the processes, and wait for them."""
        self._closing = True
        await asyncio.gather(*(member.end() for member in self._members), *self._burials)

    async def _follow(
        self, kind: str, ask: Callable[[], tuple[Any, ...]], name: str, *, stepwise: bool
    ) -> AsyncGenerator[Any]:
        """Yield the steps of what is asked for. If the caller wants no more, the turn in flight is made and stored."""
        losses = 0
        while losses < _MOST_LOSSES:
            if self._halted:
                raise Halted
            member = self._choose()
            key, steps = member.open_stream()
            member.link.send("make", key, kind, stepwise, *ask())
            self._divide()
            try:
                while (step := await steps.get()) is not _LOST:
                    if step is None:
                        return
                    if isinstance(step, BaseException):
                        raise step
                    losses = 0 if isinstance(step, Spoke | ListProgress) else losses
                    yield step
                    if stepwise:
                        member.link.send("go", key)
            except GeneratorExit:
                if stepwise:
                    member.link.send("close", key)
                while (step := await steps.get()) is not _LOST and not isinstance(step, BaseException | None):
                    pass
                raise
            finally:
                del member.streams[key]
                self._divide()
            losses += 1
        raise BactrianError(
            f"{_MOST_LOSSES} processes have died while they played it, and made no turn.",
            where=name,
            next="There may be too little memory, or a tool or model that crashes. What was stored is safe; the same "
            "command goes on, also with fewer processes.",
        )

    def _choose(self) -> _Member:
        """Return the process that has the fewest conversations; start those that are missing."""
        while len(self._members) < self._size:
            member = _Member(self._meter, self._writer, self._tell, self._lose)
            member.link.send("begin", *self._terms)
            self._members.append(member)
        return min(self._members, key=lambda member: len(member.streams))

    def _divide(self) -> None:
        """Tell the processes how many of them share the rate limits: those that play."""
        busy = sum(bool(member.streams) for member in self._members)
        if busy != self._busy:
            self._busy = busy
            for member in self._members:
                member.link.send("divide", max(1, busy))

    def _lose(self, member: _Member) -> None:
        self._members.remove(member)
        self._divide()
        if not self._closing:
            burial = asyncio.create_task(self._bury(member, len(member.streams)))
            self._burials.add(burial)
            burial.add_done_callback(self._burials.discard)

    async def _bury(self, member: _Member, conversations: int) -> None:
        """Tell that a process has died, and why."""
        code = await asyncio.to_thread(member.process.wait)
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        went_on = f"{write_count(conversations, 'conversation')} go on in another one"
        self._tell("report", f"A process has died ({how}); its {went_on}.")

    def _tell(self, kind: str, text: str) -> None:
        tell = self._access.notice if kind == "notice" else self._access.report
        if tell is not None:
            tell(text)


@dataclass(frozen=True, slots=True)
class _BegunSession:
    """What a run counts of a session that begins."""

    turns: range
    preparation: Usage


class _Member:
    """A process, seen from this one."""

    def __init__(
        self,
        meter: UsageMeter,
        writer: RowWriter,
        tell: Callable[[str, str], None],
        lose: Callable[[_Member], None],
    ) -> None:
        self.streams: dict[int, asyncio.Queue[Any]] = {}
        """The steps of conversations and lists: behind the last one is None, an error, or that the process is lost."""
        self.pressure = EndpointPressure()
        self.heard = asyncio.get_running_loop().time()
        self.gone = asyncio.Event()
        self._fault: BaseException | None = None
        self._meter = meter
        self._writer = writer
        self._lose = lose
        self.take_say = tell
        self._keys = count()
        self._writing: deque[asyncio.Future[bool]] = deque()
        self._holding: set[asyncio.Task[None]] = set()
        self._held: list[tuple[str, Usage]] = []
        self.link = Link(self._take, self._end_streams)
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self.process = subprocess.Popen(  # noqa: S603  our own interpreter and module
                    [sys.executable, "-P", "-m", _MODULE, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,  # Ctrl-C is for this process, which ends the others.
                )
            except OSError as error:
                ours.close()
                raise BactrianError(
                    f"A process to play conversations cannot be started: {error.strerror}.",
                    next="Give fewer processes.",
                ) from error
        connect = asyncio.get_running_loop().create_connection(lambda: self.link, sock=ours)
        self._connecting = asyncio.create_task(connect)

    def open_stream(self) -> tuple[int, asyncio.Queue[Any]]:
        """Return the key of a new conversation or list, and its steps."""
        key = next(self._keys)
        steps = self.streams[key] = asyncio.Queue()
        if self._fault is not None:
            steps.put_nowait(self._fault)
        return key, steps

    async def end(self) -> None:
        """Ask the process to end; end it if it does not."""
        self.process.send_signal(signal.SIGCONT)  # One that somebody stopped would not hear it.
        self.link.send("end")
        try:
            await asyncio.wait_for(self.gone.wait(), _END)
        except TimeoutError:
            self.process.kill()
        await asyncio.to_thread(self.process.wait)

    def _take(self, message: Message) -> None:
        """Do what a message says, which is named by its kind."""
        getattr(self, f"take_{message[0]}")(*message[1:])

    def take_spoke(self, key: int, counted: Sequence[Sequence[Any]]) -> None:
        # What the run counts; the whole turns are on disk.
        for number, speaker, used, model, mark in counted:
            usage = Usage(*used)
            turn = Turn(number, speaker, "", _NO_TEXT, None, usage, 0.0, None, model, "stop", False, mark)
            self.take_step(key, Spoke(turn))

    def take_began(self, key: int, turns: int, preparation: Usage) -> None:
        self.take_step(key, Started(cast("Session", _BegunSession(range(turns), preparation))))

    def take_step(self, key: int, step: Event | ListProgress | BaseException | None) -> None:
        if key in self.streams:
            self.streams[key].put_nowait(step)

    def take_end(self, key: int, failure: BactrianError | str | None) -> None:
        self.take_step(key, _raise_again(failure))

    def take_failed(self, failure: BactrianError | str) -> None:
        """End all streams: the process cannot play anything."""
        self._fault = _raise_again(failure)
        for key in self.streams:
            self.take_step(key, self._fault)

    def take_row(self, statement: int, row: tuple[Any, ...]) -> None:
        done = self._writer.write(STATEMENTS[statement], row)
        self._writing.append(done)
        done.add_done_callback(self._confirm)

    def take_used(self, model: str, held: Usage, used: Usage | None, failed: bool) -> None:
        self._held.remove((model, held))
        self._meter.settle(model, held, used, failed=failed)

    def take_hold(self, ticket: int, model: str, usage: Usage) -> None:
        task = asyncio.create_task(self._hold(ticket, model, usage))
        self._holding.add(task)
        task.add_done_callback(self._holding.discard)

    def take_state(self, pressure: EndpointPressure, counted: UsageMeter) -> None:
        self.heard = asyncio.get_running_loop().time()
        self.pressure = pressure
        self._meter.add(counted)

    def _confirm(self, _: asyncio.Future[bool]) -> None:
        """Tell the process which of its rows have been written; those before are written earlier."""
        results: list[bool | BaseException] = []
        while self._writing and self._writing[0].done():
            done = self._writing.popleft()
            results.append(done.exception() or done.result())
        if results and not self.gone.is_set():
            self.link.send("written", results)

    async def _hold(self, ticket: int, model: str, usage: Usage) -> None:
        """Answer whether a call may begin, once those in flight leave room for it or have ended."""
        meter, taken = self._meter, False
        failure: BactrianError | None = None
        try:
            # A process that has had no reply yet asks again where the run knows how long replies are.
            while not taken and (usage.completion or not meter.longest_tokens):
                # Otherwise its call goes alone, as the first one of a single process does.
                if usage.completion or meter.calls or not meter.in_flight:
                    taken = meter.hold(model, usage)
                if not taken:
                    await meter.wait()
            if taken:
                self._held.append((model, usage))
        except BactrianError as error:
            failure = error
        self.link.send("held", ticket, failure, taken, meter.used, meter.usd, meter.longest_tokens)

    def _end_streams(self) -> None:
        """Give back what the calls of a dead process held, and end its streams."""
        self.gone.set()
        for task in self._holding:
            task.cancel()
        for model, held in self._held:
            self._meter.settle(model, held, None, failed=True)
        self._lose(self)
        for steps in self.streams.values():
            steps.put_nowait(_LOST)


def _raise_again(failure: BactrianError | str | None) -> BaseException | None:
    """Return the error that a process has sent."""
    if isinstance(failure, str):
        return RuntimeError(f"A process that plays conversations failed:\n{failure}")
    return failure
