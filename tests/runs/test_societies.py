"""Societies as the jobs of a recipe."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from bactrian.store import open_store
from tests.helpers.command import bactrian
from tests.helpers.endpoint import Answer, Endpoint, Plan, Received, completion

SOCIETY = """
name = "plan-then-build"
task = "Nothing in particular"

[[agents]]
name = "lead"
role = "Tech Lead"
prompt = "You are the {{ role }} with {{ others }}. {{ task }}"

[[agents]]
name = "trader"
role = "Trader"
prompt = "You are the {{ role }}. {{ task }}"

[[agents]]
name = "programmer"
role = "Programmer"

[[stages]]
name = "plan"
agents = ["lead", "trader"]
order = "round_robin"
max_messages = 2
output = "all"

[[stages]]
name = "build"
user = "lead"
assistant = "programmer"
max_messages = 4
task = "Build: {{ task }} By this plan:\\n{{ plan }}"
"""
RECIPE = """
name = "bots"
[[axes]]
name = "idea"
count = 3
given = ["a tea bot", "a rain bot", "a bus bot"]
[society]
file = "society.toml"
task = "Make {{ idea }}."
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "society.toml").write_text(SOCIETY)
    (tmp_path / "bots.toml").write_text(RECIPE)
    return tmp_path


def said(request: Received) -> Plan:
    messages = request.json["messages"]
    system = messages[0]["content"]
    if system.startswith("You are the "):
        return f"A word of the {system.split()[3]}."
    if "AI user" in system or "Instruction:" in system.partition("Solution")[0]:
        return f"Instruction: Do part {len(messages)}.\nInput: None"
    return "Solution: Part done.\nNext request."


async def generate(folder: Path, endpoint: Endpoint, *more: str) -> tuple[int, str, str]:
    words = ("generate", "bots.toml", "--run", "bots.db", "--model", "openai:m", "--base-url", endpoint.url)
    done = await asyncio.to_thread(bactrian, *words, "--json", *more, cwd=folder)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("more", [(), pytest.param(("--processes", "2"), marks=pytest.mark.slow)])
async def test_each_job_plays_all_stages_and_hands_its_output_on(folder: Path, more: tuple[str, ...]) -> None:
    async with Endpoint([said]) as endpoint:
        code, out, err = await generate(folder, endpoint, *more)
    assert code == 0, err
    assert json.loads(out.splitlines()[-1])["done"] == 3
    async with open_store(folder / "bots.db", read_only=True) as store:
        sessions = {session.id: session async for session in store.sessions()}
    assert set(sessions) == {"001", "001-plan", "002", "002-plan", "003", "003-plan"}
    assert sessions["002"].values == sessions["002-plan"].values == {"idea": "a rain bot"}
    assert sessions["002"].task.original.startswith(
        "Build: Make a rain bot. By this plan:\nTech Lead: A word"
    )
    assert [turn.speaker for turn in sessions["001-plan"].turns] == ["lead", "trader"]
    assert sessions["001"].ending is not None


async def test_a_run_of_societies_goes_on_without_paying_twice(folder: Path) -> None:
    def costly(request: Received) -> Plan:
        usage = {"prompt_tokens": 200, "completion_tokens": 100}
        return completion(str(said(request))) | {"usage": usage}

    async with Endpoint([costly]) as endpoint:
        code, _, _ = await generate(folder, endpoint, "--max-tokens", "3000")
        assert code == 3
        first = len(endpoint.requests)
        assert 0 < first < 18
        code, _, err = await generate(folder, endpoint)
        assert code == 0, err
        # Two turns of a plan and four of a build, for each of three ideas.
        assert len(endpoint.requests) == 18
        assert max(Counter(request.body for request in endpoint.requests).values()) == 1
        code, _, _ = await generate(folder, endpoint)
        assert (code, len(endpoint.requests)) == (0, 18)


async def test_a_changed_society_is_another_plan(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        await generate(folder, endpoint, "--limit", "1")
        (folder / "society.toml").write_text(SOCIETY.replace("max_messages = 2", "max_messages = 3"))
        code, _, err = await generate(folder, endpoint)
    assert code == 2
    assert "another plan" in err


async def test_a_stage_that_is_refused_by_the_model_fails_its_job_alone(folder: Path) -> None:
    def picky(request: Received) -> Plan:
        if "rain" in request.json["messages"][0]["content"]:
            return Answer(status=400, body={"error": {"message": "no rain here"}})
        return said(request)

    async with Endpoint([picky]) as endpoint:
        code, out, err = await generate(folder, endpoint, "--concurrency", "1")
    last = json.loads(out.splitlines()[-1])
    assert code == 4, err
    assert last["endings"]["failed"] == 1
    assert last["done"] == 3


async def test_a_forecast_reckons_with_every_stage(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        code, out, err = await generate(folder, endpoint, "--forecast")
        assert code == 0, err
        assert endpoint.requests == []
    assert json.loads(out)["sessions"] == 3


def test_a_society_that_is_not_there_is_named(folder: Path) -> None:
    (folder / "society.toml").unlink()
    done = bactrian("generate", "bots.toml", "--run", "bots.db", "--model", "scripted:x.json", cwd=folder)
    assert done.returncode == 2
    assert "society.toml" in done.stderr
