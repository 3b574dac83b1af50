"""A static copy replaces nothing but a copy, and holds what its filter says."""

from __future__ import annotations

from pathlib import Path

import pytest

from bactrian.errors import InputError
from bactrian.explore.bundle.links import rewrite_page
from bactrian.explore.bundle.writer import BundleOrder, write_bundle
from tests.helpers.runs import make_run, session


async def test_a_copy_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "run.db", [session("s1"), session("s2", assistant="Poet")])
    target = tmp_path / "copy"
    order = BundleOrder([run], target, "assistant=Poet")
    assert await write_bundle(order) == 1
    assert await write_bundle(BundleOrder([run], target)) == 2
    (target / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="would be lost"):
        await write_bundle(order)
    assert (target / "mine.txt").read_text() == "mine"
    assert (target / "c" / "run" / "s2.html").is_file()
    other = tmp_path / "other"
    other.mkdir()
    (other / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match="something else"):
        await write_bundle(BundleOrder([run], other))
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(InputError, match="not a folder"):
        await write_bundle(BundleOrder([run], tmp_path / "link"))
    with pytest.raises(InputError, match="at most 1"):
        await write_bundle(BundleOrder([run], tmp_path / "new", most=1))
    with pytest.raises(InputError, match="No conversation fits"):
        await write_bundle(BundleOrder([run], tmp_path / "new", "assistant=Nobody"))
    assert not (tmp_path / "new").exists()


async def test_ids_that_differ_in_case_or_in_signs_have_files_of_their_own(tmp_path: Path) -> None:
    names = ["a b", "A_B", "a_b", "a%2Fb", "ü", ".."]
    run = await make_run(tmp_path / "run.db", [session(name, task=f"Task {name}") for name in names])
    assert await write_bundle(BundleOrder([run], tmp_path / "copy")) == 6
    pages = [one for one in (tmp_path / "copy" / "c" / "run").glob("*.html") if "prompts" not in one.name]
    assert len({one.name.lower() for one in pages}) == 5
    assert sum("Task ü" in one.read_text("utf-8") for one in pages) == 1


def test_a_link_to_what_is_not_copied_becomes_text() -> None:
    page = '<a class="chip" href="/play">Play</a> <a href="?from=2&amp;x=1">on</a> <a href="#a">a</a>'
    found = {"/c/run/x?from=2&x=1": "c/run/x-2.html"}
    made = rewrite_page(page, "/c/run/x", "c/run/x.html", found.get)
    assert made == '<a class="chip">Play</a> <a href="x-2.html">on</a> <a href="#a">a</a>'
