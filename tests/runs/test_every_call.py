"""Each call of a run fails in turn, once or from then on: what was answered is kept, and the run can go on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bactrian.errors import BactrianError
from bactrian.models.budget import UsageMeter
from bactrian.models.open import ModelOptions
from bactrian.recipes.load import load_recipe
from bactrian.runs.plan import Plan
from bactrian.runs.wiring import RunLimits, RunOrder, prepare_run
from bactrian.store.care import verify
from tests.helpers.endpoint import Answer, Endpoint, Raw, Received, Reply, completion
from tests.helpers.endpoint import Plan as Answered
from tests.helpers.generation import asks, said, stored

AGENTS = ("user", "assistant", "task_specifier", "task_planner", "lister")

RECIPE = """
name = "small"
[[axes]]
name = "idea"
count = 2
ask = "List {{ count }} ideas."
[role_play]
assistant = "Cook"
user = "Guest"
idea = "{{ idea }}"
specify = false
max_messages = 2
"""
CALLS = 1 + 2 * 2
"""A list, and two conversations of two messages."""


def cut(text: bytes) -> Raw:
    return Raw((b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n" + text,), "reset")


def say(request: Received) -> Answered:
    return "1. Boil\n2. Pour" if asks(request) == "lister" else said(request)


def fail_from(call: int, fault: Answered, *, times: int) -> tuple[Reply, list[int]]:
    """Return replies of which ``times`` fail from the one with this number on, and a list of the calls answered."""
    asked: list[int] = []
    answered: list[int] = []

    def reply(request: Received) -> Answered:
        asked.append(1)
        if call <= len(asked) < call + times:
            return fault
        answered.append(len(asked))
        return say(request)

    return reply, answered


async def make(folder: Path, reply: Reply, *, max_wait: float = 600.0) -> str:
    """Generate as the command does; return the error, or an empty text."""
    async with Endpoint([reply]) as endpoint:
        order = RunOrder(
            Plan(load_recipe(str(folder / "small.toml")), dict.fromkeys(AGENTS, "openai:any")),
            folder / "run.db",
            ModelOptions(endpoint.url, max_wait=max_wait),
            UsageMeter(),
            RunLimits(concurrency=2),
            retry_failed=True,
        )
        try:
            async with prepare_run(order) as work:
                await work.run()
        except BactrianError as error:
            return str(error)
        progress = work.progress
        return "; ".join([*progress.reasons, *progress.refused, *progress.short])


async def check_whole(folder: Path) -> None:
    sessions = await stored(folder)
    assert [(len(session.turns), session.ending.code if session.ending else "") for session in sessions] == [
        (2, "max_messages")
    ] * 2
    assert len({session.id for session in sessions}) == 2
    assert (await asyncio.to_thread(verify, folder / "run.db")).faults == ()


def begin(folder: Path, call: int) -> Path:
    place = folder / str(call)
    place.mkdir()
    (place / "small.toml").write_text(RECIPE)
    return place


@pytest.mark.soak
@pytest.mark.parametrize(
    "fault",
    [
        Answer("busy", status=503),
        Answer("slow down", status=429, headers={"Retry-After": "0.01"}),
        Raw(ending="reset"),
        cut(b'{"choices": ['),
        Answer('{"choices": [{"message"'),
        completion(),
        completion(""),
    ],
    ids=["503", "429", "reset", "cut", "half a reply", "no choices", "empty"],
)
async def test_whichever_call_fails_once_the_run_is_whole(tmp_path: Path, fault: Answered) -> None:
    for call in range(2, CALLS + 1):
        folder = begin(tmp_path, call)
        reply, answered = fail_from(call, fault, times=1)
        assert await make(folder, reply) == ""
        assert len(answered) == CALLS
        await check_whole(folder)


@pytest.mark.soak
@pytest.mark.parametrize(
    "fault",
    [
        Answer("busy", status=503),
        Raw(ending="reset"),
        Answer({"error": {"message": "bad key"}}, status=401),
        Answer({"error": {"message": "no money", "code": "insufficient_quota"}}, status=429),
        completion(),
    ],
    ids=["503", "reset", "401", "no money", "no choices"],
)
async def test_from_whichever_call_on_all_fail_nothing_answered_is_paid_again(
    tmp_path: Path, fault: Answered
) -> None:
    for call in range(1, CALLS + 1):
        folder = begin(tmp_path, call)
        reply, answered = fail_from(call, fault, times=10_000)
        assert await make(folder, reply, max_wait=0.05)
        rest, more = fail_from(10_000, fault, times=0)
        assert await make(folder, rest) == ""
        assert len(answered) + len(more) == CALLS
        await check_whole(folder)
