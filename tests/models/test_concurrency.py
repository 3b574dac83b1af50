"""An endpoint is sent as much at once as it takes without complaint."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import pytest

from bactrian.errors import Denied, Halted, ModelError, Refused, TryAgain, UnknownModel, Unreachable
from bactrian.models.limits import ConcurrencyLimit
from bactrian.models.model import Reply, ReplyChoice, Request, StopSignal
from bactrian.models.openai import OpenAIModel
from bactrian.records.text import Text
from bactrian.records.turn import Message, Usage


class Endpoint:
    """Answers after ``seconds``; refuses whatever goes beyond ``room`` at once."""

    name = "endpoint"

    def __init__(self, room: int, seconds: float = 0.002) -> None:
        self.room = room
        self.seconds = seconds
        self.at_once = self.most = self.asked = 0
        self.after: float | None = None

    async def reply(self, request: Request) -> Reply:
        self.asked += 1
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            if self.at_once > self.room:
                fault = TryAgain("too many")
                fault.overload = True
                fault.after = self.after
                raise fault
            await asyncio.sleep(self.seconds)
        finally:
            self.at_once -= 1
        return Reply((ReplyChoice(Text("x")),), Usage(), "m")

    async def close(self) -> None:
        pass


async def ask(throttle: ConcurrencyLimit, times: int) -> None:
    for _ in range(times):
        while True:
            try:
                await throttle.reply(Request(()))
                break
            except TryAgain:
                await asyncio.sleep(0)


async def test_no_more_are_in_flight_than_allowed() -> None:
    endpoint = Endpoint(room=1000)
    throttle = ConcurrencyLimit(endpoint, 8)
    await asyncio.gather(*(ask(throttle, 5) for _ in range(50)))
    assert endpoint.most == 8
    assert endpoint.asked == 250


async def test_connections_that_are_not_accepted_lower_the_limit() -> None:
    """A server that serves two connections and closes all others at once."""
    served = dropped = open_ = 0
    reply = b'{"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}]}'

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served, dropped, open_
        if open_ >= 2:
            dropped += 1
            writer.close()
            return
        open_ += 1
        with suppress(asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0]))
                await asyncio.sleep(0)
                served += 1
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(reply), reply))
        open_ -= 1
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    model = OpenAIModel("m", base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
    throttle = ConcurrencyLimit(model, 9, timed=False)
    lowest = throttle.limit

    async def ask_patiently() -> None:
        nonlocal lowest
        while lowest == 9:
            with suppress(TryAgain):
                await throttle.reply(Request((Message("user", Text("Hello.")),)))
            lowest = min(lowest, throttle.limit)
            await asyncio.sleep(0.01)

    await asyncio.gather(*(ask_patiently() for _ in range(9)))
    await model.close()
    server.close()
    while open_:
        await asyncio.sleep(0.01)
    assert served
    assert dropped


async def test_a_wait_that_one_call_is_told_holds_all_others_back() -> None:
    endpoint = Endpoint(room=0)
    endpoint.after = 0.2
    throttle = ConcurrencyLimit(endpoint, 4)
    with pytest.raises(TryAgain):
        await throttle.reply(Request(()))
    endpoint.room = 10
    assert 0 < throttle.closed_for <= 0.2
    begun = time.monotonic()
    await asyncio.gather(*(throttle.reply(Request(())) for _ in range(4)))
    assert time.monotonic() - begun > 0.1


async def test_who_is_cancelled_while_waiting_gives_its_place_away() -> None:
    endpoint = Endpoint(room=10, seconds=0.05)
    throttle = ConcurrencyLimit(endpoint, 1)
    first, second, third = (asyncio.create_task(throttle.reply(Request(()))) for _ in range(3))
    await asyncio.sleep(0.01)
    second.cancel()
    await asyncio.gather(first, third)
    assert endpoint.asked == 2


class Down(Endpoint):
    """Answers nothing while it is down."""

    down = True

    async def reply(self, request: Request) -> Reply:
        if self.down:
            self.asked += 1
            raise TryAgain("connection refused")
        return await super().reply(request)


@pytest.mark.slow
async def test_an_endpoint_that_answers_nothing_is_tried_by_one_request_after_a_pause() -> None:
    endpoint = Down(room=1000)
    throttle = ConcurrencyLimit(endpoint, 64)
    asking = [asyncio.create_task(ask(throttle, 1)) for _ in range(64)]
    await asyncio.sleep(0.2)
    assert throttle.silent
    assert 0 < throttle.closed_for <= 1.0
    assert endpoint.asked <= 64
    endpoint.asked = 0
    await asyncio.sleep(throttle.closed_for + 0.2)
    assert endpoint.asked == 1
    assert throttle.closed_for > 1.0
    endpoint.down = False
    await asyncio.gather(*asking)
    assert not throttle.silent
    assert throttle.limit == 64


class Refusing(Endpoint):
    """Refuses everything with one error, after a moment; without an error it answers."""

    def __init__(self, error: ModelError | None) -> None:
        super().__init__(room=1000)
        self.error = error

    async def reply(self, request: Request) -> Reply:
        reply = await super().reply(request)
        if self.error is not None:
            raise self.error
        return reply


@pytest.mark.parametrize(
    "error", [Denied("401"), UnknownModel("404"), Unreachable("refused"), Refused("400")]
)
async def test_what_is_wrong_for_all_is_found_out_by_one_request(error: ModelError) -> None:
    endpoint = Refusing(error)
    throttle = ConcurrencyLimit(endpoint, 64, proven=False)
    told = await asyncio.gather(*(throttle.reply(Request(())) for _ in range(50)), return_exceptions=True)
    assert told == [error] * 50
    assert endpoint.asked == 1


async def test_those_who_waited_are_let_go_a_few_at_a_time() -> None:
    endpoint = Endpoint(room=1000, seconds=0.05)
    throttle = ConcurrencyLimit(endpoint, 1000, proven=False)
    asking = [asyncio.create_task(throttle.reply(Request(()))) for _ in range(500)]
    await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(0)
    assert endpoint.asked < 500
    await asyncio.gather(*asking)
    assert endpoint.asked == 500


async def test_a_key_that_is_revoked_in_mid_run_is_told_to_all_that_wait() -> None:
    endpoint = Refusing(None)
    throttle = ConcurrencyLimit(endpoint, 4, proven=False)
    await ask(throttle, 1)
    endpoint.error = Denied("401")
    told = await asyncio.gather(*(throttle.reply(Request(())) for _ in range(50)), return_exceptions=True)
    assert told == [endpoint.error] * 50
    assert endpoint.asked == 1 + 4


async def test_a_wait_beyond_the_longest_is_cut_for_all() -> None:
    endpoint = Endpoint(room=0)
    endpoint.after = 3600
    throttle = ConcurrencyLimit(endpoint, 8, longest_wait=0.05)
    with pytest.raises(TryAgain):
        await throttle.reply(Request(()))
    assert 0 < throttle.closed_for <= 0.05
    endpoint.room = 8
    await throttle.reply(Request(()))


async def test_a_stop_lets_go_of_whoever_waits_and_of_nobody_in_flight() -> None:
    rest = StopSignal()
    endpoint = Endpoint(room=10, seconds=0.05)
    throttle = ConcurrencyLimit(endpoint, 2, stop_signal=rest)
    asking = [asyncio.create_task(throttle.reply(Request(()))) for _ in range(6)]
    await asyncio.sleep(0.01)
    rest.stop()
    outcomes = await asyncio.gather(*asking, return_exceptions=True)
    assert [isinstance(outcome, Halted) for outcome in outcomes] == [False] * 2 + [True] * 4
    assert endpoint.asked == 2
    await throttle.reply(Request(()))  # room was given back
