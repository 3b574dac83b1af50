"""Counting tokens and money, and stopping in time."""

from __future__ import annotations

import asyncio

import pytest

from bactrian.errors import BudgetReached, InputError, ModelError, TryAgain
from bactrian.models.budget import Budget, Price, UsageMeter
from bactrian.models.model import Request
from bactrian.models.openai import OpenAIModel
from bactrian.records.text import Text
from bactrian.records.turn import Message, Sampling, Usage
from tests.helpers.endpoint import Answer, Endpoint, Raw
from tests.helpers.endpoint import completion as completion_of

# 38 characters and two quotes: ten tokens as they are estimated, and sixty with the longest reply.
ASK = Request([Message("user", Text("x" * 38))], Sampling(max_tokens=50))
PRICES = {"openai:m": Price(prompt=1.0, completion=2.0, cached=0.5)}


def test_cached_tokens_have_their_own_price() -> None:
    usage = Usage(prompt=1_000_000, completion=1_000_000, cached=400_000)
    assert Price(1.0, 2.0, 0.5).cost(usage) == pytest.approx(0.6 + 0.2 + 2.0)
    assert Price(1.0, 2.0).cost(usage) == pytest.approx(3.0)


async def test_several_models_add_up_on_one_meter() -> None:
    meter = UsageMeter(prices=PRICES)
    async with Endpoint() as endpoint:
        for name in ("m", "other"):
            model = Budget(OpenAIModel(name, base_url=endpoint.url), meter)
            await model.reply(ASK)
            await model.close()
    assert meter.used == Usage(22, 14, 8)
    assert meter.usd == pytest.approx((7 * 1.0 + 4 * 0.5 + 7 * 2.0) / 1e6)


async def test_a_call_that_could_pass_the_tokens_is_not_sent() -> None:
    meter = UsageMeter(max_tokens=70)
    async with Endpoint() as endpoint:
        model = Budget(OpenAIModel("m", base_url=endpoint.url), meter)
        for _ in range(3):
            await model.reply(ASK)
        assert meter.used.total == 54
        with pytest.raises(BudgetReached, match="of the limit of 70 are left") as caught:
            await model.reply(ASK)
        await model.close()
    # The later calls have no room for the longest reply that they may have, and ask for twice the longest one so far.
    assert [request.json["max_tokens"] for request in endpoint.requests] == [50, 18, 18]
    assert caught.value.exit_code == 3
    assert "Raise the limit" in str(caught.value)


async def test_a_call_that_could_pass_the_money_is_not_sent() -> None:
    meter = UsageMeter(max_usd=0.00012, prices=PRICES)
    async with Endpoint() as endpoint:
        model = Budget(OpenAIModel("m", base_url=endpoint.url), meter)
        for _ in range(5):
            await model.reply(ASK)
        with pytest.raises(BudgetReached, match=r"of the limit of \$0\.00012\d* is left"):
            await model.reply(ASK)
        await model.close()
    assert meter.usd == pytest.approx(5 * 23e-6)


async def test_calls_in_flight_together_do_not_pass_the_limit_together() -> None:
    meter = UsageMeter(max_tokens=130)
    async with Endpoint() as endpoint:
        model = Budget(OpenAIModel("m", base_url=endpoint.url), meter)
        outcomes = await asyncio.gather(*(model.reply(ASK) for _ in range(9)), return_exceptions=True)
        assert [isinstance(outcome, BudgetReached) for outcome in outcomes] == [False] * 7 + [True] * 2
        await model.close()
    assert meter.used.total == 7 * 18


async def test_calls_that_other_processes_leave_no_room_for_do_not_wait_for_each_other() -> None:
    meter = UsageMeter(max_tokens=1_000)
    asked: list[tuple[int, float]] = []

    async def grant(held: tuple[int, float]) -> bool:
        asked.append(held)
        await asyncio.sleep(0.001 * len(asked))
        return len(asked) == 1

    meter.grant, meter.count_wave = grant, lambda: 5
    async with Endpoint([Answer("ok", delay=0.1)]) as endpoint:
        model = Budget(OpenAIModel("m", base_url=endpoint.url), meter)
        async with asyncio.timeout(10):
            outcomes = await asyncio.gather(*(model.reply(ASK) for _ in range(5)), return_exceptions=True)
        await model.close()
    assert [isinstance(outcome, BudgetReached) for outcome in outcomes] == [False] + [True] * 4
    assert meter.in_flight == 0
    # Each of the four asks while the first call is in flight, and once more when it has ended.
    assert len(asked) <= 9


async def test_a_failed_call_is_counted_as_unknown_and_gives_back_what_it_held() -> None:
    meter = UsageMeter(max_tokens=70, max_usd=1.0, prices=PRICES)
    async with Endpoint([Answer(status=503), "ok"]) as endpoint:
        model = Budget(OpenAIModel("m", base_url=endpoint.url), meter)
        with pytest.raises(TryAgain):
            await model.reply(ASK)
        assert (meter.used, meter.usd, meter.unknown) == (Usage(), 0.0, 1)
        await model.reply(ASK)
        await model.close()
    assert meter.used.total == 18


async def test_a_limit_in_dollars_needs_a_price() -> None:
    async with Endpoint() as endpoint:
        model = Budget(OpenAIModel("new", base_url=endpoint.url), UsageMeter(max_usd=1.0, prices=PRICES))
        with pytest.raises(InputError, match="requires the price of 'openai:new'"):
            await model.reply(ASK)
        await model.close()
    assert endpoint.requests == []


def counted(prompt: int, completion: int) -> Answer:
    reply = completion_of("Done.")
    return Answer(reply | {"usage": {"prompt_tokens": prompt, "completion_tokens": completion}})


async def test_an_endpoint_that_counts_more_tokens_than_were_estimated_does_not_pass_the_limit() -> None:
    long = Request([Message("user", Text("x" * 798))], Sampling(max_tokens=100))  # 200 tokens as estimated
    meter = UsageMeter(max_tokens=3000)
    async with Endpoint([counted(600, 100)]) as endpoint:
        model = Budget(OpenAIModel("m", base_url=endpoint.url), meter)
        outcomes: list[object] = []
        for _ in range(3):
            outcomes += await asyncio.gather(*(model.reply(long) for _ in range(2)), return_exceptions=True)
        await model.close()
    assert meter.used.total == 2800
    assert [isinstance(outcome, BudgetReached) for outcome in outcomes] == [False] * 4 + [True] * 2


async def test_without_a_longest_reply_a_call_is_taken_to_bring_the_longest_one_so_far() -> None:
    open_ended = Request([Message("user", Text("x" * 38))])
    meter = UsageMeter(max_tokens=1100)
    async with Endpoint([counted(10, 500)]) as endpoint:
        model = Budget(OpenAIModel("m", base_url=endpoint.url), meter)
        await model.reply(open_ended)
        await model.reply(open_ended)
        with pytest.raises(BudgetReached):
            await model.reply(open_ended)
        await model.close()
    assert meter.used.total == 1020


@pytest.mark.parametrize(
    "usage",
    [None, {}, {"prompt_tokens": 0, "completion_tokens": 0}, {"prompt_tokens": 1, "completion_tokens": 1}],
    ids=["missing", "empty", "zero", "one"],
)
async def test_replies_longer_than_asked_for_without_usage_do_not_pass_the_limit(usage: object) -> None:
    meter = UsageMeter(max_tokens=20_000)
    long = "word " * 800  # a thousand tokens, where fifty were allowed
    async with Endpoint([Answer(completion_of(long) | {"usage": usage})]) as endpoint:
        model = Budget(OpenAIModel("m", base_url=endpoint.url), meter)
        outcomes = await asyncio.gather(*(model.reply(ASK) for _ in range(40)), return_exceptions=True)
        await model.close()
    answered = sum(not isinstance(outcome, BaseException) for outcome in outcomes)
    assert {type(outcome) for outcome in outcomes if isinstance(outcome, BaseException)} == {BudgetReached}
    assert 0.9 * 20_000 < answered * 1000 <= 20_000
    assert meter.used.total <= 20_000


async def test_the_limit_is_used_up_where_replies_are_shorter_than_they_may_be() -> None:
    ask = Request([Message("user", Text("x" * 38))], Sampling(max_tokens=1000))
    meter = UsageMeter(max_tokens=20_000)
    async with Endpoint([counted(10, 90)]) as endpoint:
        model = Budget(OpenAIModel("m", base_url=endpoint.url), meter)
        await asyncio.gather(*(model.reply(ask) for _ in range(250)), return_exceptions=True)
        await model.close()
    assert 0.9 * 20_000 < meter.used.total <= 20_000


async def test_one_count_that_was_odd_does_not_end_a_run_early() -> None:
    long = Request([Message("user", Text("x" * 798))], Sampling(max_tokens=100))
    meter = UsageMeter(max_tokens=100_000)
    async with Endpoint([counted(9_000, 100), *[counted(200, 100)] * 100, counted(200, 100)]) as endpoint:
        model = Budget(OpenAIModel("m", base_url=endpoint.url), meter)
        await asyncio.gather(*(model.reply(long) for _ in range(400)), return_exceptions=True)
        await model.close()
    assert 0.95 * 100_000 < meter.used.total <= 100_000


async def test_what_failed_replies_say_that_they_cost_is_counted() -> None:
    meter = UsageMeter(max_tokens=10_000)
    empty = {"choices": [], "usage": {"prompt_tokens": 700, "completion_tokens": 300}}
    cut = Raw((b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n", b"x" * 4000))
    async with Endpoint([empty, cut, Answer(status=503)]) as endpoint:
        model = Budget(OpenAIModel("m", base_url=endpoint.url), meter)
        for used in (1000, 2000, 2000):
            with pytest.raises(ModelError):
                await model.reply(ASK)
            assert used <= meter.used.total < used + 100
        await model.close()
    assert meter.unknown == 3
