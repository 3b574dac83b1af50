"""Jobs of one question and its answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import bactrian as bt
from tests.helpers.endpoint import Endpoint, Plan, Received
from tests.helpers.generation import asks, generate, stored


async def test_answers_are_stored_with_their_questions(folder: Path) -> None:
    (folder / "small.toml").write_text(
        """
name = "sums"
[[axes]]
name = "problem"
count = 3
each = true
ask = "Write a problem."
[answer]
role = "Mathematician"
system = "You are a Mathematician. Solve it."
question = "{{ problem }}"
"""
    )
    problems = iter(["What is\n1 + 1?", "What is 2 + 3?", "What is 8 * 7?"])

    def reply(request: Received) -> Plan:
        return next(problems) if asks(request) == "lister" else "It is a number."

    async with Endpoint([reply]) as endpoint:
        code, _, err = await generate(folder, endpoint)
    assert code == 0, err
    sessions = await stored(folder)
    assert [turn.text for turn in sessions[0].turns] == ["What is\n1 + 1?", "It is a number."]
    assert sessions[0].assistant.name == "Mathematician"
    assert {session.ending.code for session in sessions if session.ending} == {"answered"}
    assert sessions[2].values == {"problem": "What is 8 * 7?"}


async def test_a_plain_script_answers_a_question_with_its_first_line(tmp_path: Path) -> None:
    asked = bt.recipe(
        "math", topic=["Sums"], sub_topic=["Small ones"], problem=["What is 1 + 1?", "What is 2 + 3?"]
    )
    model = bt.Scripted(["It is a number."])
    run = await asyncio.to_thread(lambda: bt.generate(asked, run=tmp_path / "sums.db", model=model))
    assert [session.turns[1].text for session in run.select()] == ["It is a number."] * 2
    assert run.failures() == []


@pytest.mark.system
async def test_a_limit_asks_for_no_more_single_items_than_its_jobs_need(folder: Path) -> None:
    (folder / "small.toml").write_text(
        """
name = "sums"
[[axes]]
name = "problem"
count = 50
each = true
ask = "Write a problem."
[answer]
role = "Mathematician"
system = "Solve it."
question = "{{ problem }}"
"""
    )
    numbers = iter(range(50))

    def reply(request: Received) -> Plan:
        return f"What is {next(numbers)} + 1?" if asks(request) == "lister" else "A number."

    async with Endpoint([reply]) as endpoint:
        for limit in (2, 5):
            code, _, err = await generate(folder, endpoint, "--limit", str(limit))
            assert code == 0, err
            assert len(endpoint.requests) == 2 * limit
            _, left, _ = await generate(folder, endpoint, "--limit", str(limit), "--forecast", "--json")
            assert left[-1]["calls"]["value"] == 0
    assert [session.task.original for session in await stored(folder)] == [
        f"What is {n} + 1?" for n in range(5)
    ]


@pytest.mark.system
async def test_equal_problems_of_separate_questions_are_kept_counted_and_marked(folder: Path) -> None:
    (folder / "small.toml").write_text(
        """
name = "sums"
[[axes]]
name = "problem"
count = 5
each = true
ask = "Write a problem."
[answer]
role = "Mathematician"
system = "Solve it."
question = "{{ problem }}"
"""
    )
    problems = iter(
        ["What is 1 + 1?", "What is 2 + 2?", "what is 1 +  1?", "What is 3 + 3?", "What is 2 + 2?"]
    )

    def reply(request: Received) -> Plan:
        return next(problems) if asks(request) == "lister" else "A number."

    async with Endpoint([reply]) as endpoint:
        code, _, err = await generate(folder, endpoint)
        assert code == 0, err
        assert len(endpoint.requests) == 10
    sessions = await stored(folder)
    assert len(sessions) == 5
    numbers = [session.values.get("duplicate_of") for session in sessions]
    equal = [" ".join(session.task.original.casefold().split()) for session in sessions]
    first = [equal.index(text) + 1 for text in equal]
    assert numbers == [None if at == number else str(at) for number, at in enumerate(first, 1)]
    assert sum(number is not None for number in numbers) == 2
