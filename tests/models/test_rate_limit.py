"""Holding requests back to a pace."""

from __future__ import annotations

import asyncio

import pytest

from bactrian.errors import Halted, TryAgain
from bactrian.models.limits import RateLimit
from bactrian.models.model import Request, StopSignal
from bactrian.models.openai import OpenAIModel
from bactrian.records.text import Text
from bactrian.records.turn import Message, Sampling
from tests.helpers.endpoint import Answer, Endpoint, Received
from tests.helpers.endpoint import completion as completion_of

# 38 characters and two quotes: ten tokens as they are estimated.
ASK = Request([Message("user", Text("x" * 38))], Sampling(max_tokens=50))


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)
        self.now += seconds


def limited(endpoint: Endpoint, clock: Clock, **limits: float) -> RateLimit:
    return RateLimit(OpenAIModel("m", base_url=endpoint.url), **limits, sleep=clock.sleep, clock=clock)


def used(prompt: int, completion: int) -> Answer:
    reply = completion_of("Done.")
    return Answer(reply | {"usage": {"prompt_tokens": prompt, "completion_tokens": completion}})


async def test_requests_wait_for_their_turn_and_all_are_answered() -> None:
    clock = Clock()
    at: list[float] = []

    def reply(_: Received) -> str:
        at.append(clock.now)
        return "Done."

    async with Endpoint([reply]) as endpoint:
        model = limited(endpoint, clock, requests_per_minute=30)
        for _ in range(4):
            await model.reply(ASK)
        await model.close()
    assert at == [100.0, 102.0, 104.0, 106.0]
    assert model.name == "openai:m"


async def test_two_models_of_one_endpoint_share_its_pace() -> None:
    clock = Clock()
    at: list[float] = []

    def reply(_: Received) -> str:
        at.append(clock.now)
        return "Done."

    async with Endpoint([reply]) as endpoint:
        first = limited(endpoint, clock, requests_per_minute=30)
        other = first.share(OpenAIModel("other", base_url=endpoint.url))
        for _ in range(2):
            await first.reply(ASK)
            await other.reply(ASK)
        await first.close()
        await other.close()
    assert at == [100.0, 102.0, 104.0, 106.0]


async def test_time_without_requests_is_not_saved_up_for_a_burst() -> None:
    clock = Clock()
    async with Endpoint() as endpoint:
        model = limited(endpoint, clock, requests_per_minute=60)
        await model.reply(ASK)
        clock.now += 1000
        await asyncio.gather(*(model.reply(ASK) for _ in range(3)))
        await model.close()
    assert clock.now == 1102.0


async def test_no_minute_sees_more_tokens_than_allowed_whatever_the_requests_could_have_used() -> None:
    clock = Clock()
    at: list[float] = []

    def reply(_: Received) -> Answer:
        at.append(clock.now)
        return used(60, 40)

    could = Request([Message("user", Text("x" * 38))], Sampling(max_tokens=5000))
    async with Endpoint([reply]) as endpoint:
        model = limited(endpoint, clock, tokens_per_minute=600)
        for _ in range(30):
            await model.reply(could)
        await model.close()
    minutes = [sum(begun <= then < begun + 60 for then in at) for begun in at]
    assert max(minutes) <= 6
    assert at[-1] - at[0] <= 1.03 * 29 * 10  # and hardly slower than that


async def test_who_waits_goes_as_soon_as_another_one_used_less_than_it_could() -> None:
    clock = Clock()
    could = Request([Message("user", Text("x" * 38))], Sampling(max_tokens=100_000))
    async with Endpoint([used(10, 10)]) as endpoint:
        model = limited(endpoint, clock, tokens_per_minute=600)
        await asyncio.gather(*(model.reply(could) for _ in range(5)))
        await model.close()
    assert clock.now < 600  # and not hours, as if each had used all


async def test_a_request_that_fails_gives_its_tokens_back() -> None:
    clock = Clock()
    async with Endpoint([Answer(status=503), "ok"]) as endpoint:
        model = limited(endpoint, clock, tokens_per_minute=60)
        with pytest.raises(TryAgain):
            await model.reply(ASK)
        await model.reply(ASK)
        await model.close()
    assert clock.now == 100.0


async def test_who_is_told_to_stop_while_it_waits_sends_nothing() -> None:
    rest = StopSignal()
    async with Endpoint() as endpoint:
        model = RateLimit(OpenAIModel("m", base_url=endpoint.url), requests_per_minute=0.01, sleep=rest.sleep)
        await model.reply(ASK)
        waiting = [asyncio.create_task(model.reply(ASK)) for _ in range(3)]
        await asyncio.sleep(0.05)
        rest.stop()
        for task in waiting:
            with pytest.raises(Halted):
                await asyncio.wait_for(task, 5)
        await model.close()
    assert len(endpoint.requests) == 1


async def test_a_part_of_a_rate_is_whole_requests_and_a_wait_that_began_is_scaled() -> None:
    clock = Clock()
    at: list[float] = []

    def reply(_: Received) -> str:
        at.append(clock.now - 100.0)
        return "Done."

    async with Endpoint([reply]) as endpoint:
        model = limited(endpoint, clock, requests_per_minute=20)
        await model.reply(ASK)  # the next one in 3 s
        model.divide(3, 0.0)  # 6 a minute and not 6.7: the next one in 10 s
        for _ in range(2):
            await model.reply(ASK)
        clock.now += 5.0
        model.divide(1, 0.0)
        await model.reply(ASK)
        model.divide(60, 7.0)  # one in three minutes: no whole request is left in a minute
        for _ in range(2):
            await model.reply(ASK)
        await model.close()
    assert at == pytest.approx([0, 10, 20, 26.5, 206.5, 386.5])


async def test_a_part_of_a_rate_of_tokens_begins_after_the_wait() -> None:
    clock = Clock()
    async with Endpoint([used(10, 50)]) as endpoint:
        model = limited(endpoint, clock, tokens_per_minute=60 / 0.98)
        model.divide(2, 5.0)
        await model.reply(ASK)
        assert clock.now == pytest.approx(105.0)
        await model.reply(ASK)
        assert clock.now == pytest.approx(105.0 + 120.0)
        await model.close()
