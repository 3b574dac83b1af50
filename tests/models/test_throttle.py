"""An endpoint is sent as much at once as it takes without complaint."""

from __future__ import annotations

import asyncio
import time

import pytest

from bactrian.errors import TryAgain
from bactrian.models.model import Choice, Reply, Request
from bactrian.models.throttle import Throttle
from bactrian.records.text import Text
from bactrian.records.usage import Usage


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
        return Reply((Choice(Text("x")),), Usage(), "m")

    async def close(self) -> None:
        pass


async def ask(throttle: Throttle, times: int) -> None:
    for _ in range(times):
        while True:
            try:
                await throttle.reply(Request(()))
                break
            except TryAgain:
                await asyncio.sleep(0)


async def test_no_more_are_in_flight_than_allowed() -> None:
    endpoint = Endpoint(room=1000)
    throttle = Throttle(endpoint, 8)
    await asyncio.gather(*(ask(throttle, 5) for _ in range(50)))
    assert endpoint.most == 8
    assert endpoint.asked == 250


async def test_overload_lowers_the_limit_and_success_raises_it_again() -> None:
    endpoint = Endpoint(room=4)
    throttle = Throttle(endpoint, 64)
    await asyncio.gather(*(ask(throttle, 10) for _ in range(64)))
    assert throttle.limit <= 8
    refused = endpoint.asked - 640
    assert refused < 640
    endpoint.room = 1000
    await asyncio.gather(*(ask(throttle, 60) for _ in range(64)))
    assert throttle.limit > 20


async def test_a_wait_that_one_call_is_told_holds_all_others_back() -> None:
    endpoint = Endpoint(room=0)
    endpoint.after = 0.2
    throttle = Throttle(endpoint, 4)
    with pytest.raises(TryAgain):
        await throttle.reply(Request(()))
    endpoint.room = 10
    assert 0 < throttle.closed_for <= 0.2
    begun = time.monotonic()
    await asyncio.gather(*(throttle.reply(Request(())) for _ in range(4)))
    assert time.monotonic() - begun > 0.1


async def test_who_is_cancelled_while_waiting_gives_its_place_away() -> None:
    endpoint = Endpoint(room=10, seconds=0.05)
    throttle = Throttle(endpoint, 1)
    first, second, third = (asyncio.create_task(throttle.reply(Request(()))) for _ in range(3))
    await asyncio.sleep(0.01)
    second.cancel()
    await asyncio.gather(first, third)
    assert endpoint.asked == 2
