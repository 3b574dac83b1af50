"""Replies and errors that hold what no store takes and no terminal should get: the run goes on, the screen stays."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.helpers.command import Command, bactrian, clean_environment
from tests.helpers.endpoint import Answer, Endpoint, Plan, Received, completion
from tests.helpers.generation import asks, generate, said, start, stored

HALF = "\ud83d"
STEERING = "\x1b]0;owned\x07\x1b[31m\u202e\x9b2J"
CONTROLS = set("\x1b\x07\u202e\x9b")


@pytest.mark.parametrize(
    "answer",
    [
        Answer({"error": f"No {HALF}{STEERING}"}, 400),
        Answer({"error": {"message": f"No {HALF}{STEERING}", "param": HALF + STEERING, "code": HALF}}, 400),
        Answer({"error": {"message": f"No {HALF}{STEERING}", "code": 400}}),
        Answer({"detail": [HALF, STEERING]}, 422),
        Answer(b"\xff\xfe\x1b]0;owned\x07", 400),
        Answer("", 302, headers={"Location": "http://x/\x9b2J"}),
    ],
    ids=["text", "object", "under status 200", "list", "bytes", "redirect"],
)
async def test_an_error_of_one_session_fails_it_alone_and_steers_no_terminal(
    folder: Path, answer: Answer
) -> None:
    def reply(request: Received) -> Plan:
        if "Fly a kite" in request.body.decode() and asks(request) == "assistant":
            return answer
        return said(request)

    async with Endpoint([reply]) as endpoint:
        code, lines, err = await generate(folder, endpoint, "--json", "--limit", "4", "--concurrency", "1")
    assert (code, lines[-1]["done"]) == (4, 4), err
    assert lines[-1]["endings"] == {"max_messages": 3, "failed": 1}
    shown = err + bactrian("failures", "run.db", cwd=folder).stdout
    assert not set(shown) & CONTROLS
    assert "Traceback" not in err


async def test_a_reply_that_holds_half_a_character_everywhere_costs_no_session(folder: Path) -> None:
    def reply(request: Received) -> Plan:
        text = said(request)
        assert isinstance(text, str)
        if asks(request) == "lister":
            return completion(json.dumps([f"{task} {HALF}" for task in ("a", "b", "c", "d")]))
        whole = completion(f"{text} {HALF}{STEERING}", reasoning_content=HALF, role=f"assistant{HALF}")
        return whole | {"model": HALF, "system_fingerprint": HALF, "id": HALF, HALF: HALF}

    async with Endpoint([reply]) as endpoint:
        code, lines, err = await generate(folder, endpoint, "--json")
    assert (code, lines[-1]["done"]) == (0, 12), err
    assert not set(err) & CONTROLS


async def test_arguments_of_a_call_that_hold_half_a_character_cost_no_session(folder: Path) -> None:
    calls = [{"id": HALF, "type": "function", "function": {"name": HALF, "arguments": {HALF: HALF}}}]
    asked: set[bytes] = set()

    def reply(request: Received) -> Plan:
        if asks(request) == "assistant" and request.body not in asked and "seed" not in request.json:
            asked.add(request.body)
            return completion(None, finish="tool_calls", tool_calls=calls)
        return said(request)

    async with Endpoint([reply]) as endpoint:
        code, _, err = await generate(folder, endpoint, "--limit", "1")
    assert code == 0, err
    (session,) = await stored(folder)
    assert len(session.turns) == 4


async def test_a_key_that_is_no_text_is_told_in_a_line(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        environment = clean_environment() | {
            "OPENAI_API_KEY": b"sk-\xff\xfe-0123456789".decode(errors="surrogateescape")
        }
        where = ("--model", "openai:any", "--base-url", endpoint.url)
        process = Command(("generate", "small.toml", "--run", "run.db", *where), folder, environment)
        _, err = await process.communicate()
    assert process.returncode == 1
    assert "The key contains invalid characters." in err.decode()
    assert "Traceback" not in err.decode()
    assert endpoint.requests == []


@pytest.mark.system
@pytest.mark.parametrize("after", ["Mon, 01 Jan 99999999999999999999 00:00:00 GMT", "1e400", "nan", "-1e400"])
async def test_a_wait_that_is_no_time_is_ignored(folder: Path, after: str) -> None:
    asked = 0

    def reply(request: Received) -> Plan:
        nonlocal asked
        asked += 1
        return Answer("busy", status=429, headers={"Retry-After": after}) if asked == 3 else said(request)

    async with Endpoint([reply]) as endpoint:
        code, _, err = await generate(folder, endpoint, "--limit", "1")
    assert code == 0, err


@pytest.mark.slow
async def test_an_endpoint_that_goes_away_for_good_is_waited_for_three_times_the_longest_wait(
    folder: Path,
) -> None:
    async with Endpoint([said]) as endpoint:
        process = start(
            folder,
            endpoint,
            "--set",
            "endpoint.max_wait=0.5",
            "--json",
            "--set",
            "role_play.max_messages=4000",
        )
        while len(endpoint.requests) < 100:
            assert process.returncode is None
            await asyncio.sleep(0.01)
    out, err = await process.communicate()
    last = json.loads(out.splitlines()[-1])
    assert process.returncode == 4, err
    assert last["open"] == 12
    assert "Connection refused" in " ".join(last["reasons"])
