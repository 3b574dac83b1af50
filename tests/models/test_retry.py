"""Asking again: when, how often, and how long to wait."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from bactrian.errors import (
    BadReply,
    BudgetReached,
    Denied,
    GaveUp,
    ModelError,
    Refused,
    RefusedOutright,
    TryAgain,
)
from bactrian.models.faults import Retry, RetryPolicy
from bactrian.models.model import Model, Reply, ReplyChoice, Request
from bactrian.models.openai import OpenAIModel
from bactrian.records.text import Text
from bactrian.records.turn import Message, Usage
from tests.helpers.endpoint import Answer, Endpoint, Raw

ASK = Request([Message("user", Text("Go on."))])
GOOD = Reply((ReplyChoice(Text("ok")),), Usage(1, 1), "m")


def waits_for(seconds: float) -> TryAgain:
    error = TryAgain("slow down")
    error.after = seconds
    return error


@dataclass
class Hours:
    """A clock that only sleeping moves on."""

    now: float = 0.0
    slept: list[float] = field(default_factory=list[float])

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def clock(self) -> float:
        return self.now


@dataclass
class Failing:
    """A model that fails in the given ways, one for each call, and then answers."""

    faults: list[Exception]
    asked: int = 0
    name: str = "failing"

    async def reply(self, request: Request) -> Reply:
        self.asked += 1
        if self.faults:
            raise self.faults.pop(0)
        return GOOD

    async def close(self) -> None:
        self.name = "closed"


def patient(model: Model, hours: Hours, patience: RetryPolicy | None = None, chance: float = 1.0) -> Retry:
    return Retry(model, patience, sleep=hours.sleep, clock=hours.clock, chance=lambda: chance)


async def test_a_passing_fault_of_a_real_endpoint_is_outlived() -> None:
    hours = Hours()
    async with Endpoint([Answer("busy", status=503), Raw([b"HTTP/1.1 200 OK\r\n"]), "Here."]) as endpoint:
        model = patient(OpenAIModel("m", base_url=endpoint.url), hours)
        assert (await model.reply(ASK)).text == "Here."
        await model.close()
    assert len(endpoint.requests) == 3
    assert endpoint.requests[0].body == endpoint.requests[2].body
    assert hours.slept == [0.5, 1.0]


async def test_a_wait_that_the_endpoint_asks_for_is_kept_and_uses_up_no_attempt() -> None:
    hours = Hours()
    busy = Answer("busy", status=429, headers={"Retry-After": "7"})
    async with Endpoint([*[busy] * 20, "Here."]) as endpoint:
        model = patient(OpenAIModel("m", base_url=endpoint.url), hours, RetryPolicy(attempts=2), chance=0.0)
        assert (await model.reply(ASK)).text == "Here."
        await model.close()
    assert hours.slept == [7.0] * 20


async def test_waits_double_up_to_the_longest_and_are_drawn_by_chance() -> None:
    patience = RetryPolicy(attempts=7, first_wait=1, longest_wait=8)
    for chance in (0.0, 0.25, 1.0):
        hours = Hours()
        await patient(Failing([TryAgain("busy")] * 6), hours, patience, chance).reply(ASK)
        assert hours.slept == [chance * wait for wait in (1, 2, 4, 8, 8, 8)]


async def test_many_that_wait_together_do_not_come_back_together() -> None:
    returns: list[float] = []
    for chance in (0.0, 0.5, 1.0):
        hours = Hours()
        await patient(Failing([waits_for(10)]), hours, chance=chance).reply(ASK)
        returns += hours.slept
    assert returns == [10.0, 10.25, 10.5]


async def test_giving_up_says_how_often_it_was_tried_and_how_to_go_on() -> None:
    busy = TryAgain("The endpoint answered 503: busy", where="http://here", sample=b"busy")
    model = Failing([busy] * 9)
    with pytest.raises(ModelError, match=r"answered 503: busy\. Asked 4 times in \d+ s") as caught:
        await patient(model, Hours(), RetryPolicy(attempts=4)).reply(ASK)
    assert type(caught.value) is GaveUp
    assert caught.value.__cause__ is busy
    assert (caught.value.where, caught.value.sample) == ("http://here", b"busy")
    assert "run the same command again" in str(caught.value)
    assert model.asked == 4


async def test_a_bad_reply_is_asked_for_three_times_in_all() -> None:
    model = Failing([BadReply("not JSON", sample=b"<")] * 5)
    with pytest.raises(ModelError, match=r"not JSON\. Asked 3 times") as caught:
        await patient(model, Hours()).reply(ASK)
    assert isinstance(caught.value.__cause__, BadReply)
    assert model.asked == 3


async def test_two_bad_replies_are_outlived() -> None:
    assert (
        await patient(Failing([BadReply("cut"), TryAgain("busy"), BadReply("cut")]), Hours()).reply(ASK)
        is GOOD
    )


async def test_the_budget_of_time_ends_it() -> None:
    hours = Hours()
    with pytest.raises(ModelError, match="slow down"):
        await patient(Failing([waits_for(30)] * 99), hours, RetryPolicy(budget=100), chance=0.0).reply(ASK)
    assert hours.slept == [30.0] * 3


async def test_a_wait_beyond_the_longest_is_cut_once_and_then_given_up() -> None:
    hours = Hours()
    assert await patient(Failing([waits_for(3600)]), hours, chance=0.0).reply(ASK) is GOOD
    assert hours.slept == [600.0]
    with pytest.raises(GaveUp, match=r"Asked twice in 600 s\. It asks to wait 3600 s"):
        await patient(Failing([waits_for(3600)] * 9), Hours(), chance=0.0).reply(ASK)
    with pytest.raises(GaveUp, match=r"Asked twice in 7 s"):
        await patient(Failing([waits_for(9)] * 9), Hours(), RetryPolicy().with_max_wait(7), 0.0).reply(ASK)


@pytest.mark.parametrize("error", [Denied("no"), ModelError("no"), BudgetReached("no"), ValueError("no")])
async def test_every_other_error_is_raised_at_once(error: Exception) -> None:
    model = Failing([error])
    with pytest.raises(type(error)) as caught:
        await patient(model, Hours()).reply(ASK)
    assert caught.value is error
    assert model.asked == 1


async def test_a_refusal_by_an_endpoint_that_has_never_answered_is_one_for_every_request() -> None:
    with pytest.raises(RefusedOutright, match="no") as caught:
        await patient(Failing([Refused("no", where="here", next="Do it.", sample=b"x")]), Hours()).reply(ASK)
    assert caught.value.endpoint_wide
    assert (caught.value.where, caught.value.next, caught.value.sample) == ("here", "Do it.", b"x")


async def test_a_refusal_by_an_endpoint_that_has_answered_is_about_its_request() -> None:
    model = Failing([])
    patience = patient(model, Hours())
    await patience.reply(ASK)
    model.faults.append(Refused("no"))
    with pytest.raises(Refused) as caught:
        await patience.reply(ASK)
    assert not caught.value.endpoint_wide


async def test_a_stream_that_fails_midway_voids_the_text_shown_so_far() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9999\r\n\r\n"
    half = b'data: {"choices": [{"index": 0, "delta": {"content": "One t"}}]}\n\n'
    shown: list[str] = []
    async with Endpoint([Raw([head, half], "reset", pause=0.01), "One two."]) as endpoint:
        model = patient(OpenAIModel("m", base_url=endpoint.url), Hours())
        await model.reply(replace(ASK, on_text=shown.append, on_restart=shown.clear))
        await model.close()
    assert len(endpoint.requests) == 2
    assert "".join(shown) == "One two."


async def test_name_and_close_are_those_of_the_model_within() -> None:
    within = Failing([])
    model = Retry(within)
    assert model.name == "failing"
    await model.close()
    assert within.name == "closed"


def broken(text: bytes) -> Answer:
    body = b'{"choices":[{"message":{"content":"' + text + b'"},"finish_reason":"stop"}]}'
    return Answer(body=body)


async def test_a_reply_with_bytes_that_are_no_text_is_asked_for_once_more() -> None:
    async with Endpoint([broken(b"tea \xff"), "tea"]) as endpoint:
        reply = await Retry(OpenAIModel("any", base_url=endpoint.url)).reply(ASK)
    assert (reply.text, reply.choices[0].lossy, len(endpoint.requests)) == ("tea", False, 2)


async def test_bytes_that_are_no_text_twice_are_replaced_and_marked() -> None:
    async with Endpoint([broken(b"tea \xff")]) as endpoint:
        reply = await Retry(OpenAIModel("any", base_url=endpoint.url)).reply(ASK)
    assert (reply.text, reply.choices[0].lossy, len(endpoint.requests)) == ("tea \ufffd", True, 2)
