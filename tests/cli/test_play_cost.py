"""What a single session may cost, where it is written, and what is said of both."""

from __future__ import annotations

import json
from pathlib import Path

from bactrian.api.status import read_status
from bactrian.store import open_store
from tests.helpers.command import Command, clean_environment
from tests.helpers.endpoint import Endpoint
from tests.helpers.generation import said

PLAY = (
    "play",
    "Bake bread",
    "--model",
    "openai:any",
    "--no-specify",
    "--set",
    "endpoint.price=10/100",
    "--run",
    "p.db",
)


async def run(folder: Path, endpoint: Endpoint, *arguments: str) -> tuple[int | None, str, str]:
    child = Command(arguments, folder, clean_environment(OPENAI_BASE_URL=endpoint.url))
    output, complaint = await child.communicate()
    return child.returncode, output.decode(), complaint.decode()


async def test_a_budget_stops_a_session_which_then_goes_on_with_the_command_it_names(tmp_path: Path) -> None:
    async with Endpoint([said]) as endpoint:
        code, _, complaint = await run(
            tmp_path,
            endpoint,
            *PLAY,
            "--set",
            "parameters.max_tokens=100",
            "--budget",
            "0.03",
            "--max-messages",
            "40",
        )
        assert code == 3
        paid = len(endpoint.requests)
        assert 0 < paid < 40
        command = complaint.rpartition("To continue: bactrian ")[2].split()
        assert command[0] == "resume"
        code, output, complaint = await run(
            tmp_path, endpoint, *command[:-1], "9", "--max-messages", str(paid + 2), "--json"
        )
        assert code == 0, complaint
        assert len(endpoint.requests) == paid + 2
        assert json.loads(output.splitlines()[-1])["code"] == "max_messages"


async def test_a_session_goes_on_at_the_address_that_it_was_begun_at(tmp_path: Path) -> None:
    async with Endpoint([said]) as endpoint:
        child = Command(
            (*PLAY, "--max-messages", "2", "--base-url", endpoint.url), tmp_path, clean_environment()
        )
        await child.communicate()
        assert (child.returncode, len(endpoint.requests)) == (0, 2)
        (name,) = await read_ids(tmp_path / "p.db")
        child = Command(("resume", "p.db", name, "--max-messages", "4"), tmp_path, clean_environment())
        _, complaint = await child.communicate()
        assert (child.returncode, len(endpoint.requests)) == (0, 4), complaint


async def read_ids(run: Path) -> list[str]:
    async with open_store(run, read_only=True) as store:
        return list(await store.list_created())


async def test_a_session_that_is_stored_says_that_nothing_new_was_asked(tmp_path: Path) -> None:
    async with Endpoint([said]) as endpoint:
        code, *_ = await run(tmp_path, endpoint, *PLAY, "--max-messages", "2", "--out", "talk.md")
        assert code == 0
        assert "Solution: Part" in (tmp_path / "talk.md").read_text("utf-8")
        asked = len(endpoint.requests)
        code, _, complaint = await run(tmp_path, endpoint, *PLAY, "--max-messages", "2", "--out", "talk.md")
        assert (code, len(endpoint.requests)) == (2, asked)
        assert "talk.md: This exists already." in complaint
        again = ("--max-messages", "2", "--out", "talk.json")
        code, _, complaint = await run(tmp_path, endpoint, *PLAY, *again)
        assert code == 0, complaint
        assert len(endpoint.requests) == asked
        assert len(json.loads((tmp_path / "talk.json").read_text("utf-8"))["turns"]) == 2
        kept = ("play", "Bake bread", "--model", "recorded:p.db", "--no-specify", "--max-messages", "2")
        code, _, complaint = await run(tmp_path, endpoint, *kept, "--no-keep")
        assert "Nothing new was asked" in complaint
        assert len(endpoint.requests) == asked


async def test_the_status_counts_what_the_session_counted(tmp_path: Path) -> None:
    async with Endpoint([said]) as endpoint:
        await run(tmp_path, endpoint, *PLAY, "--max-messages", "2", "--budget", "9")
        usd = (await read_status(tmp_path / "p.db")).usd
        assert usd is not None
        assert usd > 0
        # The table's price is OpenAI's own, and this server is another one.
        elsewhere = ("play", "tea", "--model", "openai:gpt-4o-mini", "--no-specify", "--run", "q.db")
        await run(tmp_path, endpoint, *elsewhere, "--base-url", endpoint.url, "--max-messages", "2")
        assert (await read_status(tmp_path / "q.db")).usd is None
