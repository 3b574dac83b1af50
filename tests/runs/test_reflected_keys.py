"""A server that sends the key back does not get it into the run, the output or an error."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from bactrian.errors import ModelError
from bactrian.models.model import Request
from bactrian.models.openai import OpenAIModel
from bactrian.records.text import Text
from bactrian.records.turn import Message
from tests.helpers.command import bactrian
from tests.helpers.endpoint import Answer, Endpoint, Plan, Received, completion
from tests.helpers.generation import said

KEY = "sk-reflected-0123456789abcdefghij"


def refuse(request: Received) -> Plan:
    return Answer({"error": {"message": f"Bad header: {request.headers['Authorization']}"}}, status=400)


def answer_in_vain(request: Received) -> Plan:
    return completion() | {"debug": dict(request.headers)}


def debug(request: Received) -> dict[str, Any]:
    text = said(request)
    return completion(text) | {"debug": dict(request.headers), "system_fingerprint": KEY}


def debug_escaped(request: Received) -> Plan:
    body = json.dumps(debug(request) | {"debug": "".join(f"\\u{ord(char):04x}" for char in KEY)})
    return Answer(body.replace("\\\\u", "\\u"))


@pytest.mark.system
@pytest.mark.parametrize("reply", [refuse, answer_in_vain, debug, debug_escaped])
async def test_a_key_that_a_server_sends_back_is_stored_and_shown_nowhere(
    folder: Path, reply: object
) -> None:
    async with Endpoint([reply]) as endpoint:  # type: ignore[list-item]
        words = ("generate", "small.toml", "--run", "run.db", "--model", "openai:any", "--max-wait", "1")
        done = await asyncio.to_thread(
            lambda: bactrian(*(*words, "--base-url", endpoint.url, "--json"), cwd=folder, OPENAI_API_KEY=KEY)
        )
        assert endpoint.requests[0].headers["Authorization"] == f"Bearer {KEY}"
    listed = await asyncio.to_thread(lambda: bactrian("failures", "run.db", "--json", cwd=folder))
    assert KEY not in done.stdout + done.stderr + listed.stdout + listed.stderr
    assert KEY.encode() not in b"".join(path.read_bytes() for path in folder.glob("run.db*"))


def stream(*pieces: str, finish: str | None = "stop") -> Answer:
    """Return a streamed reply with these pieces of text."""
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": {"content": piece}}], "debug": KEY} for piece in pieces
    ]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    return Answer(body, content_type="text/event-stream")


@pytest.mark.parametrize("ends", [True, False], ids=["whole", "cut off"])
async def test_a_key_that_is_streamed_back_in_pieces_is_stored_and_shown_nowhere(ends: bool) -> None:
    pieces = ["Use sk-", *(KEY[3:][at : at + 3] for at in range(0, len(KEY), 3)), ". Then sk-"]
    shown: list[str] = []
    ask = Request((Message("user", Text("Hello.")),), on_text=shown.append)
    async with Endpoint([stream(*pieces, finish="stop" if ends else None)]) as endpoint:
        model = OpenAIModel("any", base_url=endpoint.url, key=KEY)
        try:
            reply = await model.reply(ask)
            text, raw = reply.text, reply.raw
        except ModelError as error:
            text, raw = "", error.sample
        await model.close()
    told = "".join(shown)
    assert KEY not in told + text
    assert KEY.encode() not in raw
    assert KEY[6:9] not in raw.decode()
    assert told.startswith("Use …ghij. Then")
    if ends:
        assert text == told == "Use …ghij. Then sk-"


async def test_the_password_of_an_address_that_a_server_sends_back_is_stored_and_shown_nowhere(
    folder: Path,
) -> None:
    password = "a-password-of-an-address"
    encoded = base64.b64encode(f"me:{password}".encode()).decode()

    def reply(request: Received) -> Plan:
        assert request.headers["Authorization"] == f"Basic {encoded}"
        return completion(f"{said(request)} {password}") | {"debug": dict(request.headers)}

    async with Endpoint([reply]) as endpoint:
        url = endpoint.url.replace("://", f"://me:{password}@")
        words = ("generate", "small.toml", "--run", "run.db", "--model", "openai:any", "--base-url", url)
        done = await asyncio.to_thread(lambda: bactrian(*words, "--limit", "1", "--json", cwd=folder))
        assert done.returncode == 0, done.stderr
    stored = b"".join(path.read_bytes() for path in folder.glob("run.db*"))
    assert password.encode() not in stored
    assert encoded.encode() not in stored
