"""Requests that are sent in batches: conversations wait for each other at every turn.

A request is parked. When no conversation has anything else to do, all that are parked are sent as one batch, the next
*wave*. The conversations of a batch are answered together, so they also wait together for their next wave: they are
a *train*, and several trains go side by side.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TypeVar

from pydantic_core import to_json

from bactrian import errors
from bactrian.batches import interfaces
from bactrian.batches.ledger import Batch, Ledger, Place, Result, Stored
from bactrian.models.faults import PATIENCE, explain_transport
from bactrian.models.http import NoConnection, Timeouts
from bactrian.models.http_response import Response, TransportFault
from bactrian.models.model import Model, Request, StopSignal
from bactrian.models.open import ModelOptions
from bactrian.models.openai import OpenAIModel
from bactrian.models.providers import BATCH, load_providers, split_name
from bactrian.records.text import write_count

# Seconds without another request after which a wave is complete, although a conversation is at work
_QUIET = 2.0
_BLINK = 0.02
_FIRST_LOOK, _LONGEST_LOOK = 0.2, 60.0  # Seconds between two looks at a batch
_LOOKS = 4  # Times that the provider's list is searched for a batch: a new one may be missing at first
_APART = 2.0  # Seconds between the first two of them
_MOST_TRIES = 8  # Batches in which a request gets no reply, before its conversation is left open
_SMALL = 0.1  # Share of what is out below which a wave waits for another one to go with
_TAIL = 0.02  # Share of the largest wave below which the last conversations go on live
_LIVE_AT_ONCE = 64
# Seconds for which a provider keeps what it took, and those in which a new batch may be unknown to it
_KEPT, _NEW = 86_400.0, 60.0
_SHORT_PATIENCE = 30.0  # Seconds in which the provider has to answer a command that does not wait for batches
_FETCHES = 3  # Times that results are loaded in which lines are missing
# Requests that are refused alone, before any is answered, from which every one counts as refused
_MOST_SUSPECTS = 8
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 60.0


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class BatchTerms:
    """How a run uses batches."""

    wait: float | None = None
    """Seconds to wait for a batch to end; None for as long as it takes."""
    live_after: float | None = None
    """Hours after which a batch is cancelled, and what it has not answered is asked live."""
    size: int = 5_000
    """Conversations of a train."""
    pace: float = 1.0
    """Multiplies all waits."""


@dataclass(slots=True, eq=False)
class _Parked:
    """A request that waits for its reply."""

    place: Place
    body: Sequence[bytes]
    answer: asyncio.Future[Stored | None]
    """None if it is to be sent live."""
    tries: int = 0


@dataclass(slots=True, eq=False)
class _Lane:
    """The batches of one model."""

    model: str
    interface: interfaces.OpenAIBatches
    client: interfaces.Client
    explain: Callable[[TransportFault], errors.ModelError]
    parked: list[_Parked] = field(default_factory=list[_Parked])
    out: dict[int, int] = field(default_factory=dict[int, int])
    """Numbers of requests by the number of their batch."""
    held: set[int] = field(default_factory=set[int])
    """Batches of these that wait until another one ends. One does not wait, or they would wait for each other."""
    creating: asyncio.Lock = field(default_factory=asyncio.Lock)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    answered: bool = False
    suspects: list[tuple[int, Result]] = field(default_factory=list[tuple[int, Result]])
    """Batches of a single request that were refused."""


class Batches:
    """The batches of a run. Every model that is added sends its requests by them.

    ``count_running`` returns how many conversations are in flight, and ``can_go_live`` whether the budget pays for what
    is out at the full price.
    """

    def __init__(
        self,
        ledger: Ledger,
        terms: BatchTerms,
        access: ModelOptions,
        *,
        stop_signal: StopSignal,
        count_running: Callable[[], int],
        can_go_live: Callable[[], bool],
    ) -> None:
        self._ledger = ledger
        self._terms = terms
        self._limits = Timeouts(total=access.timeout)
        patience = inf if terms.wait is None else max(_SHORT_PATIENCE, terms.wait)
        self._patience = min(PATIENCE * access.max_wait, patience)
        self._report = access.report
        self._stop_signal = stop_signal
        self._count_running = count_running
        self._can_go_live = can_go_live
        self._lanes: dict[str, _Lane] = {}
        self._waiting: dict[Place, _Parked] = {}
        self._sessions: Counter[str] = Counter()  # Of the requests that wait
        self._handed: dict[tuple[str, str, str], tuple[int, set[int]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._seen: set[int] = set()  # Batches that were running when they were looked at last
        self._live = asyncio.Semaphore(_LIVE_AT_ONCE)
        self._error: errors.BactrianError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._touched = 0.0

    def add(self, model: Model) -> None:
        """Let ``model`` send its requests in batches.

        Raises:
            InputError: its provider has no batch interface that is known.
        """
        parts = split_name(model.name)
        row = load_providers().get(parts.provider) if parts else None
        if parts is None or row is None or row.batches is None or not isinstance(model, OpenAIModel):
            raise errors.InputError(
                f"{model.name} cannot be asked in batches.",
                option="batch",
                next="Providers with batches: "
                + ", ".join(row.name for row in load_providers().values() if row.batches)
                + '. Others have it by `batches = "openai"` in your own providers.toml.',
            )
        model.check_key()
        address, key = model.endpoint
        interface = interfaces.INTERFACES[row.batches](address, parts.model)
        client = interfaces.Client(interface.address, interface.write_header(key), self._limits)
        explain = partial(explain_transport, host=interface.address.origin, limits=self._limits)
        self._lanes[model.name] = _Lane(model.name, interface, client, explain)
        model.transport = partial(self._ask, self._lanes[model.name])

    def collect(self) -> None:
        """Begin to collect what earlier commands have sent."""
        self._ledger.forget_failures()
        for batch in self._ledger.list_open():
            if batch.model not in self._lanes:
                continue
            if batch.state == "written" and not self._ledger.find_file(batch.number).exists():
                self._ledger.forget(batch.number)
            else:
                self._start(self._lanes[batch.model], batch)

    async def close(self) -> None:
        """Stop looking after the batches. Those that are out stay out."""
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for lane in self._lanes.values():
            await lane.client.close()
        self._ledger.close()

    # Requests: parked, answered from the ledger, or sent live.

    async def _ask(
        self, lane: _Lane, request: Request, body: Sequence[bytes], send: Callable[[], Awaitable[Response]]
    ) -> Response:
        if self._error is not None:
            raise self._error
        place = Place(request.session, request.agent, request.call_index, request.attempt, lane.model)
        stored = self._ledger.find(place)
        again = self._note_handed(place)
        if stored is None or again or stored.state != "done":
            parked = _Parked(place, body, asyncio.get_running_loop().create_future())
            self._waiting[place] = parked
            self._sessions[place.session] += 1
            if stored is None or again or stored.state == "again":
                parked.tries = stored.tries + 1 if stored else 0
                lane.parked.append(parked)
            self._touch()
            try:
                await self._stop_signal.wait_for(parked.answer)  # type: ignore[arg-type]
                stored = parked.answer.result()
            finally:
                del self._waiting[place]
                self._sessions[place.session] -= 1
                if not self._sessions[place.session]:
                    del self._sessions[place.session]
        if stored is None:
            async with self._live:
                return await send()
        return Response.of(stored.status or 503, stored.reply or b"", BATCH)

    def _note_handed(self, place: Place) -> bool:
        """Note that the reply for ``place`` goes to its conversation; return True if one has gone there before."""
        key = place.session, place.agent, place.model
        call, attempts = self._handed.get(key, (-1, set[int]()))
        if call != place.call_index:
            self._handed[key] = place.call_index, {place.attempt}
            return False
        if place.attempt in attempts:
            return True
        attempts.add(place.attempt)
        return False

    # Waves.

    def _touch(self) -> None:
        """Look soon whether a wave is complete."""
        loop = asyncio.get_running_loop()
        self._touched = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(_BLINK, self._consider)

    def _consider(self) -> None:
        """Send what is parked, if no conversation is at work or none has parked for a while."""
        loop = asyncio.get_running_loop()
        self._timer = None
        at_work = self._count_running() - len(self._sessions)
        if at_work > 0 and loop.time() - self._touched < _QUIET * self._terms.pace:
            self._timer = loop.call_later(max(_BLINK, _QUIET * self._terms.pace / 20), self._consider)
            return
        try:
            for lane in self._lanes.values():
                self._send_wave(lane)
        except OSError as error:
            self._fail(
                errors.InputError(
                    f"A batch cannot be written: {error.strerror}.",
                    where=str(self._ledger.folder),
                    next="Free some space or check the folder, then run the same command.",
                )
            )

    def _send_wave(self, lane: _Lane) -> None:
        lane.parked = [parked for parked in lane.parked if not parked.answer.done()]
        if not lane.parked or len(lane.parked) < _SMALL * sum(lane.out.values()):
            return
        few = len(lane.parked) < _TAIL * self._ledger.count_largest()
        if few and not lane.out and self._can_go_live():
            for parked in lane.parked:
                parked.answer.set_result(None)
            lane.parked = []
            return
        wave, lane.parked = lane.parked, []
        most = min(self._terms.size, lane.interface.most_requests)
        chosen: list[tuple[Place, int]] = []
        lines: list[bytes] = []
        size = 0
        for parked in wave:
            line = lane.interface.write_line(self._ledger.make_id(parked.place, parked.tries), parked.body)
            if len(lines) == most or (lines and size + len(line) > lane.interface.most_bytes):
                self._start(lane, self._ledger.write(lane.model, chosen, lines))
                chosen, lines, size = [], [], 0
            chosen.append((parked.place, parked.tries))
            lines.append(line)
            size += len(line)
        self._start(lane, self._ledger.write(lane.model, chosen, lines))

    # A batch, from its file to its results.

    def _start(self, lane: _Lane, batch: Batch) -> None:
        lane.out[batch.number] = batch.requests
        task = asyncio.create_task(self._carry(lane, batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, lane: _Lane, batch: Batch) -> None:
        """Follow a batch to its end, from the state in which it is."""
        try:
            while True:
                try:
                    in_doubt = batch.state == "submitting"
                    if batch.state == "written":
                        batch = await self._upload(lane, batch)
                    if batch.state != "sent":
                        batch = await self._create(lane, batch, in_doubt=in_doubt)
                    if await self._follow(lane, batch):
                        break
                    batch = self._ledger.get(batch.number)
                except interfaces.Rejected as refusal:
                    self._divide(
                        lane, batch, interfaces.Look("", "refused", message=str(refusal)), refusal.status
                    )
                    break
        except errors.BactrianError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001  whatever it is, no conversation waits for ever
            self._fail(errors.GaveUp(f"The batches failed: {type(error).__name__}: {error}"))
        finally:
            self._drop(lane, batch.number)

    def _drop(self, lane: _Lane, number: int) -> None:
        lane.out.pop(number, None)
        self._weigh_suspects(lane)
        self._seen.discard(number)
        lane.ended.set()
        lane.ended.clear()
        if self._error is None and not self._stop_signal.over:
            self._touch()

    async def _upload(self, lane: _Lane, batch: Batch) -> Batch:
        file = None
        if lane.interface.purpose_of_file:
            name, content = self._ledger.name(batch.number), self._ledger.find_file(batch.number).read_bytes()
            file = await self._insist(lane, lambda: lane.interface.upload(lane.client, name, content))
        return self._ledger.note(batch.number, state="submitting", file=file)

    async def _create(self, lane: _Lane, batch: Batch, *, in_doubt: bool) -> Batch:
        """Create the batch at the provider; first look for it where its creation is ``in_doubt``."""
        # Where the requests are in a file already, they are not read into memory again.
        content = b"" if lane.interface.purpose_of_file else self._ledger.find_file(batch.number).read_bytes()
        order = interfaces.Order(
            self._ledger.name(batch.number), content, batch.file, batch.requests, batch.created
        )

        async def create() -> str:
            nonlocal in_doubt
            if in_doubt and (found := await self._search(lane, order)):
                return found
            in_doubt = False
            try:
                return await lane.interface.create(lane.client, order)
            except (TransportFault, errors.ModelError) as fault:
                status = interfaces.find_status(fault) if isinstance(fault, errors.ModelError) else None
                in_doubt = not isinstance(fault, NoConnection) and status != 429
                raise

        async with lane.creating:  # A batch without a name is known by its size: one at a time.
            remote = await self._insist(lane, create)
            return self._ledger.note(batch.number, state="sent", remote=remote, sent=time.time())

    async def _search(self, lane: _Lane, order: interfaces.Order) -> str | None:
        for look in range(_LOOKS):
            if look:
                await self._sleep(look * _APART)
            if found := await lane.interface.find(lane.client, order, self._ledger.list_known()):
                return found
        return None

    async def _follow(self, lane: _Lane, batch: Batch) -> bool:
        """Wait for the end of a batch, and take its results; return False if it has to be created once more."""
        assert batch.remote is not None
        remote, kept = batch.remote, self._ledger.find_file(batch.number).with_suffix(".results")
        while not kept.exists():
            look = await self._insist(lane, partial(self._look, lane, batch, remote))
            if look is None:
                kept.write_bytes(b"")  # It is gone, with its results.
            elif look.phase == "refused":
                return await self._take_refusal(lane, batch, look)
            elif look.phase == "ended":
                ids = set(self._ledger.list_ids(batch.number))
                content = await self._fetch(lane, batch, look, ids)
                found = {result.custom_id for result in _read(lane.interface, [content])}
                if look.inline and not found:
                    raise errors.Denied(
                        "The results of a batch do not say to which requests they belong.",
                        where=lane.model,
                        next=f"To ask again without batch=True, and pay again, delete {self._ledger.folder}.",
                    )
                if found and not found & ids:
                    self._ledger.disown(batch.number, remote)
                    return False
                _write_whole(kept, content)
            else:
                age = time.time() - (batch.sent or batch.created)
                batch = await self._cancel_late(lane, batch, age)
                self._seen.add(batch.number)
                self._stop_waiting()
                await self._sleep(min(_LONGEST_LOOK, max(_FIRST_LOOK, age / 20)))
        self._take_results(lane, batch, _read(lane.interface, [kept.read_bytes()]))
        kept.unlink(missing_ok=True)
        return True

    async def _look(self, lane: _Lane, batch: Batch, remote: str) -> interfaces.Look | None:
        """Return the state of a batch; None if the provider has deleted it."""
        try:
            return await lane.interface.look(lane.client, remote)
        except errors.ModelError as error:
            age = time.time() - (batch.sent or batch.created)
            if interfaces.find_status(error) not in (404, 410):
                raise
            unknown = "The provider does not know a batch that it took: use its key and its address."
            self._miss(
                lane, batch, unknown, errors.TryAgain if age < _NEW * self._terms.pace else errors.Denied
            )
            return None

    def _miss(
        self, lane: _Lane, batch: Batch, words: str, kind: type[errors.ModelError] = errors.Denied
    ) -> None:
        """Tell that a batch or its results are gone, and raise ``kind`` if the provider should still keep them."""
        if time.time() - (batch.sent or batch.created) < _KEPT:
            action = f"To give up what is out, and ask and pay again, delete {self._ledger.folder}."
            raise kind(words, where=lane.model, next=action)
        count = write_count(batch.requests, "request")
        self._tell(f"{words} After more than a day, {count} will be asked and paid for again.")

    async def _cancel_late(self, lane: _Lane, batch: Batch, age: float) -> Batch:
        late = self._terms.live_after is not None and age > 3600 * self._terms.live_after
        if not late or batch.cancelled is not None or batch.remote is None:
            return batch
        # If it has ended just now, the next look will tell.
        with suppress(interfaces.Rejected, errors.ModelError, TransportFault):
            await lane.interface.cancel(lane.client, batch.remote)
        return self._ledger.note(batch.number, cancelled=time.time())

    async def _fetch(self, lane: _Lane, batch: Batch, look: interfaces.Look, ids: set[str]) -> bytes:
        """Return the results of a batch that has ended; loaded again if lines are missing or cut off."""
        content = b""
        for fetch in range(_FETCHES):
            if fetch:
                await self._sleep(_APART)
            parts: list[bytes] = []
            await self._insist(lane, partial(self._load, lane, look, parts))
            content = max(content, b"\n".join(parts), key=len)
            if ids <= {result.custom_id for result in _read(lane.interface, parts)}:
                break
        if not content and look.answered:
            self._miss(lane, batch, "A batch has ended, and the provider does not give its results.")
        return content

    async def _load(self, lane: _Lane, look: interfaces.Look, parts: list[bytes]) -> None:
        parts.clear()
        try:
            async for part in lane.interface.fetch(lane.client, look):
                parts.append(part)  # noqa: PERF401  what came before a fault is kept
        except errors.ModelError as error:
            if interfaces.find_status(error) not in (404, 410):
                raise

    def _take_results(self, lane: _Lane, batch: Batch, results: Sequence[Result]) -> None:
        known, counts = self._ledger.list_ids(batch.number), Counter(result.custom_id for result in results)
        strange = counts.keys() - set(known)
        self._deliver(lane, self._ledger.end(batch.number, results), live=batch.cancelled is not None)
        if twice := sum(count > 1 for count in counts.values()):
            self._tell(f"{write_count(twice, 'request')} of a batch came back twice; the first reply counts.")
        if strange and batch.requests == len(known):
            self._tell(
                f"A batch has {write_count(len(strange), 'result')} of other requests; they are left out."
            )

    def _deliver(self, lane: _Lane, places: Iterable[Place], *, live: bool = False) -> None:
        """Give the conversations their replies. Replies come first: an endpoint that has answered is not at fault."""
        for place in places:
            parked, stored = self._waiting.get(place), self._ledger.find(place)
            if parked is None or stored is None or parked.answer.done():
                continue
            if stored.state == "done":
                parked.answer.set_result(stored)
            elif live and self._can_go_live():
                parked.answer.set_result(None)
            elif stored.tries + 1 >= _MOST_TRIES:
                words = (stored.reply or b"").decode(errors="replace")[:200]
                gave_up = errors.GaveUp(
                    f"{_MOST_TRIES} batches ended without a reply to a request. {words}",
                    next="Run the same command again, later or without batch=True.",
                )
                parked.answer.set_exception(gave_up)
            else:
                parked.tries = stored.tries + 1
                lane.parked.append(parked)

    # Batches that are refused.

    async def _take_refusal(self, lane: _Lane, batch: Batch, look: interfaces.Look) -> bool:
        """Divide a batch that was refused, or return False to send it again when there is less out."""
        if look.crowded and lane.out.keys() - lane.held - {batch.number}:
            lane.held.add(batch.number)
            await lane.ended.wait()
            lane.held.discard(batch.number)
            self._ledger.disown(batch.number, look.remote)
            self._ledger.note(batch.number, state="written")
            return False
        self._divide(lane, batch, look, 400)
        return True

    def _divide(self, lane: _Lane, batch: Batch, look: interfaces.Look, status: int) -> None:
        """Send the lines of a batch that was refused in smaller ones; a single line is what cannot be answered."""
        lines = self._ledger.find_file(batch.number).read_bytes().splitlines(keepends=True)
        if len(lines) == 1:
            error = to_json({"error": {"message": look.message}})
            lane.suspects.append((batch.number, Result(interfaces.read_id(lines[0]), status, error)))
            return
        named = {line for line in look.lines if 0 <= line < len(lines)}
        if not named or len(named) == len(lines):
            named = set(range(len(lines) // 2))
        parts = (
            [(interfaces.read_id(line), line) for at, line in enumerate(lines) if (at in named) is inside]
            for inside in (True, False)
        )
        for part in self._ledger.divide(batch.number, parts):
            self._start(lane, part)

    def _weigh_suspects(self, lane: _Lane) -> None:
        """Tell whether the requests that were refused alone are at fault, or the provider refuses every one."""
        if self._ledger.has_ended(lane.model):
            for number, result in lane.suspects:
                self._deliver(lane, self._ledger.end(number, [result]))
            lane.suspects.clear()
        elif lane.suspects and (not lane.out or len(lane.suspects) >= _MOST_SUSPECTS):
            words = lane.suspects[0][1].reply.decode(errors="replace")
            # Nothing of them is at the provider, and a run without batches is not to be refused for them.
            for number, _ in lane.suspects:
                self._ledger.forget(number)
            action = (
                "Correct what it names; parameters.NAME=none leaves a parameter out. `bactrian generate` without"
                " --batch sends each request by itself."
            )
            self._fail(
                errors.Denied(f"The provider refuses every batch: {words}", where=lane.model, next=action)
            )

    # Waits, faults.

    def _stop_waiting(self) -> None:
        """Stop the run if it should not wait any longer: everything is out, and nothing has ended for a while."""
        wait, loop = self._terms.wait, asyncio.get_running_loop()
        out = {number: count for lane in self._lanes.values() for number, count in lane.out.items()}
        if wait is None or loop.time() - self._touched < wait or self._timer or not self._seen >= out.keys():
            return
        requests = write_count(sum(out.values()), "request")
        batches = "1 batch is" if len(out) == 1 else f"{len(out):,} batches are"
        self._fail(
            errors.BatchesOut(
                f"{batches} out, with {requests}.",
                next="Run the same command again later: it collects the replies and goes on.",
            )
        )

    def _fail(self, error: errors.BactrianError) -> None:
        """Give all conversations ``error``, which must not end them."""
        if isinstance(error, errors.ModelError) and not error.endpoint_wide:
            error = errors.Denied(error.what, where=error.where, next=error.next, sample=error.sample)
        self._error = self._error or error
        for parked in self._waiting.values():
            if not parked.answer.done():
                parked.answer.set_exception(self._error)

    async def _insist(self, lane: _Lane, act: Callable[[], Awaitable[_T]]) -> _T:
        """Do ``act`` until the provider answers.

        Raises:
            Rejected: it refuses the batch.
            ModelError: it refuses every request, or has not answered for too long.
        """
        began, wait = time.monotonic(), _FIRST_WAIT
        while True:
            try:
                result = await act()
                lane.answered = True
                return result
            except (AttributeError, KeyError, TypeError, ValueError) as strange:
                raise errors.GaveUp(
                    f"The batch interface answers in another form: {type(strange).__name__}: {strange}.",
                    where=lane.model,
                    next="Run the same command again later, or without batch=True.",
                ) from strange
            except (TransportFault, errors.TryAgain, errors.BadReply) as fault:
                error = lane.explain(fault) if isinstance(fault, TransportFault) else fault
                wrong_address = isinstance(fault, NoConnection) and not lane.answered
                if wrong_address or time.monotonic() - began > self._patience * self._terms.pace:
                    raise errors.GaveUp(error.what, where=lane.model, next=error.next) from fault
                after = error.after if isinstance(error, errors.TryAgain) else None
            except errors.Refused as error:
                if not lane.answered and interfaces.find_status(error) in (404, 405):
                    error.next = "The address may have no batch interface: leave batch=True out."
                raise
            await self._sleep(wait * (0.5 + random.random() / 2) if after is None else after)  # noqa: S311
            wait = min(2 * wait, _LONGEST_WAIT)

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self._terms.pace)

    def _tell(self, text: str) -> None:
        if self._report is not None:
            self._report(text)


def _read(interface: interfaces.OpenAIBatches, contents: Iterable[bytes]) -> list[Result]:
    results = (interface.read_line(line) for content in contents for line in interfaces.split_lines(content))
    return [result for result in results if result is not None]


def _write_whole(path: os.PathLike[str], content: bytes) -> None:
    part = f"{os.fspath(path)}.part"
    with open(part, "wb") as file:  # noqa: PTH123
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)  # noqa: PTH105
