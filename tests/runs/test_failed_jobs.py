"""A job that fails, and a list that stays short, are told and taken up again on request."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.command import bactrian
from tests.helpers.endpoint import Answer, Endpoint, Plan, Received, completion
from tests.helpers.generation import asks, generate, said, stored


@pytest.mark.slow
async def test_a_job_that_fails_is_kept_with_what_came_and_taken_up_again_on_request(folder: Path) -> None:
    broken = True

    def reply(request: Received) -> Plan:
        if broken and asks(request) == "assistant" and "Fly a kite" in request.json["messages"][0]["content"]:
            return Answer("<html>no</html>", content_type="text/html")
        return said(request)

    async with Endpoint([reply]) as endpoint:
        code, lines, _ = await generate(
            folder, endpoint, "--limit", "4", "--json", "--set", "endpoint.max_wait=1"
        )
        assert code == 4
        assert (lines[-1]["done"], lines[-1]["failed"]) == (4, 1)
        failed = next(session for session in await stored(folder) if session.id == "001_002")
        assert failed.ending is not None
        assert failed.ending.code == "failed"
        assert len(failed.turns) == 1
        shown = bactrian("failures", "run.db", cwd=folder)
        assert (shown.returncode, shown.stdout.count("001_002")) == (0, 1)
        assert "response: <html>no</html>" in shown.stdout
        assert "1 failed; `bactrian resume run.db --retry-failed` asks again." in shown.stdout
        told = [
            json.loads(line)
            for line in bactrian("failures", "run.db", "--json", cwd=folder).stdout.splitlines()
        ]
        assert [(job["session"], job["turns"], job["raw"]) for job in told] == [
            ("001_002", 1, "<html>no</html>")
        ]
        assert told[0]["reason"]
        broken = False
        asked = len(endpoint.requests)
        assert (await generate(folder, endpoint, "--limit", "4"))[0] == 4
        assert len(endpoint.requests) == asked
        assert (await generate(folder, endpoint, "--limit", "4", "--retry-failed"))[0] == 0
        assert len(endpoint.requests) == asked + 3
    assert all(session.ending and session.ending.code == "max_messages" for session in await stored(folder))
    assert bactrian("failures", "run.db", cwd=folder).stdout == "None failed.\n"


async def test_a_list_that_stays_short_is_told(folder: Path) -> None:
    def reply(request: Received) -> Plan:
        return "1. Bake bread" if asks(request) == "lister" else said(request)

    async with Endpoint([reply]) as endpoint:
        code, lines, _ = await generate(folder, endpoint, "--json")
        assert code == 4
        assert lines[-1]["short_lists"]["task@001"] == {
            "has": 1,
            "wanted": 4,
            "why": "The replies contained no new items.",
        }
        assert len(await stored(folder)) == 3
        told = bactrian("failures", "run.db", cwd=folder).stdout.splitlines()
        assert told[0] == "The list task@001 stayed short: 1 of 4 items; --retry-failed asks for the rest."
        assert (len(told), "None failed." in told) == (3, False)


async def test_a_bad_request_of_one_session_fails_that_one_alone(folder: Path) -> None:
    def reply(request: Received) -> Plan:
        if "Fly a kite" in request.body.decode() and asks(request) == "assistant":
            return Answer({"error": {"message": "No.", "param": "messages"}}, 400)
        return said(request)

    async with Endpoint([reply]) as endpoint:
        code, lines, _ = await generate(folder, endpoint, "--json", "--limit", "4", "--concurrency", "1")
    assert code == 4
    assert lines[-1]["endings"] == {"max_messages": 3, "failed": 1}


_GIVEN = """
name = "small"
[[axes]]
name = "task"
count = 4
given = ["Bake bread", "Fly a kite", "Dress a wound", "Tell the time"]
[role_play]
assistant = "Helper"
user = "Student"
idea = "{{ task }}"
specify = false
max_messages = 2
"""


@pytest.mark.parametrize(
    "answer",
    [
        Answer({"error": {"message": "Your prompt was flagged.", "code": "invalid_prompt"}}, 400),
        Answer({"error": {"message": "String too long.", "param": "messages[1].content"}}, 400),
        Answer({"error": {"message": "It is a matter of temperature."}}, 422),
        Answer({"error": {"message": "blocked"}}, 403),
    ],
    ids=["code", "content", "text", "forbidden"],
)
async def test_prompts_that_are_refused_before_any_is_answered_cost_their_sessions_alone(
    folder: Path, answer: Answer
) -> None:
    (folder / "small.toml").write_text(_GIVEN)

    def reply(request: Received) -> Plan:
        told = request.body.decode()
        if "say hello" in told or "Tell the time" in told:
            return said(request)
        return answer

    async with Endpoint([reply]) as endpoint:
        code, lines, err = await generate(folder, endpoint, "--json", "--concurrency", "1")
        assert (code, lines[-1]["endings"]) == (4, {"failed": 3, "max_messages": 1}), err
        assert len(endpoint.requests) == 3 + 1 + 2
        code, lines, err = await generate(folder, endpoint, "--json", "--retry-failed")
        assert (code, lines[-1]["endings"]) == (4, {"failed": 3, "max_messages": 1}), err


@pytest.mark.parametrize("status", [400, 403])
async def test_an_endpoint_that_refuses_a_greeting_too_stops_the_run_at_once(
    folder: Path, status: int
) -> None:
    refusal = Answer({"error": {"message": "System messages are not supported."}}, status)
    async with Endpoint([refusal]) as endpoint:
        code, _, err = await generate(folder, endpoint)
        assert code == 1
        assert f"Every request is refused, a simple greeting too. The endpoint answered {status}: Sys" in err
        assert len(endpoint.requests) == 2
    shown = bactrian("failures", "run.db", cwd=folder).stdout
    assert f"The endpoint answered {status}: System messages are not supported." in shown
    assert "1 not answered; `bactrian resume run.db" in shown
    assert (
        "1 not answered; reasons: bactrian failures run.db" in bactrian("status", "run.db", cwd=folder).stdout
    )
    async with Endpoint([said]) as endpoint:
        assert (await generate(folder, endpoint))[0] == 0
    assert len(await stored(folder)) == 12
    assert bactrian("failures", "run.db", cwd=folder).stdout == "None failed.\n"


async def test_thirty_prompts_that_are_refused_before_any_is_answered_stop_the_command(folder: Path) -> None:
    tasks = [f"Build part {n}" for n in range(40)]
    recipe = _GIVEN.replace("count = 4", "count = 40")
    (folder / "small.toml").write_text(
        "".join(
            f"given = {json.dumps(tasks)}\n" if line.startswith("given") else line
            for line in recipe.splitlines(keepends=True)
        )
    )

    def reply(request: Received) -> Plan:
        hello = "say hello" in request.body.decode()
        return said(request) if hello else Answer({"error": {"message": "blocked"}}, 403)

    async with Endpoint([reply]) as endpoint:
        code, lines, err = await generate(folder, endpoint, "--concurrency", "1", "--json")
        assert code == 1
        assert "The first 30 requests were all refused." in err
        assert lines[-1]["endings"] == {"failed": 29}
        assert len(endpoint.requests) == 31
        code, lines, err = await generate(folder, endpoint, "--concurrency", "1", "--json")
        assert (code, lines[-1]["endings"]) == (4, {"failed": 40})


async def test_a_tool_that_nobody_offered_is_not_called_and_the_turn_asked_for_again(folder: Path) -> None:
    called = 0

    def reply(request: Received) -> Plan:
        nonlocal called
        if asks(request) == "assistant" and not called:
            called += 1
            calls = [{"id": "1", "type": "function", "function": {"name": "rm", "arguments": "{not json"}}]
            return completion(None, finish="tool_calls", tool_calls=calls)
        text = said(request)
        assert isinstance(text, str)
        return text

    async with Endpoint([reply]) as endpoint:
        code, _, err = await generate(folder, endpoint, "--limit", "1")
    assert code == 0, err
    (session,) = await stored(folder)
    assert [turn.text for turn in session.turns if "rm" in turn.text] == []
    assert len(session.turns) == 4
