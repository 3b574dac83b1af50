"""Tool calls on the wire, and in words for models that have none."""

from __future__ import annotations

import json

import pytest

from bactrian.errors import BadReply
from bactrian.models.model import Request, ResponseFormat
from bactrian.models.openai import OpenAIModel
from bactrian.models.scripted import Scripted
from bactrian.models.text_tools import read_calls, write_calls_as_text
from bactrian.records.text import Text
from bactrian.records.turn import Invocation, Message, Tool
from tests.helpers.endpoint import Calls, Endpoint, Plan, completion

WEATHER = Tool(
    "weather",
    "Tells the weather.",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}},
        "required": ["city"],
    },
)
NOW = Tool("now", "Tells the time.", {"type": "object", "properties": {}})
ASK = Message("user", Text("What is it like in Oslo?"))


def asking(*messages: Message, **more: object) -> Request:
    return Request(messages=messages or (ASK,), tools=(WEATHER, NOW), **more)  # type: ignore[arg-type]


async def replied(plan: Plan, request: Request) -> tuple[tuple[Invocation, ...], str, Endpoint]:
    async with Endpoint([plan]) as endpoint:
        model = OpenAIModel("any", base_url=endpoint.url)
        try:
            reply = await model.reply(request)
        finally:
            await model.close()
        return reply.choices[0].calls, reply.text, endpoint


async def test_an_endpoint_is_told_of_the_tools_by_their_schemas() -> None:
    _, _, endpoint = await replied("Rain.", asking())
    assert endpoint.requests[0].json["tools"] == [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            },
        }
        for tool in (WEATHER, NOW)
    ]
    assert "tool_choice" not in endpoint.requests[0].json


async def test_a_request_that_may_not_call_says_so_and_still_names_the_tools_that_were_called() -> None:
    _, _, endpoint = await replied("Rain.", asking(allow_tool_calls=False))
    assert endpoint.requests[0].json["tool_choice"] == "none"
    assert len(endpoint.requests[0].json["tools"]) == 2


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_calls_of_a_reply_are_read(streamed: bool) -> None:
    pieces: list[str] = []
    calls, text, _ = await replied(
        Calls((("weather", {"city": "Oslo", "days": 2}), ("now", {})), "Let me look."),
        asking(on_text=pieces.append if streamed else None),
    )
    assert [(call.id, call.name, json.loads(call.arguments)) for call in calls] == [
        ("call_weather_0", "weather", {"city": "Oslo", "days": 2}),
        ("call_now_1", "now", {}),
    ]
    assert text == "Let me look."
    assert pieces == (["Let me look."] if streamed else [])


async def test_arguments_that_a_server_sends_as_an_object_are_read_too() -> None:
    call = {"id": "a", "function": {"name": "weather", "arguments": {"city": "Oslo"}}}
    calls, text, _ = await replied(completion(None, tool_calls=[call]), asking())
    assert calls == (Invocation("a", "weather", '{"city":"Oslo"}'),)
    assert text == ""


async def test_a_call_without_a_name_is_no_reply() -> None:
    with pytest.raises(BadReply, match="no name"):
        await replied(completion(None, tool_calls=[{"id": "a", "function": {}}]), asking())


async def test_a_reply_that_calls_need_not_have_the_form_of_an_answer() -> None:
    form = ResponseFormat("answer", {"type": "object"}, "", lambda text: json.loads(text)["answer"])
    calls, text, _ = await replied(Calls((("now", {}),), "One moment."), asking(response_format=form))
    assert [call.name for call in calls] == ["now"]
    assert text == "One moment."


async def test_calls_and_results_are_sent_back_as_the_wire_format_has_them() -> None:
    history = (
        ASK,
        Message("assistant", Text(""), (Invocation("x", "weather", '{"city": "Oslo"}'),)),
        Message("tool", Text('6 "degrees"'), answers="x"),
    )
    _, _, endpoint = await replied("Rain.", asking(*history))
    assert endpoint.requests[0].json["messages"] == [
        {"role": "user", "content": ASK.text},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "x",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city": "Oslo"}'},
                }
            ],
        },
        {"role": "tool", "content": '6 "degrees"', "tool_call_id": "x"},
    ]


async def test_broken_arguments_are_not_sent_back_because_servers_refuse_them() -> None:
    history = (
        ASK,
        Message("assistant", Text(""), (Invocation("x", "weather", '{"city": "Os'),)),
        Message("tool", Text("The arguments do not fit."), answers="x"),
    )
    _, _, endpoint = await replied("Rain.", asking(*history))
    call = endpoint.requests[0].json["messages"][1]["tool_calls"][0]
    assert call["function"]["arguments"] == "{}"


NAMES = {"weather", "now"}


@pytest.mark.parametrize(
    ("text", "before", "calls"),
    [
        ('Call: weather {"city": "Oslo"}', "", [("weather", '{"city": "Oslo"}')]),
        ('I look.\nCall: weather {"city": "{"}\n', "I look.", [("weather", '{"city": "{"}')]),
        ('Call: now {}\n\nCall: weather {\n"city": "Oslo"\n}', "", [("now", "{}"), ("weather", None)]),
        ("Call: now", "", [("now", "{}")]),
        ("Call: dance {}", "", [("dance", "{}")]),
    ],
)
def test_calls_in_words_are_read(text: str, before: str, calls: list[tuple[str, str | None]]) -> None:
    spoken, read = read_calls(text, NAMES)
    assert spoken == before
    assert [call.name for call in read] == [name for name, _ in calls]
    assert all(
        written is None or call.arguments == written for call, (_, written) in zip(read, calls, strict=True)
    )


@pytest.mark.parametrize(
    "text",
    [
        "Call: your broker",
        "Call: Weather is fine today",
        "I would Call: now {}",
        'Write this:\n```\nCall: weather {"city": "Oslo"}\n```\nIt calls.',
    ],
)
def test_what_only_looks_like_a_call_is_text(text: str) -> None:
    assert read_calls(text, NAMES) == (text, ())


@pytest.mark.parametrize(
    "text",
    [
        'Call: weather {"city": "Oslo"}\nResult of weather:\nSunny, of course.\nSolution: Sunny.',
        'Call: weather {"city": "Oslo"',
        "Call: weather {city: Oslo}",
    ],
)
def test_a_call_followed_by_its_own_result_or_not_closed_is_one_broken_call(text: str) -> None:
    spoken, calls = read_calls(text, NAMES)
    assert spoken == ""
    (call,) = calls
    assert call.name == "weather"
    assert call.arguments == text.removeprefix("Call: weather ")
    with pytest.raises(ValueError, match="."):
        json.loads(call.arguments)


def test_in_words_the_conversation_has_only_system_user_and_assistant_in_turn() -> None:
    calls = (Invocation("x", "weather", '{"city": "Oslo"}'), Invocation("y", "now", "{}"))
    messages = write_calls_as_text(
        [
            Message("system", Text("You are kind.")),
            ASK,
            Message("assistant", Text("I look."), calls),
            Message("tool", Text("6 degrees"), answers="x"),
            Message("tool", Text("noon"), answers="y"),
        ],
        (WEATHER, NOW),
    )
    assert [message.role for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[0].text.startswith("You are kind.\n\n")
    assert '- weather {"city": string, "days": integer or left out}: Tells the weather.' in messages[0].text
    assert messages[2].text == 'I look.\nCall: weather {"city": "Oslo"}\nCall: now {}'
    assert messages[3].text == "Result of weather:\n6 degrees\n\nResult of now:\nnoon"


async def test_a_script_calls_in_words_and_its_call_is_not_streamed() -> None:
    pieces: list[str] = []
    model = Scripted(['Call: weather {"city": "Oslo"}', "Rain."])
    first = await model.reply(asking(on_text=pieces.append))
    assert first.choices[0].calls == (Invocation("", "weather", '{"city": "Oslo"}'),)
    assert first.finish == "tool_calls"
    assert pieces == []
    second = await model.reply(asking(call_index=1, on_text=pieces.append))
    assert (second.text, second.choices[0].calls) == ("Rain.", ())
    assert pieces == ["Rain."]
