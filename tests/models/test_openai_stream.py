"""Streamed replies, in whatever pieces and shapes they come."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bactrian.errors import BadReply, ModelError, TryAgain
from bactrian.models.http import Timeouts
from bactrian.models.http_response import EventReader
from bactrian.models.model import Reply, Request
from bactrian.models.openai import OpenAIModel
from bactrian.records.text import Text
from bactrian.records.turn import Message, Usage
from tests.helpers.endpoint import Answer, Endpoint, Plan, Raw, completion, streamed

ASK = Request([Message("user", Text("Go on."))])
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def chunk(content: str | None = None, *, index: int = 0, finish: str | None = None, **delta: Any) -> bytes:
    delta = delta if content is None else {"content": content} | delta
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return b"data: %b\n\n" % json.dumps({"model": "m", "choices": [choice]}, ensure_ascii=False).encode()


async def stream(
    plan: Plan, *, limits: Timeouts | None = None, request: Request = ASK
) -> tuple[Reply, list[str]]:
    pieces: list[str] = []
    async with Endpoint([plan]) as endpoint:
        model = OpenAIModel("m", base_url=endpoint.url, limits=limits)
        try:
            reply = await model.reply(replace(request, on_text=pieces.append))
        finally:
            await model.close()
    return reply, pieces


def events(*chunks: bytes) -> Answer:
    return Answer(b"".join(chunks), content_type="text/event-stream")


async def test_text_is_passed_on_as_it_comes_and_the_reply_is_whole() -> None:
    reply, pieces = await stream("One two three.")
    assert pieces == ["One ", "two ", "three."]
    assert reply.text == "One two three."
    assert reply.finish == "stop"
    assert reply.usage == Usage(11, 7, 4)
    assert reply.model == "served-model"
    assert reply.raw == streamed("One two three.")
    assert reply.first_token is not None
    assert reply.first_token > 0


async def test_a_stream_is_asked_for_with_its_usage() -> None:
    async with Endpoint() as endpoint:
        model = OpenAIModel("m", base_url=endpoint.url)
        await model.reply(replace(ASK, on_text=str))
        await model.close()
    sent = endpoint.requests[0].json
    assert sent["stream"] is True
    assert sent["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
async def test_chunks_may_be_cut_anywhere_even_inside_a_character(size: int) -> None:
    body = chunk("h\u00e9 ") + chunk("\U0001f42b") + chunk(finish="stop") + b"data: [DONE]\n\n"
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    reply, texts = await stream(Raw([HEAD, *pieces]))
    assert texts == ["h\u00e9 ", "\U0001f42b"]
    assert reply.text == "h\u00e9 \U0001f42b"
    assert not reply.choices[0].lossy


async def test_comments_names_ids_and_crlf_are_passed_over() -> None:
    noise = b": keep-alive\r\n\r\nevent: message\r\nid: 7\r\nretry: 10\r\n"
    body = noise + chunk("ok", finish="stop").replace(b"\n", b"\r\n") + noise + b"data:[DONE]\r\n\r\n"
    reply, texts = await stream(events(body))
    assert texts == ["ok"]
    assert reply.text == "ok"


async def test_data_over_several_lines_is_one_event() -> None:
    lines = chunk("ok", finish="stop").replace(b', "', b',\ndata: "')
    assert lines.count(b"data:") > 2
    reply, _ = await stream(events(lines))
    assert reply.text == "ok"


async def test_a_stream_without_done_is_whole_if_its_choice_ended() -> None:
    reply, _ = await stream(events(chunk("ok"), chunk(finish="length")))
    assert (reply.text, reply.finish) == ("ok", "length")


async def test_a_last_event_without_an_empty_line_still_counts() -> None:
    reply, _ = await stream(events(chunk("ok"), chunk(finish="stop").rstrip(b"\n")))
    assert reply.finish == "stop"


async def test_a_stream_that_stops_before_its_reply_does_is_tried_again() -> None:
    with pytest.raises(TryAgain, match="stream ended before"):
        await stream(events(chunk("half a sen")))


async def test_a_connection_lost_in_mid_stream_is_tried_again() -> None:
    head = HEAD.replace(b"Connection: close", b"Content-Length: 9999")
    with pytest.raises(TryAgain):
        await stream(Raw([head, chunk("half")], "reset", pause=0.01))


@pytest.mark.parametrize("pieces", [(), (HEAD,), (HEAD, chunk("half"))], ids=["at once", "then", "midway"])
async def test_a_stream_that_falls_silent_is_given_up_on(pieces: tuple[bytes, ...]) -> None:
    with pytest.raises(TryAgain, match=r"was silent for 0\.05 s"):
        await stream(Raw(pieces, "hang"), limits=Timeouts(silence=0.05))


async def test_a_connection_lost_after_done_loses_nothing() -> None:
    head = HEAD.replace(b"Connection: close", b"Content-Length: 9999")
    reply, _ = await stream(Raw([head, chunk("ok", finish="stop"), b"data: [DONE]\n\n"], "close", pause=0.01))
    assert reply.text == "ok"


async def test_only_the_first_choice_is_shown_while_all_are_kept() -> None:
    body = [chunk("a1 ", index=0), chunk("b1 ", index=1), chunk("a2", index=0), chunk("b2", index=1)]
    ends = [chunk(index=1, finish="length"), chunk(index=0, finish="stop"), b"data: [DONE]\n\n"]
    reply, texts = await stream(events(*body, *ends))
    assert texts == ["a1 ", "a2"]
    assert [(choice.text, choice.finish) for choice in reply.choices] == [
        ("a1 a2", "stop"),
        ("b1 b2", "length"),
    ]


async def test_a_streamed_refusal_is_marked() -> None:
    reply, _ = await stream(events(chunk(refusal="I "), chunk(refusal="won't."), chunk(finish="stop")))
    assert (reply.text, reply.choices[0].refusal) == ("I won't.", True)


@pytest.mark.parametrize(
    ("kind", "crowded"), [("overloaded_error", True), ("server_error", False), ("InternalServerError", False)]
)
async def test_a_fault_of_the_server_that_passes_is_tried_again(kind: str, crowded: bool) -> None:
    error = {"error": {"type": kind, "message": "Later, please"}}
    with pytest.raises(TryAgain, match="Later, please") as caught:
        await stream(events(chunk("half"), b"data: %b\n\n" % json.dumps(error).encode()))
    assert caught.value.overload is crowded


async def test_an_error_in_the_stream_is_a_bad_reply_with_its_message() -> None:
    with pytest.raises(BadReply, match="worker fell over"):
        await stream(events(chunk("half"), b'data: {"error": {"message": "worker fell over"}}\n\n'))


async def test_an_error_in_the_stream_that_has_a_passing_status_is_tried_again() -> None:
    with pytest.raises(TryAgain, match="overloaded"):
        await stream(events(b'data: {"error": {"code": 503, "message": "overloaded"}}\n\n'))


@pytest.mark.parametrize("data", [b"data: {bad\n\n", b"data: [1]\n\n", b"data: 7\n\n"])
async def test_an_event_that_is_no_chunk_is_a_bad_reply(data: bytes) -> None:
    with pytest.raises(BadReply, match="An event in the endpoint's stream"):
        await stream(events(data))


async def test_a_pair_of_surrogates_sent_in_two_halves_is_one_character_again() -> None:
    halves = [chunk("X").replace(b"X", half) for half in (rb"\ud83d", rb"\udc2b")]
    reply, _ = await stream(events(*halves, chunk(finish="stop")))
    assert reply.text == "\U0001f42b"
    assert not reply.choices[0].lossy


async def test_invalid_utf8_in_a_stream_is_replaced_and_marked() -> None:
    reply, texts = await stream(events(chunk("aXb").replace(b"X", b"\xff"), chunk(finish="stop")))
    assert reply.text == "a\ufffdb"
    assert texts == ["a\ufffdb"]
    assert reply.choices[0].lossy


async def test_usage_is_estimated_where_the_stream_has_none() -> None:
    reply, _ = await stream(events(chunk("x" * 40), chunk(finish="stop")))
    assert reply.usage.estimated
    assert reply.usage.completion == 10


async def test_a_stream_that_is_lost_costs_what_came_of_its_text_and_not_its_frames() -> None:
    lost = Raw((HEAD, *(chunk("word") for _ in range(10))), "reset", pause=0.01)
    with pytest.raises(TryAgain) as caught:
        await stream(lost)
    prompt, completion = caught.value.spent
    assert (prompt > 0, completion) == (True, 10)


async def test_a_server_that_does_not_stream_is_read_all_the_same() -> None:
    reply, texts = await stream(Answer(completion("One two.")))
    assert texts == ["One two."]
    assert reply.text == "One two."


async def test_a_whole_reply_under_the_name_of_a_stream_is_read_all_the_same() -> None:
    reply, texts = await stream(Answer(completion("One two."), content_type="text/event-stream"))
    assert texts == ["One two."]
    assert reply.text == "One two."


async def test_a_web_page_in_place_of_a_stream_is_named() -> None:
    with pytest.raises(BadReply, match="does not look like an OpenAI-compatible API"):
        await stream(Answer("<!doctype html>", content_type="text/html"))


async def test_an_endless_stream_is_cut_off() -> None:
    body = [chunk("x" * 1000)] * 100
    with pytest.raises(ModelError, match="larger than 16,000 bytes"):
        await stream(Raw([HEAD, *body], "hang"), limits=Timeouts(max_reply_bytes=1000))


async def test_a_connection_is_kept_after_a_stream() -> None:
    async with Endpoint() as endpoint:
        model = OpenAIModel("m", base_url=endpoint.url)
        ports: set[object] = set()
        for _ in range(3):
            await model.reply(replace(ASK, on_text=str))
            ports.add(endpoint.requests[-1].peer)
        await model.close()
    assert len(ports) == 1


@given(
    st.lists(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\r\n"), min_size=1)),
    st.lists(st.integers(1, 40), min_size=1),
)
def test_events_come_out_the_same_however_the_stream_is_cut(datas: list[str], sizes: list[int]) -> None:
    wire = b"".join(b"data: %b\n\n" % text.encode() for text in datas)
    parser, read = EventReader(), list[bytes]()
    for size in cycle(sizes):
        if not wire:
            break
        read += parser.feed(wire[:size])
        wire = wire[size:]
    assert [item.decode() for item in read + parser.end()] == datas


async def test_a_thought_is_kept_and_not_passed_on_however_it_is_cut() -> None:
    pieces = [
        chunk("<th"),
        chunk("ink>Hm"),
        chunk(".</thi"),
        chunk("nk>\n\nSolu"),
        chunk("tion: 4", finish="stop"),
    ]
    reply, passed_on = await stream(events(*pieces))
    assert "".join(passed_on) == reply.text == "Solution: 4"
    assert reply.choices[0].thought == "Hm."


async def test_a_thought_that_is_not_closed_is_not_passed_on() -> None:
    reply, passed_on = await stream(events(chunk("<think>Hm"), chunk(" hm", finish="length")))
    assert (passed_on, reply.text, reply.choices[0].thought) == ([], "", "Hm hm")


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_a_field_of_thoughts_is_gathered_beside_the_text(field: str) -> None:
    def thought(text: str) -> bytes:
        return chunk(None, index=0, finish=None, **{field: text})

    pieces = [thought("Two and "), thought("two."), chunk("4", finish="stop")]
    reply, passed_on = await stream(events(*pieces))
    assert (passed_on, reply.text, reply.choices[0].thought) == (["4"], "4", "Two and two.")


async def test_text_that_turns_out_to_be_a_thought_is_taken_back() -> None:
    restarts: list[str] = []
    request = replace(ASK, on_restart=lambda: restarts.append("again"))
    reply, passed_on = await stream(
        events(chunk("Hm, "), chunk("hm.</think>4", finish="stop")), request=request
    )
    assert (passed_on, restarts) == (["Hm, ", "4"], ["again"])
    assert (reply.text, reply.choices[0].thought) == ("4", "Hm, hm.")


def test_a_line_that_comes_in_many_pieces_is_joined_once() -> None:
    reader = EventReader()
    for _ in range(16_000):
        assert reader.feed(b"x" * 1000) == []
    assert reader.feed(b"\n\ndata: tea\n\n") == [b"tea"]
