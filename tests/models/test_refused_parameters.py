"""A parameter that a server refuses by name is left out, and reported."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from bactrian.errors import Refused
from bactrian.models.model import Request
from bactrian.models.openai import OpenAIModel
from bactrian.records.text import Text
from bactrian.records.turn import Message, Sampling
from tests.helpers.endpoint import Answer, Endpoint, Plan, Received

ASK = Request(
    [Message("user", Text("Go on."))],
    Sampling(0.2, 0.9, 64, seed=7, reasoning_effort="low", extra={"top_k": 40}),
)


def refuses(error: Any, status: int = 400) -> Answer:
    return Answer(error if isinstance(error, str) else {"error": error}, status=status)


def openai(param: str, message: str) -> Answer:
    return refuses(
        {"message": message, "type": "invalid_request_error", "param": param, "code": "unsupported"}
    )


@pytest.mark.parametrize(
    ("answer", "left_out"),
    [
        (
            openai("temperature", "'temperature' does not support 0.2 with this model."),
            "temperature",
        ),
        (openai("top_p", "Unsupported parameter: 'top_p' is not supported with this model."), "top_p"),
        (refuses({"message": "Unrecognized request argument supplied: seed"}), "seed"),
        (
            Answer(
                {"message": {"detail": [{"type": "extra_forbidden", "loc": ["body", "reasoning_effort"]}]}},
                status=422,
            ),
            "reasoning_effort",
        ),
        (
            Answer({"detail": [{"loc": ["body", "top_k"], "msg": "Extra inputs not permitted"}]}, status=422),
            "top_k",
        ),
        (
            refuses({"message": "No endpoints found that support these parameters: reasoning_effort"}, 404),
            "reasoning_effort",
        ),
        (refuses('"qwen" does not support thinking'), "reasoning_effort"),
        (refuses({"message": "`temperature` and `top_p` cannot both be specified. Use one."}), "top_p"),
    ],
)
async def test_it_is_left_out_from_then_on(answer: Answer, left_out: str) -> None:
    told: list[str] = []
    async with Endpoint([answer, "Yes.", "Again."]) as endpoint:
        model = OpenAIModel("m", base_url=endpoint.url, report=told.append)
        assert (await model.reply(ASK)).text == "Yes."
        assert (await model.reply(ASK)).text == "Again."
        await model.close()
    first, *others = [request.json for request in endpoint.requests]
    assert len(others) == 2
    for other in others:
        assert other == {name: value for name, value in first.items() if name != left_out}
    (warning,) = told
    assert f"does not accept {left_out!r}; it is left out from now on" in warning


@pytest.mark.parametrize(
    "error",
    [
        {"message": "'seed' is not supported.", "type": "BadRequestError", "param": None, "code": 400},
        {"message": "'seed' is not supported.", "code": "400"},
        {"message": "'seed' is not supported.", "type": "invalid_request_error", "code": "unsupported"},
        {"message": "'seed' is not supported.", "param": "seed"},
    ],
)
async def test_a_refusal_in_mid_stream_takes_back_the_text_and_is_asked_without_it_once(error: Any) -> None:
    half = b'data: {"choices": [{"index": 0, "delta": {"content": "Half"}}]}\n\n'
    refusal = half + b"data: %b\n\ndata: [DONE]\n\n" % json.dumps({"error": error}).encode()
    shown: list[str] = []
    request = replace(ASK, on_text=shown.append, on_restart=shown.clear)
    async with Endpoint(
        [Answer(refusal, content_type="text/event-stream"), "All of it.", "More."]
    ) as endpoint:
        model = OpenAIModel("m", base_url=endpoint.url)
        assert (await model.reply(request)).text == "All of it."
        assert "".join(shown) == "All of it."
        assert (await model.reply(request)).text == "More."
        await model.close()
    assert ["seed" in received.json for received in endpoint.requests] == [True, False, False]


@pytest.mark.parametrize("name", ["seed", "max_tokens"])
async def test_several_requests_refused_at_the_same_time_report_it_once(name: str) -> None:
    waiting = asyncio.Barrier(3)

    async def reply(request: Received) -> Plan:
        if name not in request.json:
            return "Yes."
        await waiting.wait()
        return openai(name, f"Unsupported parameter: {name!r} is not supported with this model.")

    told: list[str] = []
    async with Endpoint([reply]) as endpoint:
        model = OpenAIModel("m", base_url=endpoint.url, report=told.append)
        replies = await asyncio.gather(*(model.reply(ASK) for _ in range(3)))
        await model.close()
    assert [reply.text for reply in replies] == ["Yes."] * 3
    assert len(endpoint.requests) == 6
    assert len(told) == 1


async def test_the_other_word_for_the_length_is_tried_before_none() -> None:
    old = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    new = "Unsupported parameter: 'max_completion_tokens' is not supported."
    told: list[str] = []
    plan = [openai("max_tokens", old), openai("max_completion_tokens", new), "Yes."]
    async with Endpoint(plan) as endpoint:
        model = OpenAIModel("m", base_url=endpoint.url, report=told.append)
        await model.reply(ASK)
        await model.close()
    lengths = [{name for name in request.json if name.startswith("max_")} for request in endpoint.requests]
    assert lengths == [{"max_tokens"}, {"max_completion_tokens"}, set()]
    assert len(told) == 2


async def test_what_is_refused_with_and_without_it_is_refused() -> None:
    answer = openai("temperature", "'temperature' is not supported")
    async with Endpoint([answer, answer]) as endpoint:
        model = OpenAIModel("m", base_url=endpoint.url)
        with pytest.raises(Refused):
            await model.reply(ASK)
        await model.close()
    assert len(endpoint.requests) == 2


@pytest.mark.parametrize(
    "answer",
    [
        refuses({"message": "Invalid 'temperature': decimal above maximum value.", "param": "temperature"}),
        openai("messages", "Unsupported role in 'messages'."),
        refuses({"message": "response_format of this type is not supported"}),
    ],
)
async def test_what_is_wrong_otherwise_is_told(answer: Answer) -> None:
    async with Endpoint([answer]) as endpoint:
        model = OpenAIModel("m", base_url=endpoint.url)
        with pytest.raises(Refused):
            await model.reply(ASK)
        await model.close()
    assert len(endpoint.requests) == 1
