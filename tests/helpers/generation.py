"""A small recipe, the endpoint's part in it, and the command that makes a run of it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bactrian.records.session import Session
from bactrian.store import open_store
from tests.helpers.endpoint import Endpoint, Received

RECIPE = """
name = "small"
[[axes]]
name = "role"
count = 3
given = ["Chef", "Pilot", "Nurse"]
[[axes]]
name = "task"
count = 4
per = ["role"]
ask = "List {{ count }} tasks for {{ role }}."
[role_play]
assistant = "{{ role }}"
user = "Student"
idea = "{{ task }}"
specify = false
max_messages = 4
"""
TASKS = "1. Bake bread\n2. Fly a kite\n3. Dress a wound\n4. Tell the time"
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("OPENAI", "BACTRIAN"))
}


def asks(request: Received) -> str:
    """Who makes the request: ``lister``, ``user`` or ``assistant``."""
    first = request.json["messages"][0]
    if first["role"] == "user":
        return "lister"
    return "user" if "you instruct" in first["content"] else "assistant"


def said(request: Received) -> str:
    number = len(request.json["messages"])
    match asks(request):
        case "lister":
            return TASKS
        case "user":
            return f"Instruction: Do part {number}.\nInput: None"
        case _:
            return f"Solution: Part {number} is done.\nNext request."


async def start(folder: Path, endpoint: Endpoint | None, *options: str) -> asyncio.subprocess.Process:
    where = ["--model", "openai:any", "--base-url", endpoint.url] if endpoint else []
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "bactrian", "generate", "small.toml", "--run", "run.db", *where, *options),
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


async def generate(
    folder: Path, endpoint: Endpoint | None, *options: str
) -> tuple[int, list[dict[str, Any]], str]:
    """Exit code, JSON lines and what was said to the person."""
    process = await start(folder, endpoint, *options)
    out, err = await process.communicate()
    lines = [json.loads(line) for line in out.decode().splitlines()] if "--json" in options else []
    assert process.returncode is not None
    return process.returncode, lines, err.decode()


async def stored(folder: Path, name: str = "run.db") -> list[Session]:
    async with open_store(folder / name, read_only=True) as store:
        return [session async for session in store.sessions()]
