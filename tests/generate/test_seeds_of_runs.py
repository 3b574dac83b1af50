"""What a run asks with: seeds that no two requests share, or those of the run's own time."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.helpers.endpoint import Endpoint, Received
from tests.helpers.generation import RECIPE, generate, said


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(RECIPE.replace("specify = false", "specify = true"))
    return tmp_path


def answer(request: Received) -> str:
    first = request.json["messages"][0]
    specifies = first["role"] == "user" and "List" not in first["content"]
    return "Bake a very small bread." if specifies else said(request)


async def ask_all(folder: Path, *options: str) -> list[Received]:
    async with Endpoint([answer]) as endpoint:
        code, _, err = await generate(folder, endpoint, "--seed", "5", *options)
        assert code == 0, err
        return endpoint.requests


async def test_no_two_requests_of_a_run_have_one_seed(folder: Path) -> None:
    seeds = [request.json["seed"] for request in await ask_all(folder)]
    assert len(seeds) == 3 + 12 * (1 + 4)
    assert len(set(seeds)) == len(seeds)


async def test_the_same_run_made_again_has_the_same_seeds(folder: Path) -> None:
    first = await ask_all(folder)
    (folder / "run.db").rename(folder / "first.db")
    again = await ask_all(folder, "--concurrency", "1")
    assert {request.body for request in again} == {request.body for request in first}


async def test_a_run_that_began_with_other_seeds_goes_on_with_them(folder: Path) -> None:
    await ask_all(folder, "--limit", "1")
    with closing(sqlite3.connect(folder / "run.db")) as run:
        (frozen,) = run.execute("SELECT recipe FROM run").fetchone()
        content = json.loads(frozen)
        assert content.pop("seeds") == 2
        run.execute("UPDATE run SET recipe = ?", (json.dumps(content),))
        run.commit()
    lists, tasks, turns = [], [], []
    for request in await ask_all(folder):
        first = request.json["messages"][0]
        kind = lists if "List" in first["content"] else tasks if first["role"] == "user" else turns
        kind.append(request.json["seed"])
    assert set(lists) == {5}
    jobs = range(1, 12)
    assert sorted(tasks) == [5 + 10_000 * job for job in jobs]
    assert sorted(turns) == [5 + 10_000 * job + turn for job in jobs for turn in (1, 2, 3, 4)]


async def test_the_scheme_of_a_later_version_is_refused(folder: Path) -> None:
    await ask_all(folder, "--limit", "1")
    with closing(sqlite3.connect(folder / "run.db")) as run:
        (frozen,) = run.execute("SELECT recipe FROM run").fetchone()
        run.execute("UPDATE run SET recipe = ?", (json.dumps({**json.loads(frozen), "seeds": 3}),))
        run.commit()
    async with Endpoint([answer]) as endpoint:
        code, _, err = await generate(folder, endpoint, "--seed", "5")
        assert (code, endpoint.requests) == (2, [])
    assert "seeds: 3 → 2" in err
