"""What a single session may cost, where it is written, and what is said of both."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

import bactrian as bt
from bactrian.api.status import read_status
from bactrian.models.model import Request, find_spent
from bactrian.models.openai import OpenAIModel
from bactrian.records.text import Text
from bactrian.records.turn import Message, Usage
from bactrian.store import open_store
from tests.helpers.command import Command, bactrian, clean_environment
from tests.helpers.endpoint import Endpoint, Plan, Raw, Received, streamed
from tests.helpers.generation import RECIPE, asks, said, start
from tests.helpers.terminal import at_a_terminal

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


@pytest.mark.system
async def test_a_reply_that_ctrl_c_breaks_off_is_counted_as_what_came_of_it(tmp_path: Path) -> None:
    chunks = streamed("Solution: one two three four five six seven eight nine ten.").split(b"\n\n")
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    begun = Raw((head, *(part + b"\n\n" for part in chunks[:9])), "hang", pause=0.1)
    replies = ("Instruction: Bake.\nInput: None", begun)
    async with Endpoint(replies) as endpoint:
        play = (*PLAY, "--base-url", endpoint.url, "--max-messages", "4")
        code, seen = await asyncio.to_thread(at_a_terminal, tmp_path, play, keys=[(b"six", b"\x03")])
        prompt = len(endpoint.requests[1].body)
    assert code == 130
    status = await read_status(tmp_path / "p.db")
    lost = status.usage - Usage(11, 7, 4)
    # The endpoint says how many bytes a token has: the first prompt had 11.
    assert 0 < lost.prompt < prompt
    assert 7 <= lost.completion <= round(len("Solution: one two three four five six seven eight ") / 4)
    assert (status.usage.estimated, status.facts.messages, status.unanswered) == (True, 1, 0)
    assert status.usd == pytest.approx((10 * status.usage.prompt + 100 * status.usage.completion) / 1e6)
    told = " ".join(seen.decode().split())
    assert f"Interrupted. A reply was broken off: about {lost.prompt:,} prompt and " in told
    assert f" {lost.completion} completion tokens, $" in told
    assert f"about {status.usage.prompt:,} prompt" in str(status)
    assert bt.open_run(tmp_path / "p.db").usage == status.usage


@pytest.mark.system
@pytest.mark.parametrize(
    ("silent", "more"), [("user", ()), ("assistant", ()), ("user", ("--processes", "2"))]
)
async def test_replies_of_a_run_that_are_broken_off_are_counted_and_are_no_failures(
    tmp_path: Path, silent: str, more: Sequence[str]
) -> None:
    (tmp_path / "small.toml").write_text(RECIPE)

    async def answer(request: Received) -> Plan:
        return said(request) if asks(request) != silent else Raw(ending="hang")

    async with Endpoint([answer]) as endpoint:
        terms = ("--run", "p.db", "--price", "10/100", "--concurrency", "1", *more)
        process = start(tmp_path, endpoint, *terms)
        while not endpoint.requests or asks(endpoint.requests[-1]) != silent:
            await asyncio.sleep(0.05)
        process.send_signal(signal.SIGINT)
        while "what is in flight" not in process.peek():
            await asyncio.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, complaint = await process.communicate()
    status = await read_status(tmp_path / "p.db")
    assert process.returncode == 130
    assert b"A reply was broken off: about " in complaint
    # Nobody may have spoken yet: it has begun all the same, as the status says.
    assert b"1 conversation is unfinished" in complaint
    assert (status.usage.estimated, status.unanswered, status.open) == (True, 0, 1)
    listed = bactrian("failures", "p.db", cwd=tmp_path)
    assert "broken off" not in listed.stdout


async def test_a_request_that_waited_to_be_sent_costs_nothing(tmp_path: Path) -> None:
    async with Endpoint([said]) as endpoint:
        model = OpenAIModel("any", base_url=endpoint.url)
        asking = asyncio.ensure_future(model.reply(Request([Message("user", Text("Go on."))])))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await asking
        await model.close()
    assert (find_spent(caught.value), endpoint.requests) == (None, [])
