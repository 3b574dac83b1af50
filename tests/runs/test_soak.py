"""Three hundred conversations through a server that fails every fifth time, killed six times on the way."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.helpers.endpoint import Answer, Endpoint, Plan, Raw, Received, completion
from tests.helpers.generation import asks, generate, said, start, stored

CONVERSATIONS = 300
KILLS = 6
WINDOW = 24
RECIPE = f"""
name = "small"
[[axes]]
name = "task"
count = {CONVERSATIONS}
file = "tasks.txt"
[role_play]
assistant = "Chef"
user = "Student"
idea = "{{{{ task }}}}"
specify = false
max_messages = 2
"""
FAULTS: tuple[Plan, ...] = (
    Answer("slow down", status=429),
    Answer("slow down", status=429, headers={"Retry-After": "0.01"}),
    Answer("<html>gone</html>", status=502, content_type="text/html"),
    Raw((), "reset"),
    Raw((b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{",)),
    Answer(b'{"choices": [{"message"'),
    Answer(b""),
    completion(""),
)


@pytest.mark.soak
async def test_every_conversation_is_whole_none_is_there_twice_and_little_is_paid_twice(
    tmp_path: Path,
) -> None:
    (tmp_path / "small.toml").write_text(RECIPE)
    (tmp_path / "tasks.txt").write_text("\n".join(f"Cook dish {number}" for number in range(CONVERSATIONS)))
    chance = random.Random(5)
    answered: Counter[tuple[str, bytes]] = Counter()

    def reply(request: Received) -> Plan:
        if chance.random() < 0.2:
            return chance.choice(FAULTS)
        answered[asks(request), request.body] += 1
        return said(request)

    killed = 0
    async with Endpoint([reply]) as endpoint:
        for kill in range(KILLS):
            process = start(tmp_path, endpoint, "--concurrency", str(WINDOW), "--json")
            enough = (kill + 1) * 2 * CONVERSATIONS / (KILLS + 2)
            while answered.total() < enough and process.returncode is None:
                await asyncio.sleep(0.01 + chance.random() / 10)
            if process.returncode is None:
                process.kill()
                killed += 1
            await process.communicate()
        code, err = 1, ""
        # What failed for good, because it was unlucky five times in a row, is taken up again.
        for _ in range(3):
            code, _, err = await generate(tmp_path, endpoint, "--concurrency", str(WINDOW), "--retry-failed")
            if code == 0:
                break
    assert code == 0, err
    assert killed == KILLS
    sessions = await stored(tmp_path)
    assert len(sessions) == len({session.id for session in sessions}) == CONVERSATIONS
    for session in sessions:
        assert [turn.number for turn in session.turns] == [1, 2]
        assert session.ending is not None
        assert session.ending.code == "max_messages"
    twice = sum(count - 1 for count in answered.values())
    assert twice <= KILLS * WINDOW
