"""Small clauses of the paper's prompts that stand in no pack, as they arrive at an endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.command import bactrian
from tests.helpers.endpoint import Endpoint, Received
from tests.helpers.versatile import answer_anyone

pytestmark = pytest.mark.system


async def capture(folder: Path, *commands: Sequence[str]) -> list[Received]:
    async with Endpoint([answer_anyone]) as endpoint:
        for command in commands:
            asked = (*command, "--base-url", endpoint.url)
            done = await asyncio.to_thread(lambda asked=asked: bactrian(*asked, cwd=folder))
            assert done.returncode == 0, done.stderr
        return endpoint.requests


def find(requests: Sequence[Received], words: str) -> list[dict[str, Any]]:
    """The messages of the only request whose last message has these words."""
    (found,) = [
        request.json["messages"] for request in requests if words in str(request.json["messages"][-1])
    ]
    return found


GENERATE = (
    "generate",
    "ai-society",
    "--sample",
    "1",
    "--run",
    "s.db",
    "--model",
    "openai:any",
    "--seed",
    "1",
)


async def test_tasks_are_what_both_roles_can_achieve_together_and_are_specified_and_planned(
    tmp_path: Path,
) -> None:
    requests = await capture(tmp_path, (*GENERATE, "--set", "role_play.plan=true"))
    (listing,) = find(requests, "List 10 different tasks")
    assert "can achieve together, cooperatively" in listing["content"]
    system, question = find(requests, "Rewrite it as one concrete task")
    assert system == {"role": "system", "content": "You make a task more specific."}
    assert "50 words at most" in question["content"]
    system, _ = find(requests, "Divide their task into subtasks")
    assert system == {"role": "system", "content": "You divide a task into subtasks."}


async def test_a_solution_is_taken_from_the_conversation_alone_and_the_judge_scores_first(
    tmp_path: Path,
) -> None:
    judge = ("--judge", "openai:judge", "--model", "openai:any", "--tasks", "1")
    requests = await capture(tmp_path, GENERATE, ("evaluate", "agents", "s.db", *judge))
    system, question = find(requests, "Write the whole solution of the task")
    assert (
        "Take everything from the conversation alone, and add nothing that is not in it." in system["content"]
    )
    assert "You extract, you do not summarize." in system["content"]
    assert "is the specialist who instructs" in question["content"]
    assert "the specialist who solves" in question["content"]
    judged = [request.json for request in requests if request.json["model"] == "judge"]
    scored = [
        each for each in judged if "Give the scores first, then explain them." in str(each["messages"][-1])
    ]
    assert len(scored) == 2
    for each in scored:
        schema = each["response_format"]["json_schema"]["schema"]
        assert list(schema["properties"]) == ["assistant_1", "assistant_2", "reason"]
