"""A static copy replaces nothing but a copy, and holds what its filter says."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from bactrian.errors import InputError
from bactrian.explore.bundle import rewrite_page, write_bundle
from bactrian.explore.library import open_library
from bactrian.explore.map_drawing import draw_map
from tests.helpers.explorer import explore
from tests.helpers.runs import make_run, session


@pytest.mark.slow
async def test_a_copy_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "run.db", [session("s1"), session("s2", assistant="Poet")])
    target = tmp_path / "copy"
    assert await write_bundle([run], target, "assistant=Poet") == 1
    assert await write_bundle([run], target) == 2
    (target / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="mine.txt"):
        await write_bundle([run], target, "assistant=Poet")
    assert (target / "mine.txt").read_text() == "mine"
    assert (target / "c" / "run" / "s2.html").is_file()
    other = tmp_path / "other"
    other.mkdir()
    (other / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match="something other"):
        await write_bundle([run], other)
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(InputError, match="not a regular file or folder"):
        await write_bundle([run], tmp_path / "link")
    with pytest.raises(InputError, match="at most 1"):
        await write_bundle([run], tmp_path / "new", most=1)
    with pytest.raises(InputError, match="No conversation fits"):
        await write_bundle([run], tmp_path / "new", "assistant=Nobody")
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
async def test_a_copy_is_made_while_another_explorer_has_the_run_open(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "run.db", [session("s1")])
    with explore(tmp_path, "run.db", sessions=1):
        await make_run(run, [session("s2")])
        assert await write_bundle([run], tmp_path / "copy") == 2


async def test_ids_that_differ_in_case_or_in_signs_have_files_of_their_own(tmp_path: Path) -> None:
    names = ["a b", "A_B", "a_b", "a%2Fb", "ü", "..", "a/b"]
    run = await make_run(tmp_path / "run.db", [session(name, task=f"Task {name}") for name in names])
    assert await write_bundle([run], tmp_path / "copy") == 7
    pages = [page for page in (tmp_path / "copy" / "c" / "run").glob("*.html") if "prompts" not in page.name]
    assert len({page.name.lower() for page in pages}) == 5
    assert sum("Task ü" in page.read_text("utf-8") for page in pages) == 1


def test_a_link_to_what_is_not_copied_becomes_text() -> None:
    page = '<a class="chip" href="/play">Play</a> <a href="?from=2&amp;x=1">on</a> <a href="#a">a</a>'
    found = {"/c/run/x?from=2&x=1": "c/run/x-2.html"}
    made = rewrite_page(page, "/c/run/x", "c/run/x.html", found.get)
    assert made == '<a class="chip">Play</a> <a href="x-2.html">on</a> <a href="#a">a</a>'


@pytest.mark.system
@pytest.mark.parametrize("link", ["http://a/static/../../../.ssh/id", "https://a/help", "https://a/c/run/s1"])
def test_a_link_of_a_message_leads_to_no_file(link: str) -> None:
    found: list[str] = []
    page = rewrite_page(f'<a href="{link}">it</a>', "/c/run/s1", "c/run/s1.html", found.append)
    assert (page, found) == ("<a>it</a>", [])


@pytest.mark.slow
async def test_a_drawn_map_is_copied_as_a_picture_of_the_chosen_conversations(tmp_path: Path) -> None:
    cooks = [
        session(f"c{number}", assistant="Cook", task=f"Bake bread number {number}") for number in range(20)
    ]
    poets = [
        session(f"p{number}", assistant="Poet", task=f"Write a sonnet number {number}")
        for number in range(12)
    ]
    run = await make_run(tmp_path / "run.db", [*cooks, *poets])
    copy = tmp_path / "copy"
    await write_bundle([run], copy, "assistant=Poet")
    assert not list(copy.glob("map*"))

    async def draw() -> None:
        async with open_library([run]) as library:
            data_set = library.sets["run"]
            await asyncio.to_thread(draw_map, run, data_set.index, data_set.number, "task")

    await draw()
    assert await write_bundle([run], copy, "assistant=Poet") == 12
    page, picture = ((copy / f"map-run-task.{kind}").read_text("utf-8") for kind in ("html", "svg"))
    assert picture.count("<circle") == 12
    assert '<a href="map-run-task.svg"><img' in page
    assert "<canvas" not in page
    assert '<td class="n">12</td>' in page
    assert '<a href="map-run-task.html">Map of tasks</a>' in (copy / "index.html").read_text("utf-8")
    # Topics are named by words of all texts, also of what was made to study misuse.
    await make_run(run, [replace(poets[0], id="red", mark="red-team")])
    await draw()
    await write_bundle([run], copy, "assistant=Poet")
    assert not list(copy.glob("map*"))
