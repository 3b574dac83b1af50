"""Requests at the tier flex: what is sent, what passes, and what a reply costs."""

from __future__ import annotations

from typing import Any

import pytest

from bactrian.api.arguments import build_model_options
from bactrian.batches.messages import read_anthropic
from bactrian.errors import BudgetReached, Denied, InputError, TryAgain
from bactrian.models.budget import Budget, Price, UsageMeter
from bactrian.models.model import Reply, Request
from bactrian.models.open import ModelOptions, open_model
from bactrian.models.pricing import find_price, make_pricing
from bactrian.models.replies import read_usage
from bactrian.models.scripted import Scripted
from bactrian.records.text import Text
from bactrian.records.turn import Message, Sampling, Usage
from tests.helpers.endpoint import Answer, Endpoint, completion, streamed

PROVIDERS = ["openai", "azure", "gemini", "groq"]


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "GEMINI_API_KEY", "GROQ_API_KEY"):
        monkeypatch.setenv(name, "a-key-of-this-test")


async def ask(name: str, tier: str = "flex", **more: Any) -> Reply:
    model = open_model(name, ModelOptions(tier=tier))
    try:
        return await model.reply(Request([Message("user", Text("Hello"))], session="1", **more))
    finally:
        await model.close()


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_request_asks_for_the_tier_and_the_reply_says_at_which_it_was_served(provider: str) -> None:
    plans = [Answer({**completion("Hello."), "service_tier": tier}) for tier in ("flex", "default", None)]
    async with Endpoint(plans) as endpoint:
        replies = [await ask(f"{provider}:m@{endpoint.url}") for _ in plans]
    assert [request.json["service_tier"] for request in endpoint.requests] == ["flex"] * 3
    assert [reply.usage.tier for reply in replies] == ["flex", "", ""]


async def test_gemini_names_the_tier_in_a_header_and_a_stream_in_its_events() -> None:
    header = Answer(completion("Hello."), headers={"X-Gemini-Service-Tier": "FLEX"})
    chunks = streamed("Hello.").replace(b'{"model"', b'{"service_tier": "flex", "model"')
    stream = Answer(chunks, content_type="text/event-stream")
    async with Endpoint([header, stream]) as endpoint:
        replies = [
            await ask(f"gemini:m@{endpoint.url}"),
            await ask(f"openai:m@{endpoint.url}", on_text=lambda _: None),
        ]
    assert [reply.usage.tier for reply in replies] == ["flex", "flex"]


async def test_without_a_tier_nothing_is_sent_of_it() -> None:
    async with Endpoint() as endpoint:
        await ask(f"openai:m@{endpoint.url}", "")
    assert "service_tier" not in endpoint.requests[0].json


async def test_no_room_at_the_tier_is_a_fault_that_passes() -> None:
    statuses = (429, 498, 503)
    async with Endpoint(
        [Answer({"error": {"message": "no room"}}, status) for status in statuses]
    ) as endpoint:
        for status in statuses:
            with pytest.raises(TryAgain) as caught:
                await ask(f"groq:m@{endpoint.url}")
            assert (caught.value.status, caught.value.overload) == (status, True)


async def test_a_model_without_the_tier_is_refused_and_not_asked_at_the_usual_price() -> None:
    error = {"message": "Unsupported service_tier for this model.", "param": "service_tier"}
    async with Endpoint([Answer({"error": error}, 400)]) as endpoint:
        with pytest.raises(Denied, match=r"at the tier 'flex'.*Unsupported") as caught:
            await ask(f"azure:m@{endpoint.url}")
    assert len(endpoint.requests) == 1
    assert "Leave tier=flex out" in str(caught.value.next)


@pytest.mark.parametrize("name", ["anthropic:m", "vllm:m", "mistral:m"])
def test_a_provider_without_the_tier_is_refused_before_anything_is_sent(name: str) -> None:
    with pytest.raises(InputError, match=r"(?s)no tier 'flex'.*openai, azure, gemini, groq"):
        open_model(name, ModelOptions(tier="flex"))


def test_a_reply_at_flex_is_waited_for_a_quarter_of_an_hour_unless_the_user_says_otherwise() -> None:
    assert build_model_options({}).timeout == 600
    assert build_model_options({"tier": "flex", "timeout": 600.0}).timeout == 900
    assert build_model_options({"tier": "flex", "timeout": 60.0}).timeout == 60


def test_the_price_is_that_of_the_tier_that_the_reply_names() -> None:
    for price in (find_price("openai:gpt-5", None), make_pricing("2/8/0.5", None)("gemini:m")):
        assert price is not None
        usual = price.cost(Usage(1000, 200, 500))
        for tier, factor in (("flex", 0.5), ("batch", 0.5), ("priority", 1.0)):
            assert price.cost(Usage(1000, 200, 500, tier=tier)) == pytest.approx(factor * usual)
            assert price.at(tier).cost(Usage(1000, 200, 500)) == pytest.approx(factor * usual)
    groq = make_pricing("2/8", None)("groq:m")
    assert groq is not None
    assert groq.cost(Usage(1000, tier="flex")) == groq.cost(Usage(1000)) > 0


def test_a_sum_over_several_tiers_is_counted_at_the_usual_price() -> None:
    flex, usual = Usage(10, 5, tier="flex"), Usage(10, 5)
    assert (flex + flex).tier == (Usage() + flex).tier == (flex + Usage()).tier == "flex"
    assert (flex + usual).tier == (usual + flex).tier == ""


def test_tokens_that_are_written_to_the_cache_have_a_price_of_their_own() -> None:
    price = find_price("anthropic:claude-sonnet-4-5", None)
    assert price is not None
    assert price.written == pytest.approx(1.25 * price.prompt)
    written = price.cost(Usage(1_000_000, 0, 200_000, written=500_000))
    assert written == pytest.approx(
        0.3 * price.prompt + 0.2 * (price.cached or 0) + 0.5 * (price.written or 0)
    )
    assert Price(2, 8).cost(Usage(1_000_000, written=1_000_000)) == 2


def test_endpoints_say_what_was_written_to_the_cache() -> None:
    details = {"cached_tokens": 30, "cache_write_tokens": 60}
    told = {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": details}
    assert read_usage(told) == Usage(100, 5, 30, written=60)
    details["cache_write_tokens"] = 71  # more than there are
    assert read_usage(told) == Usage(100, 5, 30)
    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": 30,
        "cache_creation_input_tokens": 60,
        "output_tokens": 5,
    }
    reply = read_anthropic({"model": "m", "content": [], "stop_reason": "end_turn", "usage": usage})
    assert read_usage(reply["usage"]) == Usage(100, 5, 30, written=60)


async def test_a_budget_pays_for_calls_at_the_price_of_the_tier_that_is_asked_for() -> None:
    request = Request([Message("user", Text("Hello"))], Sampling(max_tokens=100), session="1")
    prices = {
        "scripted": Price(0, 10_000, tiers={"flex": 0.5})
    }  # A reply costs up to a dollar, or half of it.
    meter = UsageMeter(max_usd=0.6, prices=prices)
    with pytest.raises(BudgetReached):
        await Budget(Scripted(["Sencha."]), meter).reply(request)
    reply = await Budget(Scripted(["Sencha."]), meter, tier="flex").reply(request)
    assert meter.usd == pytest.approx(prices["scripted"].cost(reply.usage))  # Served at the usual price.
