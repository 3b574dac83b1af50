"""What a run asks with: seeds that no two requests share."""

from __future__ import annotations

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
