"""Keeping every call."""

from __future__ import annotations

import pytest

from bactrian.errors import BadReply
from bactrian.models.faults import Recorder, Retry, RetryPolicy
from bactrian.models.model import Request
from bactrian.models.openai import OpenAIModel
from bactrian.records.run import Call
from bactrian.records.text import Text
from bactrian.records.turn import Message, Usage
from tests.helpers.endpoint import Answer, Endpoint

ASK = Request([Message("user", Text("Go on."))], session="001_002", agent="user", call_index=4)


async def test_each_attempt_is_kept_with_what_came_back() -> None:
    kept: list[Call] = []

    async def keep(call: Call) -> None:
        kept.append(call)

    ticks = iter(range(100))
    async with Endpoint([Answer(b"oops", content_type="text/html"), "Here."]) as endpoint:
        recorder = Recorder(OpenAIModel("m", base_url=endpoint.url), keep, clock=lambda: next(ticks))
        model = Retry(recorder, RetryPolicy(first_wait=0))
        reply = await model.reply(ASK)
        await model.close()
    failed, answered = kept
    assert {(call.session, call.agent, call.ordinal, call.seconds) for call in kept} == {
        ("001_002", "user", 4, 1)
    }
    assert failed.raw == b"oops"
    assert failed.error is not None
    assert "is not JSON" in failed.error
    assert failed.model == "openai:m"
    # The model worked on it: its cost is reckoned from the bytes that were sent and received.
    assert failed.usage is not None
    assert failed.usage.estimated
    assert (failed.usage.prompt > 0, failed.usage.completion) == (True, 1)
    assert answered == Call(
        "001_002", "user", 4, "served-model", 1, raw=reply.raw, error=None, usage=Usage(11, 7, 4)
    )


async def test_nobody_sees_a_reply_that_could_not_be_kept() -> None:
    async def full(call: Call) -> None:
        raise OSError("disk full")

    async with Endpoint(["Here.", Answer(b"{}")]) as endpoint:
        model = Recorder(OpenAIModel("m", base_url=endpoint.url), full)
        with pytest.raises(OSError, match="disk full"):
            await model.reply(ASK)
        with pytest.raises(OSError, match="disk full") as caught:
            await model.reply(ASK)
        await model.close()
    assert isinstance(caught.value.__context__, BadReply)
    assert model.name == "openai:m"
