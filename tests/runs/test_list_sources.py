"""Lists from a source of the user's own: a function, an object, or what an installed package registers."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from bactrian.errors import InputError
from bactrian.records.turn import Usage
from bactrian.runs.lists import find_list_source
from bactrian.runs.runner import ListProgress
from bactrian.runs.scheduler import ListRequest
from tests.helpers.command import bactrian
from tests.helpers.endpoint import Endpoint
from tests.helpers.generation import said
from tests.helpers.packages import install

RECIPE = """
name = "dishes"
[[axes]]
name = "cook"
count = 2
given = ["Pastry Chef", "Grill Cook"]
[[axes]]
name = "dish"
count = 2
per = ["cook"]
source = "menu"
[role_play]
assistant = "{{ cook }}"
user = "Apprentice"
idea = "{{ dish }}"
specify = false
max_messages = 2
"""
MENU = '''
async def menu(request):
    """The dishes of a cook."""
    with open("asked.txt", "a") as file:
        print(request.id, request.values["cook"], request.count, file=file)
    return [f"{request.values['cook']}'s soup", "  ", f"{request.values['cook']}'s cake", "left over"]
'''
REQUEST = ListRequest("dish@001", "dish", {"cook": "Pastry Chef"}, count=2, enough=2)


async def listed(found: object) -> list[ListProgress]:
    source = find_list_source("menu", {"menu": found})  # pyright: ignore[reportArgumentType]
    return [progress async for progress in source.list_items(REQUEST, None)]


async def test_a_function_gives_the_items_without_blanks_and_duplicates() -> None:
    async def menu(request: ListRequest) -> list[str]:
        return [f"{request.values['cook']}'s soup", " ", "cake ", "cake", "left over"]

    (progress,) = await listed(menu)
    assert progress == ListProgress(("Pastry Chef's soup", "cake"), finished=True, usage=Usage(), calls=0)


async def test_a_function_need_not_be_asynchronous_and_may_have_too_few() -> None:
    (progress,) = await listed(lambda request: [request.axis])  # pyright: ignore[reportUnknownLambdaType]
    assert (progress.items, progress.finished) == (("dish",), True)
    assert progress.why == "The list source 'menu' has no more."


async def test_an_object_gives_its_items_step_by_step() -> None:
    class Steps:
        async def list_items(
            self, request: ListRequest, begun: ListProgress | None
        ) -> AsyncGenerator[ListProgress]:
            yield ListProgress(("a",), finished=False, usage=Usage(), calls=1)
            yield ListProgress(("a", "b"), finished=True, usage=Usage(), calls=2)

    assert [progress.items for progress in await listed(Steps())] == [("a",), ("a", "b")]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (lambda request: 1 / 0, "failed for 'dish@001': ZeroDivisionError"),  # pyright: ignore[reportUnknownLambdaType]
        (lambda request: [3], "returned 3"),  # pyright: ignore[reportUnknownLambdaType]
        ("soup", "neither an object with list_items nor a function"),
    ],
)
async def test_a_faulty_source_is_named(source: object, says: str) -> None:
    with pytest.raises(InputError, match=says):
        await listed(source)


def test_a_source_that_nobody_registered_is_named() -> None:
    with pytest.raises(InputError, match="There is no list source 'menu'"):
        find_list_source("menu", {})


@pytest.mark.system
async def test_an_installed_package_gives_the_lists_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "dishes.toml").write_text(RECIPE)
    install(tmp_path, "acme_menu", MENU, "bactrian.list_sources", "menu = acme_menu:menu")
    async with Endpoint([said]) as endpoint:
        words = ("dishes.toml", "--run", "dishes.db", "--model", "openai:m", "--base-url", endpoint.url)

        def generate() -> subprocess.CompletedProcess[str]:
            return bactrian("generate", *words, "--json", cwd=tmp_path, PYTHONPATH=str(tmp_path))

        done = await asyncio.to_thread(generate)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1])["done"] == 4
        again = await asyncio.to_thread(generate)
        assert again.returncode == 0
        assert len(endpoint.requests) == 4 * 2
    asked = (tmp_path / "asked.txt").read_text().splitlines()
    assert sorted(asked) == ["dish@001 Pastry Chef 2", "dish@002 Grill Cook 2"]
