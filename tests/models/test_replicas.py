"""Several servers of one model: conversations stay where their prefix cache is, and leave a server that is down."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

import bactrian as bt
from bactrian.errors import TryAgain
from bactrian.models.model import Request
from bactrian.models.openai import OpenAIModel
from bactrian.models.replicas import Replicas
from bactrian.records.text import Text
from bactrian.records.turn import Message
from tests.helpers.command import Command, clean_environment
from tests.helpers.endpoint import Answer, Endpoint
from tests.helpers.generation import RECIPE, generate, said, stored

DOWN = Answer({"error": {"message": "loading"}}, 503)


def ask(session: str, agent: str = "user") -> Request:
    return Request([Message("user", Text("Hello"))], session=session, agent=agent)


class Clock:
    """A clock that the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def connect(*endpoints: Endpoint, clock: Clock | None = None) -> Replicas:
    models = [OpenAIModel("m", base_url=endpoint.url) for endpoint in endpoints]
    return Replicas("vllm:m", models, clock=clock or Clock())


def list_homes(*endpoints: Endpoint) -> list[set[str]]:
    """The conversations that each endpoint saw."""
    return [{request.headers["X-Session-ID"] for request in endpoint.requests} for endpoint in endpoints]


async def test_a_run_asks_all_servers_and_each_conversation_stays_at_one(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(RECIPE)
    async with Endpoint([said]) as one, Endpoint([said]) as two:
        urls = ("--base-url", one.url, "--base-url", two.url, "--model", "openai:m")
        code, _, err = await generate(tmp_path, None, *urls)
        assert code == 0, err
        first, second = list_homes(one, two)
        assert first and second
        assert not first & second
    assert len(await stored(tmp_path)) == 12


async def test_a_run_that_is_continued_asks_all_its_servers_again(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(RECIPE)
    async with Endpoint([said]) as one, Endpoint([said]) as two:
        urls = ("--base-url", one.url, "--base-url", two.url, "--model", "openai:m")
        assert (await generate(tmp_path, None, *urls, "--limit", "4"))[0] == 0
        before = len(one.requests), len(two.requests)
        resumed = Command(("resume", "run.db", "--limit", "12", "--quiet"), tmp_path, clean_environment())
        _, said_to_person = await resumed.communicate()
        assert resumed.wait() == 0, said_to_person
        assert len(one.requests) > before[0]
        assert len(two.requests) > before[1]


async def test_a_model_may_name_several_addresses(tmp_path: Path) -> None:
    replies = ["Instruction: Go on.\nInput: None", "Solution: Done. Next request."]
    async with Endpoint(replies[:1]) as one, Endpoint(replies[1:]) as two:
        session = bt.stream(
            "Plan", model=f"vllm:m@{one.url},{two.url}", specify=False, max_messages=4, run=tmp_path / "a.db"
        )
        async for _ in session:
            pass
        assert (len(one.requests), len(two.requests)) == (2, 2)


async def test_the_conversations_of_a_server_that_is_down_move_at_once() -> None:
    clock = Clock()
    async with Endpoint([DOWN]) as down, Endpoint() as up:
        model = connect(down, up, clock=clock)
        for session in "abcdef":
            await model.reply(ask(session))
        assert (len(down.requests), len(up.requests)) == (1, 6)
        await model.close()


async def test_a_server_that_refuses_connections_is_tried_after_10_then_20_seconds() -> None:
    clock = Clock()
    async with Endpoint([DOWN, DOWN, "Solution: Back. Next request."]) as down, Endpoint() as up:
        model = connect(down, up, clock=clock)
        seen: list[int] = []
        for clock.now in (0.0, 9.0, 10.5, 20.0, 30.0, 31.0, 31.5, 32.0):
            for session in (str(clock.now), f"{clock.now} again"):
                await model.reply(ask(session))
            seen.append(len(down.requests))
        await model.close()
    assert seen[:5] == [1, 1, 2, 2, 2]
    assert seen[-1] > 3


async def test_the_fault_is_raised_where_no_server_is_left() -> None:
    async with Endpoint([DOWN]) as one, Endpoint([DOWN]) as two:
        model = connect(one, two)
        with pytest.raises(TryAgain):
            await model.reply(ask("a"))
        assert (len(one.requests), len(two.requests)) == (1, 1)
        await model.close()


async def test_a_refusal_of_too_many_requests_moves_nothing() -> None:
    async with Endpoint([Answer({"error": {"message": "slow down"}}, 429)]) as one, Endpoint() as two:
        model = connect(one, two)
        with pytest.raises(TryAgain):
            await model.reply(ask("a"))
        assert not two.requests
        await model.close()


async def test_many_conversations_are_spread_within_the_bound() -> None:
    async with Endpoint() as one, Endpoint() as two, Endpoint() as three:
        model = connect(one, two, three)
        for _ in range(3):
            await asyncio.gather(*(model.reply(ask(str(session))) for session in range(30)))
        loads = [len(endpoint.requests) for endpoint in (one, two, three)]
        await model.close()
    assert sum(loads) == 90
    assert max(loads) <= 1.25 * 30 + 3 * 2


async def test_a_server_that_is_not_up_yet_does_not_stop_a_run(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(RECIPE)
    async with Endpoint() as gone:
        pass
    async with Endpoint([said]) as up:
        urls = ("--base-url", gone.url, "--base-url", up.url, "--model", "openai:m")
        code, _, err = await generate(tmp_path, None, *urls)
    assert code == 0, err
    endings = Counter(session.ending and session.ending.code for session in await stored(tmp_path))
    assert endings == {"max_messages": 12}
