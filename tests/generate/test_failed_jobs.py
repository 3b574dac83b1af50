"""A job that fails, and a list that stays short, are told and taken up again on request."""

from __future__ import annotations

import json
from pathlib import Path

from tests.helpers.command import bactrian
from tests.helpers.endpoint import Answer, Endpoint, Plan, Received, completion
from tests.helpers.generation import asks, generate, said, stored


async def test_a_job_that_fails_is_kept_with_what_came_and_taken_up_again_on_request(folder: Path) -> None:
    broken = True

    def reply(request: Received) -> Plan:
        if broken and asks(request) == "assistant" and "Fly a kite" in request.json["messages"][0]["content"]:
            return Answer("<html>no</html>", content_type="text/html")
        return said(request)

    async with Endpoint([reply]) as endpoint:
        code, lines, _ = await generate(folder, endpoint, "--limit", "4", "--json")
        assert code == 4
        assert (lines[-1]["done"], lines[-1]["failed"]) == (4, 1)
        failed = next(session for session in await stored(folder) if session.id == "001_002")
        assert failed.ending is not None
        assert failed.ending.code == "failed"
        assert len(failed.turns) == 1
        shown = bactrian("failures", "run.db", cwd=folder)
        assert (shown.returncode, shown.stdout.count("001_002")) == (0, 1)
        assert "response: <html>no</html>" in shown.stdout
        told = [
            json.loads(line)
            for line in bactrian("failures", "run.db", "--json", cwd=folder).stdout.splitlines()
        ]
        assert [(one["session"], one["turns"], one["raw"]) for one in told] == [
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


async def test_a_bad_request_of_one_session_fails_that_one_alone(folder: Path) -> None:
    def reply(request: Received) -> Plan:
        if "Fly a kite" in request.body.decode() and asks(request) == "assistant":
            return Answer({"error": {"message": "No.", "param": "messages"}}, 400)
        return said(request)

    async with Endpoint([reply]) as endpoint:
        code, lines, _ = await generate(folder, endpoint, "--json", "--limit", "4", "--concurrency", "1")
    assert code == 4
    assert lines[-1]["endings"] == {"max_messages": 3, "failed": 1}


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
