"""What is played from a page costs what is known, up to a limit, and asks no model for a person's part."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.helpers.command import bactrian
from tests.helpers.endpoint import Endpoint, Plan, Received, completion
from tests.helpers.explorer import Answer, RunningExplorer, explore
from tests.helpers.generation import said
from tests.helpers.runs import make_run, session

pytestmark = [pytest.mark.system, pytest.mark.slow]

CLUB = """
name = "club"
task = "Should the village have a pool?"
[[agents]]
name = "chair"
role = "Chair"
model = "human"
prompt = "Lead the talk: {{ task }}"
[[agents]]
name = "farmer"
role = "Farmer"
prompt = "Talk: {{ task }}"
[[stages]]
name = "talk"
agents = ["chair", "farmer"]
max_messages = 4
"""
USAGE = {"usage": {"prompt_tokens": 700, "completion_tokens": 100}}


def send(explorer: RunningExplorer, path: str, fields: Mapping[str, str], **headers: str) -> Answer:
    token = re.search(r'name="csrf" value="([^"]+)"', explorer.get("/play").text)
    assert token is not None
    data = urlencode({"csrf": token[1], **fields}).encode()
    return explorer.get(path, data, Origin=explorer.address, **headers)


def read_state(explorer: RunningExplorer, do: str) -> dict[str, Any]:
    return json.loads(send(explorer, "/play/control", {"do": do}, Accept="application/json").text)


def wait_for(explorer: RunningExplorer, page: str, words: str) -> str:
    limit = time.monotonic() + 30
    while words not in (text := explorer.get(page).text):
        assert time.monotonic() < limit, text
        time.sleep(0.05)
    return text


def answer(request: Received) -> Plan:
    reply = said(request)
    return completion(reply) | USAGE if isinstance(reply, str) else reply


async def test_plays_of_all_pages_share_a_budget_and_the_page_shows_what_they_cost(tmp_path: Path) -> None:
    await make_run(tmp_path / "run.db", [session("first")])
    async with Endpoint([answer]) as endpoint:

        def play() -> None:
            model = ("--model", f"openai:mine@{endpoint.url}", "--price", "10/10", "--budget", "0.06")
            with explore(tmp_path, "run.db", "--edit", *model, sessions=1) as explorer:
                assert "cost $0.00 so far, of $0.06" in explorer.get("/play").text
                idea = {"idea": "Bake bread", "assistant": "Cook", "user": "Guest", "messages": "4"}
                page = send(explorer, "/play", idea).headers["location"].partition("#")[0]
                head = re.search(r'id="count">([^<]+)', wait_for(explorer, page, "max messages"))
                assert head is not None
                status = json.loads(bactrian("status", "played.db", "--json", cwd=tmp_path).stdout)
                assert f"{status['total_tokens']:,} tokens" in head[1]
                assert f"${status['usd']:.3f}" in head[1]
                asked = len(endpoint.requests)
                again = send(explorer, "/play", {**idea, "idea": "Bake a cake", "messages": "40"})
                wait_for(explorer, "/play", "so far, of $0.06")
                wait_for(explorer, again.headers["location"].partition("#")[0], "limit")
                assert asked <= len(endpoint.requests) <= 7

        await asyncio.to_thread(play)


async def test_no_model_plays_the_part_that_a_society_gives_to_a_person(tmp_path: Path) -> None:
    await make_run(tmp_path / "run.db", [session("first")])
    (tmp_path / "club.toml").write_text(CLUB)
    async with Endpoint(["Yes, with warm water."]) as endpoint:

        def play() -> None:
            model = ("--model", f"openai:mine@{endpoint.url}", "--society", "club.toml")
            with explore(tmp_path, "run.db", "--edit", *model, sessions=1) as explorer:
                page = send(explorer, "/play", {"society": "club.toml"}).headers["location"].partition("#")[0]
                state = read_state(explorer, "resume")
                assert (state["taken"], state["asks"]) == (["chair"], "chair")
                assert endpoint.requests == []
                send(explorer, "/play/control", {"do": "answer", "text": "Farmer, what do you think?"})
                head = re.search(r'id="count">([^<]+)', wait_for(explorer, page, "warm water"))
                assert head is not None
                assert "$" not in head[1]  # the price of this model is not known

        await asyncio.to_thread(play)
