"""A list in a file for each combination, as CAMEL's task lists are."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.helpers.command import bactrian
from tests.helpers.endpoint import Endpoint
from tests.helpers.generation import RECIPE, asks, generate, said, stored

ASK = 'ask = "List {{ count }} tasks for {{ role }}."'


@pytest.mark.parametrize("key", ['file = "', 'source = "file:'])
async def test_each_combination_has_its_own_file_and_a_missing_one_is_told(folder: Path, key: str) -> None:
    recipe = RECIPE.replace(ASK, f'{key}tasks/{{{{ role }}}}_Student.txt"').replace("count = 4", "count = 2")
    (folder / "small.toml").write_text(recipe)
    (folder / "tasks").mkdir()
    (folder / "tasks" / "Chef_Student.txt").write_text(
        "Here are two tasks:\n\n1. Bake bread\n2. 3D print a cake"
    )
    (folder / "tasks" / "Pilot_Student.txt").write_text("1. Fly a kite\n2. Read a map\n3. Left over\n")
    async with Endpoint([said]) as endpoint:
        code, _, err = await generate(folder, endpoint)
        assert code == 2
        assert "Nurse_Student.txt' cannot be read" in " ".join(err.split())
        (folder / "tasks" / "Nurse_Student.txt").write_text("Dress a wound\nTell the time\n")
        code, _, err = await generate(folder, endpoint)
        assert code == 0, err
        assert Counter(map(asks, endpoint.requests))["lister"] == 0
    made = {session.id: session.values["task"] for session in await stored(folder)}
    assert made == {
        "001_001": "Bake bread",
        "001_002": "3D print a cake",
        "002_001": "Fly a kite",
        "002_002": "Read a map",
        "003_001": "Dress a wound",
        "003_002": "Tell the time",
    }


async def test_an_item_never_leads_out_of_the_folder(folder: Path) -> None:
    recipe = RECIPE.replace(ASK, 'file = "tasks/{{ role }}.txt"').replace('"Chef"', '"../small"')
    (folder / "small.toml").write_text(recipe)
    (folder / "small.txt").write_text("1. Secret\n2. Other\n")
    (folder / "tasks").mkdir()
    async with Endpoint([said]) as endpoint:
        code, _, err = await generate(folder, endpoint, "--limit", "2")
        assert endpoint.requests == []
    assert code != 0
    assert "cannot be read" in " ".join(err.split())
    assert await stored(folder) == []


async def test_files_are_beside_the_recipe_and_the_model_gives_what_they_lack(folder: Path) -> None:
    data = folder / "data"
    (data / "tasks").mkdir(parents=True)
    (data / "small.toml").write_text(RECIPE.replace(ASK, f'{ASK}\nfile = "tasks/{{{{ role }}}}.txt"'))
    for role in ("Chef", "Pilot", "Nurse"):
        (data / "tasks" / f"{role}.txt").write_text("\ufeff1. Sweep the floor\n2. Bake bread\n")
    async with Endpoint([said]) as endpoint:
        where = ("--model", "openai:any", "--base-url", endpoint.url)
        done = await asyncio.to_thread(
            lambda: bactrian("generate", "data/small.toml", "--run", "run.db", *where, cwd=folder)
        )
        assert done.returncode == 0, done.stderr
        moved = data.rename(folder / "moved")
        done = await asyncio.to_thread(
            lambda: bactrian("generate", str(moved / "small.toml"), "--run", "run.db", *where, cwd=folder)
        )
        assert done.returncode == 0, done.stderr
        assert Counter(map(asks, endpoint.requests))["lister"] == 3
    tasks = {session.values["task"] for session in await stored(folder) if session.values["role"] == "Chef"}
    assert tasks == {"Sweep the floor", "Bake bread", "Fly a kite", "Dress a wound"}


async def test_a_placeholder_that_is_no_axis_is_told_where_it_stands(folder: Path) -> None:
    (folder / "small.toml").write_text(RECIPE.replace(ASK, 'file = "tasks/{{ rolle }}.txt"'))
    code, _, err = await generate(folder, None, "--forecast")
    assert code == 2
    assert "small.toml" in err
    assert "rolle" in err
