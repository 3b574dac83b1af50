"""A larger limit of messages goes on with the conversations that stopped at the smaller one."""

from __future__ import annotations

from asyncio import to_thread
from pathlib import Path

import pytest

from tests.helpers.command import bactrian
from tests.helpers.endpoint import Endpoint
from tests.helpers.generation import RECIPE, asks, generate, said, stored

SOCIETY = """
name = "pair"
task = "{task}"
[[agents]]
name = "cook"
role = "Cook"
[[agents]]
name = "guest"
role = "Guest"
[[stages]]
name = "plan"
user = "guest"
assistant = "cook"
max_messages = 2
[[stages]]
name = "build"
user = "guest"
assistant = "cook"
max_messages = 2
""".replace("{task}", "Cook soup")
OF_SOCIETY = """
name = "small"
[[axes]]
name = "dish"
count = 1
given = ["Soup"]
[society]
file = "pair.toml"
task = "Cook {{ dish }}"
"""


@pytest.mark.parametrize("setting", ["max_messages=6", "endings=paper,max_messages=6"])
async def test_a_run_goes_on_with_a_larger_limit_and_keeps_what_it_has(folder: Path, setting: str) -> None:
    recipe = RECIPE
    if setting.startswith("endings"):
        recipe = RECIPE.replace("max_messages = 4", 'endings = "paper,max_messages=4"')
    (folder / "small.toml").write_text(recipe)
    async with Endpoint([said]) as endpoint:
        assert (await generate(folder, endpoint, "--limit", "2"))[0] == 0
        before = {session.id: session.turns for session in await stored(folder)}
        endpoint.requests.clear()
        code, _, err = await generate(folder, endpoint, "--limit", "2", "--set", setting)
        assert code == 0, err
        assert "2 conversations may now have 6 messages, and will go on." in err
        assert [asks(request) for request in endpoint.requests].count("lister") == 0
        assert len(endpoint.requests) == 4
        code, _, err = await generate(folder, endpoint, "--limit", "2", "--set", setting)
        assert code == 0, err
        assert len(endpoint.requests) == 4
    after = await stored(folder)
    assert [len(session.turns) for session in after] == [6, 6]
    assert [session.ending and session.ending.code for session in after] == ["max_messages"] * 2
    assert {session.id: session.turns[:4] for session in after} == before


async def test_a_smaller_limit_is_another_plan(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        await generate(folder, endpoint, "--limit", "1")
        code, _, err = await generate(folder, endpoint, "--limit", "1", "--set", "max_messages=2")
    assert code == 2
    assert "never with a smaller one" in " ".join(err.split())
    assert [len(session.turns) for session in await stored(folder)] == [4]


async def test_another_change_beside_a_larger_limit_is_another_plan(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        await generate(folder, endpoint, "--limit", "1")
        larger = ("--set", "max_messages=8", "--set", "word_limit=3")
        code, _, err = await generate(folder, endpoint, "--limit", "1", *larger)
    assert code == 2
    assert "word_limit" in err


async def test_a_run_of_a_society_goes_on_with_its_last_stage(folder: Path) -> None:
    (folder / "pair.toml").write_text(SOCIETY)
    (folder / "small.toml").write_text(OF_SOCIETY)
    async with Endpoint([said]) as endpoint:
        assert (await generate(folder, endpoint))[0] == 0
        assert {session.id: len(session.turns) for session in await stored(folder)} == {
            "001": 2,
            "001-plan": 2,
        }
        code, _, err = await generate(folder, endpoint, "--set", "max_messages=4")
        assert code == 0, err
    assert {session.id: len(session.turns) for session in await stored(folder)} == {"001": 4, "001-plan": 2}


async def test_a_run_of_a_society_that_states_no_limit_goes_on(folder: Path) -> None:
    stages = SOCIETY.rpartition("[[stages]]")
    (folder / "pair.toml").write_text(stages[0] + stages[1] + stages[2].replace("max_messages = 2", ""))
    (folder / "small.toml").write_text(OF_SOCIETY)
    async with Endpoint([said]) as endpoint:
        code, _, err = await generate(folder, endpoint)
        assert code == 0, err
        lengths = {session.id: len(session.turns) for session in await stored(folder)}
        code, _, err = await generate(folder, endpoint, "--set", "max_messages=42")
        assert code == 0, err
    assert lengths == {"001": 40, "001-plan": 2}
    assert {session.id: len(session.turns) for session in await stored(folder)} == {"001": 42, "001-plan": 2}


async def test_a_society_that_is_played_goes_on_with_a_larger_limit(folder: Path) -> None:
    (folder / "pair.toml").write_text(SOCIETY)
    async with Endpoint([said]) as endpoint:
        for limit in ((), ("--max-messages", "4"), ("--max-messages", "6")):
            where = ("--run", "played.db", "--model", "openai:any", "--base-url", endpoint.url)
            done = await to_thread(
                lambda more=(*where, *limit): bactrian("play", "--society", "pair.toml", *more, cwd=folder)
            )
            assert done.returncode == 0, done.stderr
    assert sorted(len(session.turns) for session in await stored(folder, "played.db")) == [2, 6]


async def test_a_setting_that_is_given_twice_is_refused(folder: Path) -> None:
    twice = ("--set", "critic.role=A", "--set", "critic.role=B")
    code, _, err = await generate(folder, None, "--forecast", *twice)
    assert code == 2
    assert "'critic.role' is set twice" in err


async def test_a_forecast_refuses_a_pack_whose_axes_are_missing(folder: Path) -> None:
    code, _, err = await generate(folder, None, "--forecast", "--set", "prompts=code")
    assert code == 2
    assert "axis" in err or "axes" in err
