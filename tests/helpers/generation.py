"""A small recipe, the endpoint's part in it, and the command that makes a run of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bactrian.records.session import Session
from bactrian.store import open_store
from tests.helpers.command import Command, clean_environment
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


def start(folder: Path, endpoint: Endpoint | None, *options: str) -> Command:
    """Start ``bactrian generate`` on the small recipe of ``folder``."""
    where = ["--model", "openai:any", "--base-url", endpoint.url] if endpoint else []
    run = () if "--run" in options else ("--run", "run.db")
    return Command(("generate", "small.toml", *run, *where, *options), folder, clean_environment())


async def generate(
    folder: Path, endpoint: Endpoint | None, *options: str
) -> tuple[int, list[dict[str, Any]], str]:
    """Exit code, JSON lines and what was said to the person."""
    process = start(folder, endpoint, *options)
    out, err = await process.communicate()
    lines = [json.loads(line) for line in out.decode().splitlines()] if "--json" in options else []
    return process.wait(), lines, err.decode()


async def stored(folder: Path, name: str = "run.db") -> list[Session]:
    async with open_store(folder / name, read_only=True) as store:
        return [session async for session in store.sessions()]
