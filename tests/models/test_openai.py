"""What goes out to a chat-completions server, and what is made of its good replies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bactrian.errors import BadReply, ContextFull, Denied, InputError
from bactrian.models.http import Timeouts
from bactrian.models.model import Request, ResponseFormat
from bactrian.models.openai import OFFICIAL, OpenAIModel
from bactrian.models.wire import build_request_parts, encode_options
from bactrian.records.text import Text
from bactrian.records.turn import Message, Sampling, Usage
from tests.helpers.endpoint import Answer, Endpoint, completion

ASK = Request([Message("system", Text("Be brief.")), Message("user", Text('Say "hé"\n\U0001f42b'))])


@asynccontextmanager
async def asking(endpoint: Endpoint, **options: Any) -> AsyncIterator[OpenAIModel]:
    model = OpenAIModel("camel-1", base_url=endpoint.url, **options)
    try:
        yield model
    finally:
        await model.close()


def read_answer(text: str) -> str:
    return str(json.loads(text)["solution"])


FORM = ResponseFormat("solution", {"type": "object"}, "", read_answer)


async def test_the_request_holds_the_model_the_messages_and_nothing_unasked() -> None:
    async with Endpoint() as endpoint, asking(endpoint) as model:
        await model.reply(ASK)
    received = endpoint.requests[0]
    assert received.path == "/v1/chat/completions"
    assert received.headers["Content-Type"] == "application/json"
    assert received.json == {
        "model": "camel-1",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": 'Say "hé"\n\U0001f42b'},
        ],
    }


async def test_every_sampling_parameter_but_the_repeat_penalty_is_sent() -> None:
    sampling = Sampling(0.5, 0.9, 64, 7, ("END", "STOP"), repeat_penalty=1.3)
    async with Endpoint() as endpoint, asking(endpoint) as model:
        await model.reply(Request(ASK.messages, sampling, n=3))
    sent = endpoint.requests[0].json
    del sent["model"], sent["messages"]
    assert sent == {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 64,
        "seed": 7,
        "stop": ["END", "STOP"],
        "n": 3,
    }


def test_the_official_endpoint_is_told_the_longest_reply_in_its_newer_word() -> None:
    request = Request([], Sampling(max_tokens=5))
    parts, _ = build_request_parts("m", request, options=encode_options(request, dialect=OFFICIAL))
    assert json.loads(b"".join(parts)) == {"model": "m", "messages": [], "max_completion_tokens": 5}


def test_a_longer_history_begins_with_the_bytes_of_the_shorter_one() -> None:
    longer = Request([*ASK.messages, Message("assistant", Text("hé"))])
    short, long = (
        b"".join(build_request_parts("m", request, options=encode_options(request))[0])
        for request in (ASK, longer)
    )
    assert long.startswith(short.removesuffix(b"]}"))


async def test_a_good_reply_is_read_whole() -> None:
    async with Endpoint(["Solution: ü. Next request."]) as endpoint, asking(endpoint) as model:
        reply = await model.reply(ASK)
    assert reply.text == "Solution: ü. Next request."
    assert reply.finish == "stop"
    assert reply.usage == Usage(11, 7, 4)
    assert reply.model == "served-model"
    assert json.loads(reply.raw)["id"] == "chatcmpl-1"
    assert reply.first_token is None
    assert model.name == "openai:camel-1"


async def test_all_alternatives_come_back() -> None:
    async with Endpoint([completion("one", "two", "three")]) as endpoint, asking(endpoint) as model:
        reply = await model.reply(Request(ASK.messages, n=3))
    assert [choice.text for choice in reply.choices] == ["one", "two", "three"]


@pytest.mark.parametrize("ending", ["/v1", "/v1/", "/v1//"])
async def test_a_base_url_may_end_with_a_slash(ending: str) -> None:
    async with Endpoint() as endpoint:
        model = OpenAIModel("m", base_url=endpoint.url.removesuffix("/v1") + ending)
        await model.reply(ASK)
        await model.close()
    assert endpoint.requests[0].path == "/v1/chat/completions"


@pytest.mark.parametrize(
    "base_url",
    [
        "",
        "localhost:8000",
        "ftp://host/v1",
        "ftp://host:21/v1",
        "http://",
        "http://[::1/v1",
        "http://ho st/v1",
        "http://host\x0bX: y/v1",
        "http://host/v1 HTTP/1.1\r\nX: y",
    ],
)
def test_a_base_url_that_is_none_is_an_input_error(base_url: str) -> None:
    with pytest.raises(InputError, match="not the address of an endpoint"):
        OpenAIModel("m", base_url=base_url)


async def test_the_official_endpoint_is_not_asked_without_a_key() -> None:
    with pytest.raises(Denied, match="needs a key") as caught:
        await OpenAIModel("gpt-4o-mini").reply(ASK)
    assert "OPENAI_API_KEY" in str(caught.value)


async def test_a_key_that_no_header_can_carry_is_refused_before_any_request() -> None:
    async with Endpoint() as endpoint, asking(endpoint, key="sk-1\r\nHost: x") as model:
        with pytest.raises(Denied, match="characters"):
            await model.reply(ASK)
    assert endpoint.requests == []


async def test_the_key_is_sent_and_a_local_server_needs_none() -> None:
    async with Endpoint() as endpoint:
        async with asking(endpoint, key=" sk-secret\n") as model:
            await model.reply(ASK)
        async with asking(endpoint) as model:
            await model.reply(ASK)
    with_key, without = endpoint.requests
    assert with_key.headers["Authorization"] == "Bearer sk-secret"
    assert "Authorization" not in without.headers


async def test_a_loopback_endpoint_is_reached_past_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    async with Endpoint() as endpoint, asking(endpoint) as model:
        assert (await model.reply(ASK)).finish == "stop"


async def test_another_host_is_reached_through_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Endpoint() as proxy:
        address = proxy.url.removesuffix("/v1").replace("http://", "http://me:pass@")
        monkeypatch.setenv("http_proxy", address)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        model = OpenAIModel("m", base_url="http://models.invalid/v1")
        reply = await model.reply(ASK)
        await model.close()
    assert reply.finish == "stop"
    assert proxy.requests[0].headers["Host"] == "models.invalid"
    assert proxy.requests[0].headers["Proxy-Authorization"].startswith("Basic ")


async def test_no_pool_limit_keeps_requests_from_being_in_flight_together() -> None:
    together = 300
    all_here = asyncio.Event()

    async def when_all_are_here(_: object) -> str:
        if len(endpoint.requests) == together:
            all_here.set()
        await all_here.wait()
        return "ok"

    async with Endpoint([when_all_are_here]) as endpoint, asking(endpoint) as model:
        replies = await asyncio.gather(*(model.reply(ASK) for _ in range(together)))
    assert len(replies) == together


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("tool_calls", "tool_calls"),
        ("function_call", "tool_calls"),
        ("abort", "other"),
        (None, "other"),
        ([], "other"),
    ],
)
async def test_finish_reasons_are_mapped(reason: Any, finish: str) -> None:
    async with Endpoint([completion("x", finish=reason)]) as endpoint, asking(endpoint) as model:
        assert (await model.reply(ASK)).finish == finish


@pytest.mark.parametrize("content", [None, "", " \n"])
async def test_an_empty_reply_is_given_back_as_it_is(content: str | None) -> None:
    async with Endpoint([completion(content)]) as endpoint, asking(endpoint) as model:
        assert (await model.reply(ASK)).text == (content or "")


async def test_parts_of_text_are_joined_and_other_parts_left_out() -> None:
    parts = [{"type": "text", "text": "one "}, {"type": "image_url"}, {"type": "text", "text": "two"}]
    reply = completion("")
    reply["choices"][0]["message"]["content"] = parts
    async with Endpoint([reply]) as endpoint, asking(endpoint) as model:
        assert (await model.reply(ASK)).text == "one two"


async def test_a_refusal_is_told_from_an_answer() -> None:
    async with (
        Endpoint([completion(None, refusal="I can't help."), completion("fine", refusal=None)]) as endpoint,
        asking(endpoint) as model,
    ):
        refused, fine = await model.reply(ASK), await model.reply(ASK)
    assert (refused.text, refused.choices[0].refusal) == ("I can't help.", True)
    assert (fine.text, fine.choices[0].refusal) == ("fine", False)


@pytest.mark.parametrize(
    "body",
    [
        json.dumps(completion("a b")).encode().replace(b"a b", b"a\xff\xfeb"),
        json.dumps(completion("a b")).encode().replace(b"a b", rb"a\ud800b"),
        json.dumps(completion("a b")).encode().replace(b"a b", rb"a\u0000b"),
    ],
    ids=["invalid UTF-8", "half a surrogate pair", "NUL"],
)
async def test_what_no_store_can_hold_is_replaced_and_marked(body: bytes) -> None:
    async with Endpoint([Answer(body)]) as endpoint, asking(endpoint) as model:
        reply = await model.reply(ASK)
    assert reply.choices[0].lossy
    assert reply.text[0] == "a"
    assert reply.text[-1] == "b"
    assert "\0" not in reply.text
    reply.text.encode()
    assert reply.raw == body


@pytest.mark.parametrize(
    "body",
    [
        b"\xef\xbb\xbf" + json.dumps(completion("a b")).encode(),
        json.dumps(completion("a b")).encode().replace(b"a b", b"a\nb"),
        json.dumps(completion("a \U0001f42b"), ensure_ascii=True).encode(),
    ],
    ids=["byte-order mark", "bare newline in a string", "pair of surrogates"],
)
async def test_slovenly_json_is_read_without_loss(body: bytes) -> None:
    async with Endpoint([Answer(body)]) as endpoint, asking(endpoint) as model:
        assert not (await model.reply(ASK)).choices[0].lossy


@pytest.mark.parametrize(
    "usage",
    [
        None,
        [],
        {},
        {"prompt_tokens": 3},
        {"prompt_tokens": -1, "completion_tokens": 2},
        {"prompt_tokens": "3", "completion_tokens": 2},
        {"prompt_tokens": float("nan"), "completion_tokens": 2},
        {"prompt_tokens": 10**12, "completion_tokens": 2},
        {"prompt_tokens": True, "completion_tokens": 2},
    ],
)
async def test_unusable_usage_is_estimated_and_says_so(usage: Any) -> None:
    reply = completion("x" * 40) | {"usage": usage}
    async with Endpoint([reply]) as endpoint, asking(endpoint) as model:
        counted = (await model.reply(ASK)).usage
    assert counted.estimated
    assert counted.completion == 10
    assert counted.prompt == round(len(endpoint.requests[0].body) / 4)


async def test_a_cached_count_that_makes_no_sense_is_ignored() -> None:
    details = {"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 9}}
    async with Endpoint([completion("x") | {"usage": details}]) as endpoint, asking(endpoint) as model:
        assert (await model.reply(ASK)).usage == Usage(5, 1, 0)


async def test_a_form_is_asked_for_strictly_and_read_back() -> None:
    pieces: list[str] = []
    async with Endpoint([completion('{"solution": "Done."}')]) as endpoint, asking(endpoint) as model:
        reply = await model.reply(Request(ASK.messages, response_format=FORM, on_text=pieces.append))
    assert reply.text == "Done."
    assert pieces == ["Done."]
    sent = endpoint.requests[0].json
    assert "stream" not in sent
    assert sent["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "solution", "strict": True, "schema": {"type": "object"}},
    }


@pytest.mark.parametrize("text", ["Done.", "{}x", '["a"]'[:-1]])
async def test_a_reply_that_breaks_its_form_is_a_bad_reply(text: str) -> None:
    async with Endpoint([completion(text)]) as endpoint, asking(endpoint) as model:
        with pytest.raises(BadReply, match="does not follow the response format 'solution'") as caught:
            await model.reply(Request(ASK.messages, response_format=FORM))
    assert caught.value.sample == text.encode()
    assert "validation error" not in str(caught.value)
    assert "pydantic" not in str(caught.value)


async def test_a_form_cut_short_is_a_bad_reply_that_names_max_tokens() -> None:
    async with Endpoint([completion('{"solu', finish="length")]) as endpoint, asking(endpoint) as model:
        with pytest.raises(BadReply) as caught:
            await model.reply(Request(ASK.messages, response_format=FORM))
    assert "max_tokens" in str(caught.value)


async def test_a_refusal_needs_no_form() -> None:
    async with Endpoint([completion(None, refusal="No.")]) as endpoint, asking(endpoint) as model:
        reply = await model.reply(Request(ASK.messages, response_format=FORM))
    assert (reply.text, reply.choices[0].refusal) == ("No.", True)


async def test_what_cannot_fit_a_known_window_is_not_sent() -> None:
    long = Request([Message("user", Text("word " * 400))], Sampling(max_tokens=100))
    async with Endpoint() as endpoint, asking(endpoint, limits=Timeouts(window=500)) as model:
        with pytest.raises(ContextFull, match="needs 630 tokens with room for its reply; the window has 500"):
            await model.reply(long)
    assert endpoint.requests == []


async def test_the_window_is_reckoned_with_the_tokens_the_endpoint_counted_last() -> None:
    counted = {"prompt_tokens": 400, "completion_tokens": 1}
    ask = Request([Message("user", Text("word " * 100))])
    async with (
        Endpoint([completion("x") | {"usage": counted}]) as endpoint,
        asking(endpoint, limits=Timeouts(window=500)) as model,
    ):
        await model.reply(ask)
        with pytest.raises(ContextFull):
            await model.reply(Request([*ask.messages, Message("assistant", Text("word " * 40))]))
    assert len(endpoint.requests) == 1


async def test_the_models_of_an_endpoint_can_be_listed() -> None:
    async with Endpoint(models=["a", "b"]) as endpoint, asking(endpoint) as model:
        assert await model.models() == ("a", "b")


async def test_nothing_is_opened_before_the_first_request_and_close_can_come_first() -> None:
    model = OpenAIModel("m", base_url="http://127.0.0.1:1/v1")
    await model.close()


def test_each_event_loop_has_a_model_of_its_own() -> None:
    async def ask() -> str:
        async with Endpoint(["Hello."]) as endpoint:
            model = OpenAIModel("m", base_url=endpoint.url)
            reply = await model.reply(ASK)
            await model.close()
            return reply.text

    assert [asyncio.run(ask()) for _ in range(2)] == ["Hello.", "Hello."]
