"""A recipe becomes a run: each job once, in the same places, under one plan."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from bactrian.api.stored_run import open_run
from tests.helpers.endpoint import Endpoint, Plan, Received, completion
from tests.helpers.generation import RECIPE, asks, generate, said, start, stored


async def test_a_recipe_becomes_its_conversations(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        code, lines, err = await generate(folder, endpoint, "--json")
    assert code == 0, err
    sessions = {session.id: session for session in await stored(folder)}
    assert sorted(sessions) == [f"{role:03}_{task:03}" for role in (1, 2, 3) for task in (1, 2, 3, 4)]
    assert sessions["002_003"].values == {"role": "Pilot", "task": "Dress a wound"}
    assert sessions["002_003"].assistant.name == "Pilot"
    assert all(len(session.turns) == 4 for session in sessions.values())
    assert lines[-1]["event"] == "ended"
    assert (lines[-1]["done"], lines[-1]["calls"]) == (12, 12 * 4 + 3)
    assert lines[-1]["endings"] == {"max_messages": 12}


async def test_the_same_command_again_asks_for_nothing(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        await generate(folder, endpoint)
        before = len(endpoint.requests)
        code, _, _ = await generate(folder, endpoint)
        assert (code, len(endpoint.requests)) == (0, before)


async def test_a_limit_makes_the_first_jobs_and_a_larger_one_goes_on(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        await generate(folder, endpoint, "--limit", "2")
        assert [session.id for session in await stored(folder)] == ["001_001", "001_002"]
        assert Counter(map(asks, endpoint.requests)) == {"lister": 1, "user": 4, "assistant": 4}
        await generate(folder, endpoint, "--limit", "5")
        assert Counter(map(asks, endpoint.requests)) == {"lister": 2, "user": 10, "assistant": 10}


@pytest.mark.system
async def test_another_plan_is_refused_with_its_differences_and_can_be_forked(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        await generate(folder, endpoint, "--limit", "2")
        code, _, err = await generate(folder, endpoint, "--set", "max_messages=2")
        assert code == 2
        assert "recipe.role_play.max_messages: 4 → 2" in err
        assert "--fork" in err
        assert "never with a smaller one" in " ".join(err.split())
        before = Counter(map(asks, endpoint.requests))
        code, _, err = await generate(
            folder, endpoint, "--set", "max_messages=2", "--limit", "2", "--fork", "new.db"
        )
        assert code == 0, err
        assert Counter(map(asks, endpoint.requests)) - before == {"user": 2, "assistant": 2}
        asked = len(endpoint.requests)
        again = ["--set", "max_messages=2", "--limit", "2", "--fork", "new.db"]
        code, _, err = await generate(folder, endpoint, *again)
        assert (code, len(endpoint.requests)) == (0, asked), err
        # The lists were paid for in the run that they come from.
        paid = await asyncio.to_thread(lambda: open_run(folder / "new.db").usage.total)
        assert paid == 4 * 18
        code, _, err = await generate(folder, endpoint, "--set", "max_messages=1", "--fork", "new.db")
        assert code == 2
        assert "recipe.role_play.max_messages: 2 → 1" in err
        assert (await generate(folder, endpoint, "--fork", "run.db"))[0] == 2
    assert [len(session.turns) for session in await stored(folder, "new.db")] == [2, 2]
    assert [len(session.turns) for session in await stored(folder)] == [4, 4]


def count_long(request: Received) -> Plan:
    return completion(said(request)) | {"usage": {"prompt_tokens": 400, "completion_tokens": 7}}


async def test_figures_of_a_command_are_its_own_and_those_of_the_run_stand_beside_them(folder: Path) -> None:
    price = ["--price", "1/2", "--json"]
    async with Endpoint([count_long]) as endpoint:
        _, first, _ = await generate(folder, endpoint, "--limit", "2", *price)
        _, second, _ = await generate(folder, endpoint, "--limit", "6", *price, "--max-tokens", "1000000")
    one, two = first[-1], second[-1]
    assert (one["calls"], one["prompt_tokens"]) == (1 + 8, 400 * (1 + 8))
    assert (two["calls"], two["prompt_tokens"]) == (1 + 16, 400 * (1 + 16))
    assert two["usd"] == pytest.approx((400 * 1 + 7 * 2) * 17e-6)
    assert one["run_tokens"] == 407 * 9
    assert one["run_usd"] == pytest.approx(one["usd"])
    assert two["run_tokens"] == 407 * (9 + 17)
    assert two["run_usd"] == pytest.approx((400 * 1 + 7 * 2) * 26e-6)
    assert two["calls_per_second"] == pytest.approx(two["calls"] / two["seconds"], rel=0.2)


async def test_a_second_command_on_the_same_run_is_refused(folder: Path) -> None:
    refused = asyncio.Event()

    async def held(request: Received) -> Plan:
        await refused.wait()
        return said(request)

    async with Endpoint([held]) as endpoint:
        first = start(folder, endpoint)
        while not endpoint.requests:
            assert first.returncode is None, first.peek()
            await asyncio.sleep(0.02)
        code, _, err = await generate(folder, endpoint)
        assert code == 1
        assert "is being written by another process" in err
        refused.set()
        await first.communicate()
        assert first.returncode == 0


async def test_more_conversations_than_files_may_be_open_are_refused_before_any_request(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        code, _, err = await generate(folder, endpoint, "--concurrency", "10000000000")
        assert (code, endpoint.requests) == (2, [])
        assert "open files" in err


async def test_temperatures_that_are_set_reach_the_endpoint(folder: Path) -> None:
    settings = ("--set", "temperature=0.9", "--set", "specify=true", "--set", "specify_temperature=0.6")
    async with Endpoint([said]) as endpoint:
        code, _, err = await generate(folder, endpoint, *settings, "--limit", "1")
        sent = [request.json.get("temperature") for request in endpoint.requests]
    assert code == 0, err
    assert sorted(each for each in sent if each is not None) == [0.6, 0.9, 0.9, 0.9, 0.9]


async def test_a_system_that_changes_in_mid_run_is_recorded_with_each_turn_and_told(folder: Path) -> None:
    asked = 0

    def reply(request: Received) -> Plan:
        nonlocal asked
        asked += 1
        return {**completion(said(request)), "system_fingerprint": "fp_1" if asked < 4 else "fp_2"}

    async with Endpoint([reply]) as endpoint:
        code, lines, _ = await generate(folder, endpoint, "--limit", "1", "--concurrency", "1", "--json")
    assert code == 0
    (session,) = await stored(folder)
    assert {turn.fingerprint for turn in session.turns} == {"fp_1", "fp_2"}
    assert "user: served-model (fp_1) → served-model (fp_2)" in lines[-1]["changes"]


async def test_the_reasons_that_are_kept_are_few_however_many_jobs_cannot_begin(folder: Path) -> None:
    tasks = "\n".join(f"task {number}" for number in range(300))
    (folder / "tasks.txt").write_text(tasks)
    recipe = RECIPE.replace(
        'per = ["role"]\nask = "List {{ count }} tasks for {{ role }}."', 'file = "tasks.txt"'
    )
    recipe = recipe.replace("count = 4", "count = 300").replace(
        'idea = "{{ task }}"', "idea = '{% if task == role %}x{% endif %}'"
    )
    (folder / "small.toml").write_text(recipe)
    async with Endpoint([said]) as endpoint:
        code, lines, err = await generate(folder, endpoint, "--json")
    assert code == 4, err
    assert lines[-1]["failed"] == 900
    assert len(lines[-1]["refused"]) == 100
    assert endpoint.requests == []


async def test_the_result_is_standard_output_and_silence_is_kept(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        process = await generate(folder, endpoint, "--quiet", "--limit", "2")
        assert process == (0, [], "")
        code, _, err = await generate(folder, endpoint, "--limit", "2")
    assert code == 0
    assert "2 of 2" not in err
    assert "bactrian analyze run.db" in err
