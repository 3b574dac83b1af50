"""A server that sends the key back in an error does not get it into the run or the output. A reply is kept as it is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.helpers.command import bactrian
from tests.helpers.endpoint import Answer, Endpoint, Plan, Received, completion

KEY = "sk-reflected-0123456789abcdefghij"


def refuse(request: Received) -> Plan:
    return Answer({"error": {"message": f"Bad header: {request.headers['Authorization']}"}}, status=400)


def answer_in_vain(request: Received) -> Plan:
    return completion() | {"debug": dict(request.headers)}


@pytest.mark.system
@pytest.mark.parametrize("reply", [refuse, pytest.param(answer_in_vain, marks=pytest.mark.slow)])
async def test_a_key_that_a_server_sends_back_is_stored_and_shown_nowhere(
    folder: Path, reply: object
) -> None:
    async with Endpoint([reply]) as endpoint:  # type: ignore[list-item]
        words = (
            "generate",
            "small.toml",
            "--run",
            "run.db",
            "--model",
            "openai:any",
            "--set",
            "endpoint.max_wait=0.1",
        )
        done = await asyncio.to_thread(
            lambda: bactrian(*(*words, "--base-url", endpoint.url, "--json"), cwd=folder, OPENAI_API_KEY=KEY)
        )
        assert endpoint.requests[0].headers["Authorization"] == f"Bearer {KEY}"
    listed = await asyncio.to_thread(lambda: bactrian("failures", "run.db", "--json", cwd=folder))
    assert KEY not in done.stdout + done.stderr + listed.stdout + listed.stderr
    assert KEY.encode() not in b"".join(path.read_bytes() for path in folder.glob("run.db*"))
