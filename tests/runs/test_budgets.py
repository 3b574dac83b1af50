"""A run stops before it has cost more than it may."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from bactrian.api.stored_run import open_run
from benchmarks.budgets import Script, answer, serve, spend
from tests.helpers.command import bactrian
from tests.helpers.endpoint import Answer, Endpoint, Plan, Received, completion
from tests.helpers.generation import asks, generate, said, stored


@pytest.mark.system
async def test_a_budget_stops_the_run_before_it_is_passed_and_a_larger_one_goes_on(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        limits = ["--price", "1000/1000", "--set", "task.max_tokens=1000", "--concurrency", "1"]
        budget = [*limits, "--json", "--budget"]
        code, lines, err = await generate(folder, endpoint, *budget, "2.8")
        assert code == 3
        assert "of the limit of $2.80 is left" in err
        assert 0 < lines[-1]["usd"] <= 2.8
        asked = len(endpoint.requests)
        assert 3 < asked < 12 * 4
        code, lines, _ = await generate(folder, endpoint, *budget, "100")
        assert code == 0
        assert lines[-1]["done"] == 12
        assert len(endpoint.requests) == 12 * 4 + 3


async def test_a_limit_on_tokens_counts_what_earlier_commands_used(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        code, _, _ = await generate(folder, endpoint, "--limit", "1")
        assert code == 0
        asked = len(endpoint.requests)
        code, _, err = await generate(folder, endpoint, "--max-tokens", "20")
        assert (code, len(endpoint.requests)) == (3, asked)
        assert "limit of 20" in err
    assert " of 20\n" in bactrian("status", "run.db", cwd=folder).stdout


async def test_a_budget_without_a_price_is_refused_before_anything_is_made(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        code, _, err = await generate(folder, endpoint, "--budget", "1")
    assert code == 2
    assert "requires the price of 'openai:any'" in err
    assert "--price" in err
    assert endpoint.requests == []
    assert not (folder / "run.db").exists()


@pytest.mark.slow
async def test_replies_that_cost_and_carry_nothing_count_over_a_resume_too(folder: Path) -> None:
    usage = {"prompt_tokens": 200, "completion_tokens": 100}

    def reply(request: Received) -> Plan:
        return said(request) if asks(request) == "lister" else {"choices": [], "usage": usage}

    async with Endpoint([reply]) as endpoint:
        limits = ["--max-tokens", "6000", "--concurrency", "2", "--set", "endpoint.max_wait=1", "--json"]
        code = 0
        for _ in range(3):
            code, _, err = await generate(folder, endpoint, *limits, "--retry-failed")
            assert code in (3, 4), err
        assert code == 3
        paid = sum(asks(request) != "lister" for request in endpoint.requests)
    assert paid * 300 <= 6000


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        Script(),
        pytest.param(Script(30, 0.4, 120, 600), marks=pytest.mark.soak),
        pytest.param(Script(8, 0.5, 30, 80), marks=pytest.mark.soak),
    ],
    ids=["usual", "large", "small"],
)
async def test_a_budget_is_spent_on_conversations_that_end(tmp_path: Path, script: Script) -> None:
    server, url = await serve(script)
    try:
        mean = (await spend(url, None, 20, tmp_path)).spent / 20
        pays_for_twenty = await spend(url, 20 * mean, 400, tmp_path)
    finally:
        await server.cleanup()
    assert pays_for_twenty.in_ended >= 0.9 * pays_for_twenty.spent
    assert pays_for_twenty.in_ended >= 0.8 * pays_for_twenty.budget
    assert pays_for_twenty.spent <= pays_for_twenty.budget


@pytest.mark.system
async def test_no_more_lists_are_asked_for_than_a_small_budget_can_use(tmp_path: Path) -> None:
    def answer_either(request: Received) -> Plan:
        listing = "List 10 tasks" in str(request.json["messages"][-1]["content"])
        lists.append(listing)
        return answer(request.json, Script(8, 0.5, 30, 80))

    lists: list[bool] = []
    async with Endpoint([answer_either]) as endpoint:
        made = await spend(endpoint.url, 0.02, 60, tmp_path, seed=1)
    # A list for each conversation, which are sixty with enough money.
    assert made.ended >= 8
    assert sum(lists) <= made.ended + made.left_open + 1
    assert made.in_ended >= 0.6 * made.budget
    assert made.spent <= made.budget


def cost(request: Received) -> Plan:
    """The usual reply, at 600 tokens a turn."""
    text = said(request)
    usage = {"prompt_tokens": 400, "completion_tokens": 200}
    return text if asks(request) == "lister" else completion(text) | {"usage": usage}


LONG = ["--set", "role_play.max_messages=40", "--set", "task.max_tokens=50", "--json"]
"""Conversations of 40 messages: 24,000 tokens each."""


async def test_a_budget_for_less_than_one_conversation_begins_one_only(folder: Path) -> None:
    async with Endpoint([cost]) as endpoint:
        code, lines, err = await generate(folder, endpoint, *LONG, "--max-tokens", "9000")
    assert code == 3
    assert "limit of 9,000" in err
    assert (lines[-1]["done"], lines[-1]["left_open"]) == (0, 1)
    assert len(await stored(folder)) == 1


async def test_a_larger_budget_ends_what_the_first_left_open_before_it_begins_more(folder: Path) -> None:
    async with Endpoint([cost]) as endpoint:
        await generate(folder, endpoint, *LONG, "--max-tokens", "9000")
        (begun,) = await stored(folder)
        code, lines, _ = await generate(folder, endpoint, *LONG, "--max-tokens", "30000")
        first, *others = await stored(folder)
    assert code == 3
    assert (first.id, len(first.turns)) == (begun.id, 40)
    assert len(begun.turns) < 40
    assert (lines[-1]["done"], others) == (1, [])


@pytest.mark.slow
async def test_calls_cost_what_they_did_when_they_were_made(folder: Path) -> None:
    breaks = False

    def reply(request: Received) -> Plan:
        return Answer(status=400) if breaks and len(request.json["messages"]) > 3 else said(request)

    async def make(limit: int, *options: str, code: int = 0) -> float | None:
        found, lines, err = await generate(folder, endpoint, "--json", "--limit", str(limit), *options)
        assert found == code, err
        (told,) = read_costs(folder, "run.db", "status")
        assert lines[-1]["run_usd"] == told
        return told

    call = 18 / 1e6  # at a dollar for a million tokens: 11 of the prompt, 7 of the reply
    async with Endpoint([reply]) as endpoint:
        assert await make(1) is None
        # The list and four turns have no price yet.
        assert await make(1, "--price", "1/1") == pytest.approx(5 * call)
        assert await make(1, "--price", "100/100") == pytest.approx(5 * call)
        assert await make(2, "--price", "10/10") == pytest.approx(5 * call + 40 * call)
        # A conversation is left in the middle, and goes on at another price.
        breaks = True
        assert await make(3, "--price", "10/10", code=4) == pytest.approx(65 * call)
        assert len((await stored(folder))[-1].turns) == 2
        breaks = False
        assert await make(3, "--price", "1000/1000", "--retry-failed") == pytest.approx(2065 * call)
        # Conversations that had ended before do not change, and a budget counts what all cost.
        assert await make(3, "--price", "1/1", "--budget", "0.03") == pytest.approx(2065 * call)
        _, _, err = await generate(folder, endpoint, "--limit", "4", "--price", "1/1", "--budget", "0.03")
        assert "$0.037 are spent already" in err
    assert read_costs(folder, "run.db", "analyze") == pytest.approx([2065 * call])
    assert (await asyncio.to_thread(open_run, folder / "run.db")).price == "1/1"


async def test_a_conversation_that_goes_on_at_another_price_costs_both(folder: Path) -> None:
    def play(messages: int, price: str) -> float:
        done = bactrian(
            *words, "--max-messages", str(messages), "--set", f"endpoint.price={price}", cwd=folder
        )
        assert done.returncode == 0, done.stderr
        (told,) = read_costs(folder, "tea.db", "status")
        return told or 0.0

    call = 18 / 1e6
    async with Endpoint([said]) as endpoint:
        words = ("play", "Tea", "--no-specify", "--model", "openai:any", "--base-url", endpoint.url)
        words = (*words, "--run", "tea.db")
        assert await asyncio.to_thread(play, 2, "1/1") == pytest.approx(2 * call)
        assert await asyncio.to_thread(play, 4, "10/10") == pytest.approx(22 * call)
        assert await asyncio.to_thread(play, 6, "3/3") == pytest.approx(28 * call)
    assert read_costs(folder, "tea.db", "analyze", options=("--price", "9/9")) == pytest.approx([28 * call])


def read_costs(folder: Path, run: str, *commands: str, options: tuple[str, ...] = ()) -> list[float | None]:
    """What commands say of a run's cost."""
    told: list[float | None] = []
    for command in commands:
        done = bactrian(command, run, "--json", *options, cwd=folder)
        assert done.returncode == 0, done.stderr
        facts = json.loads(done.stdout)
        told.append(facts.get("usage", facts)["usd"])
    return told


@pytest.mark.system
async def test_a_smaller_limit_and_a_play_in_the_same_run_are_counted_apart_from_its_jobs(
    folder: Path,
) -> None:
    async with Endpoint([said]) as endpoint:
        await generate(folder, endpoint, "--limit", "3")
        await generate(folder, endpoint, "--limit", "1")
    script = json.dumps(
        {"user": ["Instruction: Boil.\nInput: None"], "assistant": ["Solution: Hot.\nNext request."]}
    )
    (folder / "play.json").write_text(script)
    play = (
        "play",
        "Tea",
        "--no-specify",
        "--model",
        "scripted:play.json",
        "--max-messages",
        "2",
        "--run",
        "run.db",
    )
    assert bactrian(*play, cwd=folder).returncode == 0
    assert (
        "ended; 3 conversations beside, which all lines below count, too; "
        in bactrian("status", "run.db", cwd=folder).stdout
    )
    (line,) = (line for line in bactrian("runs", ".", cwd=folder).stdout.splitlines() if "run.db" in line)
    assert " 1/1 " in line
