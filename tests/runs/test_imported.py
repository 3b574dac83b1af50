"""An imported session is never a job, and a job is never an imported session."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.command import bactrian
from tests.helpers.endpoint import Answer, Endpoint
from tests.helpers.generation import generate, said, stored

CHAT = {
    "role_1": "Chef_RoleType.ASSISTANT",
    "role_2": "Student_RoleType.USER",
    "id": "001_001",
    "original_task": "Roast a goose",
    "specified_task": "Roast a goose for ten",
    "message_1": {"role_type": "USER", "role_name": "Student", "role": "user", "content": "Instruction: Go."},
    "message_2": {
        "role_type": "ASSISTANT",
        "role_name": "Chef",
        "role": "user",
        "content": "Solution: Done.",
    },
    "termination_reason": "max_num_messages",
    "num_messages": 2,
}


@pytest.mark.system
async def test_generate_makes_the_jobs_whose_ids_imported_sessions_have(folder: Path) -> None:
    chats = folder / "chats"
    chats.mkdir()
    for name in ("001_001", "002_003"):
        (chats / f"{name}.json").write_text(json.dumps(CHAT | {"id": name}))
    assert bactrian("import", str(chats), "--run", "run.db", cwd=folder).returncode == 0
    async with Endpoint([said]) as endpoint:
        for _ in range(2):
            code, lines, _ = await generate(folder, endpoint, "--limit", "8", "--json")
            assert code == 0
            last = lines[-1]
            assert (last["done"], last["total"]) == (8, 8)
    assert bactrian("import", str(chats), "--run", "run.db", cwd=folder).returncode == 0
    sessions = {session.id: session for session in await stored(folder)}
    assert len(sessions) == 10
    assert sessions["001_001"].task.original == "Roast a goose"
    assert sessions["001_001-made"].task.original == "Bake bread"
    assert len(sessions["002_003"].turns) == 2


async def test_an_import_never_ends_a_job_that_is_under_way(folder: Path) -> None:
    async with Endpoint([said, said, Answer(status=401)]) as endpoint:
        await generate(folder, endpoint, "--limit", "1")
    begun = await stored(folder)
    assert begun
    assert begun[0].ending is None
    chats = folder / "chats"
    chats.mkdir()
    (chats / "001_001.json").write_text(json.dumps(CHAT))
    assert bactrian("import", str(chats), "--run", "run.db", cwd=folder).returncode == 0
    after = {session.id: session for session in await stored(folder)}
    assert len(after) == len(begun) + 1
    assert all(after[session.id] == session for session in begun)


async def test_the_name_of_a_job_beside_an_imported_session_may_itself_be_imported(folder: Path) -> None:
    chats = folder / "chats"
    chats.mkdir()
    for name in ("001_001", "001_001-made", "001_002-made"):
        (chats / f"{name}.json").write_text(json.dumps(CHAT | {"id": name}))
    assert bactrian("import", str(chats), "--run", "run.db", cwd=folder).returncode == 0
    async with Endpoint([said]) as endpoint:
        for _ in range(2):
            code, lines, _ = await generate(folder, endpoint, "--limit", "2", "--json")
            assert (code, lines[-1]["done"]) == (0, 2)
    made = {session.id: session.task.original for session in await stored(folder)}
    assert made.pop("001_001-made-made") == "Bake bread"
    assert made.pop("001_002") == "Fly a kite"
    assert set(made.values()) == {"Roast a goose"}
