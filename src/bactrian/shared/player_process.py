"""A process that plays conversations for the command that started it: ``python -m bactrian.shared.player_process FD``.

It reads the run's file itself. What it writes, and what each call uses of the limits, goes to the command.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import socket
import struct
import sys
import traceback
import warnings
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AsyncExitStack, aclosing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, cast

from bactrian.errors import BactrianError, BactrianWarning, Halted
from bactrian.models.budget import UsageMeter
from bactrian.models.open import ModelOptions
from bactrian.records.events import Ended, Spoke, Started
from bactrian.records.turn import Turn, Usage, UsageFields
from bactrian.roleplay.recorded import Recorded
from bactrian.runs.plan import Plan
from bactrian.runs.runner import ListProgress
from bactrian.runs.wiring import Playing, RunLimits, RunOrder, open_playing, tune_gc
from bactrian.store import RunStore
from bactrian.store.record_tables import Statement
from bactrian.store.store import STATEMENTS
from bactrian.store.write import Connections, RowWriter

# Messages between the process of a command and those that play for it.


Message = tuple[Any, ...]
"""Its kind, then what belongs to it."""

_HEAD = struct.Struct(">Q")


class Link(asyncio.Protocol):
    """One end of a socket between two processes of a command. Messages of one turn of the event loop travel together.

    Both ends are this program, so that messages may be any objects: no other process can write to the socket.
    """

    def __init__(self, take: Callable[[Message], None], lose: Callable[[], None]) -> None:
        """Give each message that arrives to ``take``, and call ``lose`` once the other end is closed."""
        self._take = take
        self._lose = lose
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Message] = []
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  asyncio's word for it
        self._lose()

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        start = 0
        while len(received) >= start + _HEAD.size:
            (size,) = _HEAD.unpack_from(received, start)
            stop = start + _HEAD.size + size
            if len(received) < stop:
                break
            with memoryview(received) as view:
                messages: list[Message] = pickle.loads(view[start + _HEAD.size : stop])  # noqa: S301  ours
            start = stop
            for message in messages:
                self._take(message)
        del received[:start]

    def send(self, *message: Any) -> None:
        """Send a message, after those before it."""
        self._waiting.append(message)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self._transport is None or not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        try:
            body = pickle.dumps(waiting, pickle.HIGHEST_PROTOCOL)
        except BaseException:
            self._transport.abort()  # Better than to wait for ever for what was not sent.
            raise
        self._transport.write(_HEAD.pack(len(body)) + body)

    def close(self) -> None:
        """Send what waits, and close this end."""
        self._flush()
        if self._transport is not None:
            self._transport.close()


# A process that plays conversations for the command that started it: ``python -m bactrian.shared.player_process FD``.


_TELL_SECONDS = 0.5


class PlayerProcess:
    """Plays what the command asks for, and has it write what is made."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.link = Link(self._take, self._end)
        self._numbers = {statement: number for number, statement in enumerate(STATEMENTS)}
        self._written: deque[asyncio.Future[bool]] = deque()
        self._tickets = count()
        self._answers: dict[int, asyncio.Future[Message]] = {}
        self._terms: asyncio.Future[Message] = loop.create_future()
        self._playing: asyncio.Future[Playing] = loop.create_future()
        self._making: dict[int, asyncio.Task[None]] = {}
        self._may_go: dict[int, asyncio.Event] = {}
        """Where the command says after each step whether it wants another."""
        self._spoken: dict[int, list[tuple[Any, ...]]] = {}
        """Turns that are on disk, and that the command is told of a few times a second."""
        self._stopping = False
        self._parts = 1
        self._over = asyncio.Event()

    async def play(self) -> None:
        """Play until the command has had enough; then the process ends."""
        plan, run, access, limits, spending = await self._terms
        try:
            meter = MeterOfCommand(*spending, process=self)
            await self._open(plan, run, access, limits, meter)
        except BaseException as error:  # noqa: BLE001  the command raises it
            self.link.send("failed", _carry(error))
            await self._over.wait()
        self.link.close()
        await asyncio.Event().wait()

    async def _open(
        self, plan: Plan, run: Path, access: ModelOptions, limits: RunLimits, meter: MeterOfCommand
    ) -> None:
        """Open what plays, and keep it open until the command has had enough."""
        notice, report = (partial(self.link.send, "say", kind) for kind in ("notice", "report"))
        access = replace(access, notice=notice, report=report, recorded=Recorded)
        async with AsyncExitStack() as stack:
            self._store = stack.enter_context(open_beside(run, self))
            order = RunOrder(plan, run, access, meter, limits)
            playing = await stack.enter_async_context(open_playing(order, self._store))
            self._playing.set_result(playing)
            playing.models.divide(self._parts)
            if self._stopping:
                playing.models.stop_signal.stop()
            while not self._over.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._over.wait(), _TELL_SECONDS)
                self.link.send("state", playing.models.pressure(), meter.hand_over())
                for key in self._spoken:
                    self._tell_turns(key)
            for task in self._making.values():
                task.cancel()
            await asyncio.gather(*self._making.values(), return_exceptions=True)
            self.link.send("state", playing.models.pressure(), meter.hand_over())

    def write(self, statement: Statement, row: tuple[Any, ...]) -> asyncio.Future[bool]:
        """Have the command write a row; done when it is on disk."""
        self.link.send("row", self._numbers[statement], row)
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._written.append(done)
        return done

    def ask(self, model: str, usage: Usage) -> asyncio.Future[Message]:
        """Ask the command whether a call may begin.

        The answer is an error or None, True if it may begin, what the run has used, and its longest reply in tokens.
        """
        ticket = next(self._tickets)
        self.link.send("hold", ticket, model, usage)
        answer = self._answers[ticket] = asyncio.get_running_loop().create_future()
        return answer

    def _take(self, message: Message) -> None:
        """Do what a message says, which is named by its kind."""
        getattr(self, f"take_{message[0]}")(*message[1:])

    def take_written(self, results: Sequence[bool | BaseException]) -> None:
        for result in results:
            _settle(self._written.popleft(), result)

    def take_held(self, ticket: int, *answer: Any) -> None:
        _settle(self._answers.pop(ticket), answer)

    def take_begin(self, *terms: Any) -> None:
        self._terms.set_result(terms)

    def take_go(self, key: int) -> None:
        self._may_go[key].set()

    def take_close(self, key: int) -> None:
        self._making[key].cancel()

    def take_divide(self, parts: int) -> None:
        self._parts = parts
        if self._playing.done():
            self._playing.result().models.divide(parts)

    def take_end(self) -> None:
        self._over.set()

    def take_halt(self) -> None:
        self._stopping = True
        if self._playing.done():
            self._playing.result().models.stop_signal.stop()

    def _end(self) -> None:
        """End with the command, even if it was killed: nothing can be stored any more."""
        os._exit(0 if self._over.is_set() else 1)

    def take_make(self, key: int, kind: str, stepwise: bool, *what: Any) -> None:
        self._making[key] = asyncio.create_task(self._give(key, kind, what, stepwise=stepwise))

    async def _give(self, key: int, kind: str, what: Sequence[Any], *, stepwise: bool) -> None:
        """Send what a conversation or a list yields; of a ``stepwise`` one, the next when the command asks for it."""
        failure: BaseException | None = None
        may_go = self._may_go[key] = asyncio.Event()
        self._spoken[key] = []
        turns, code = 0, ""
        try:
            playing = await self._playing
            if self._stopping:
                raise Halted
            made: AsyncGenerator[Any] = (
                playing.player.play(what[0], self._store)
                if kind == "play"
                else playing.lister.list_items(what[0], what[1])
            )
            async with aclosing(made) as steps:
                async for step in steps:
                    match step:
                        case Spoke(turn):
                            turns = turn.number
                            self._spoken[key].append(_count_turn(turn))
                            if stepwise:
                                self._tell_turns(key)
                        case Started(session):
                            self.link.send("began", key, len(session.turns), session.preparation)
                        case Ended() | ListProgress():
                            code = step.ending.code if isinstance(step, Ended) else ""
                            self._tell_turns(key)
                            self.link.send("step", key, step)
                        case _:
                            continue
                    if stepwise:
                        await may_go.wait()
                        may_go.clear()
                    elif self._stopping and isinstance(step, Spoke):
                        break
        except BaseException as error:  # noqa: BLE001  the command raises it
            failure = error
        if kind == "play" and self._playing.done() and (telemetry := self._playing.result().telemetry):
            telemetry.end_session(what[0].id, turns, code)
        self._tell_turns(key)
        del self._making[key], self._may_go[key], self._spoken[key]
        self.link.send("end", key, failure and _carry(failure))

    def _tell_turns(self, key: int) -> None:
        if spoken := self._spoken[key]:
            self.link.send("spoke", key, spoken[:])
            spoken.clear()


@dataclass(slots=True)
class MeterOfCommand(UsageMeter):
    """Has the command count what calls use, by the one meter of all processes: with a limit, before the next call."""

    process: PlayerProcess = field(kw_only=True)
    _counted: UsageMeter = field(default_factory=UsageMeter)
    _again: bool = False

    def __post_init__(self) -> None:
        self._counted.prices = self.prices

    async def take(self, model: str, usage: Usage) -> bool:
        """Ask whether a call may begin; False if it has to be fitted again to what is left."""
        known = self.used.total
        error, taken, self.used, self.usd, self.longest_tokens = await self.process.ask(model, usage)
        if taken:
            return True
        self._wake()
        if error is not None and self.used.total == known:
            raise error
        self._again = True
        return False

    async def wait(self) -> None:
        """Wait until a call that is in flight has ended."""
        again, self._again = self._again, False
        if not again:
            await self._ended.wait()

    def settle(self, model: str, held: Usage | None, used: Usage | None, *, failed: bool) -> None:
        """Send or count what a call used."""
        if held is None:
            self._counted.settle(model, None, used, failed=failed)
            return
        self.process.link.send("used", model, held, used, failed)
        self._wake()

    def _wake(self) -> None:
        self._ended.set()
        self._ended.clear()

    def hand_over(self) -> UsageMeter:
        """Return what was counted since the last time."""
        counted, self._counted = self._counted, UsageMeter(prices=self.prices)
        counted.repeated, self.repeated = self.repeated, 0
        counted.broken_off, self.broken_off = self.broken_off, []
        return counted


def _count_turn(turn: Turn) -> tuple[Any, ...]:
    """Return what the command counts of a turn; tuples are pickled in a fraction of the time of records."""
    used = turn.usage
    counts: UsageFields = (used.prompt, used.completion, used.cached, used.estimated, used.written, used.tier)
    return turn.number, turn.speaker, counts, turn.model, turn.fingerprint


def _settle(future: asyncio.Future[Any], result: object) -> None:
    if future.done():
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)


def _carry(error: BaseException) -> BactrianError | str:
    """Return what can be sent of an error: one of ours as it is, and of others the traceback."""
    return error if isinstance(error, BactrianError) else "".join(traceback.format_exception(error))


async def _serve(descriptor: int) -> None:
    tune_gc()
    process = PlayerProcess()
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *position: Any) -> None:
        if issubclass(category, BactrianWarning):
            process.link.send("say", "report", str(message))
        else:
            usual(message, category, *position)

    warnings.showwarning = show
    ours = socket.socket(fileno=descriptor)
    await asyncio.get_running_loop().create_connection(lambda: process.link, sock=ours)
    await process.play()


def _ignore(*_: object) -> None:
    """Do nothing: the command decides what a signal to all its processes means."""


def main() -> None:
    """Play until the command ends."""
    for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(which) != signal.SIG_IGN:  # which the programs that tools start would inherit
            signal.signal(which, _ignore)
    asyncio.run(_serve(int(sys.argv[1])))


@contextmanager
def open_beside(path: Path, writer: RowWriter) -> Generator[RunStore]:
    """Open a run that another process has open: it is read from the file, and ``writer`` has that process write."""
    connections = Connections(path)
    try:
        yield RunStore(path, connections, writer)
    finally:
        connections.close()


if __name__ == "__main__":
    main()
