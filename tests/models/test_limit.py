"""Holding requests back to a pace."""

from __future__ import annotations

import asyncio

import pytest

from bactrian.errors import TryAgain
from bactrian.models.limit import Pace, RateLimit
from bactrian.models.model import Request
from bactrian.models.openai import OpenAI
from bactrian.records.message import Message
from bactrian.records.sampling import Sampling
from bactrian.records.text import Text
from tests.endpoint import Answer, Endpoint

# 38 characters and two quotes: ten tokens as they are estimated.
ASK = Request([Message("user", Text("x" * 38))], Sampling(max_tokens=50))


def test_a_pace_spreads_what_is_taken_evenly() -> None:
    pace = Pace(60, clock=lambda: 100.0)
    assert [pace.take(1) for _ in range(4)] == [0.0, 1.0, 2.0, 3.0]


def test_time_without_requests_is_not_saved_up_for_a_burst() -> None:
    now = 0.0
    pace = Pace(60, clock=lambda: now)
    pace.take(1)
    now = 1000.0
    assert [pace.take(1), pace.take(1)] == [0.0, 1.0]


async def test_requests_wait_for_their_turn_and_all_are_answered() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async with Endpoint() as endpoint:
        within = OpenAI("m", base_url=endpoint.url)
        model = RateLimit(within, requests_per_minute=30, sleep=sleep, clock=lambda: 0.0)
        await asyncio.gather(*(model.reply(ASK) for _ in range(4)))
        await model.close()
    assert slept == [2.0, 4.0, 6.0]
    assert len(endpoint.requests) == 4
    assert model.name == "openai:m"


async def test_tokens_are_estimated_first_and_corrected_by_the_usage() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async with Endpoint() as endpoint:
        within = OpenAI("m", base_url=endpoint.url)
        model = RateLimit(within, tokens_per_minute=60, sleep=sleep, clock=lambda: 0.0)
        await asyncio.gather(model.reply(ASK), model.reply(ASK))
        assert slept == [60.0]  # ten tokens of prompt and fifty of reply, at one a second
        await model.reply(ASK)
        await model.close()
    assert slept == [60.0, 36.0]  # the endpoint counted 11 + 7 tokens in each of the first two


async def test_a_request_that_fails_gives_its_tokens_back() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async with Endpoint([Answer(status=503), "ok"]) as endpoint:
        within = OpenAI("m", base_url=endpoint.url)
        model = RateLimit(within, tokens_per_minute=60, sleep=sleep, clock=lambda: 0.0)
        with pytest.raises(TryAgain):
            await model.reply(ASK)
        await model.reply(ASK)
        await model.close()
    assert slept == []


async def test_no_limit_means_no_wait() -> None:
    async with Endpoint() as endpoint:
        model = RateLimit(OpenAI("m", base_url=endpoint.url))
        assert (await model.reply(ASK)).finish == "stop"
        await model.close()
