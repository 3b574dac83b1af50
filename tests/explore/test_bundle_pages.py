"""A static copy opens from a disk, leads nowhere else and tells nothing private."""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Generator
from html import unescape
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from bactrian.records.run import Mark
from bactrian.store import open_store
from tests.explore.conftest import copy_indexed
from tests.helpers.browser import find_barriers
from tests.helpers.command import bactrian
from tests.helpers.explorer import run_apart

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory, indexed: Path) -> Path:
    """A copy of all kinds of conversations, one of which has a note."""
    folder = tmp_path_factory.mktemp("copied")
    copy_indexed(indexed, folder)

    async def mark() -> None:
        async with open_store(folder / "run.db") as store:
            await store.add_mark(Mark("loop", "good", "my private note", 1.0))

    run_apart(mark())
    done = bactrian("explore", "run.db", "--bundle", "copy", cwd=folder, XDG_CACHE_HOME=str(folder / "cache"))
    assert done.returncode == 0, done.stderr
    assert "67 conversations copied" in done.stderr
    return folder / "copy"


@pytest.fixture
def page(chromium: Browser) -> Generator[Page]:
    """A page that fails the test if it asks for anything but files, or if something is refused or breaks."""
    context = chromium.new_context()
    one = context.new_page()
    wrong: list[str] = []
    one.on("request", lambda request: None if request.url.startswith("file:") else wrong.append(request.url))
    one.on("pageerror", lambda error: wrong.append(str(error)))
    one.on("console", lambda message: wrong.append(message.text))
    one.on("dialog", lambda dialog: wrong.append(dialog.message))
    yield one
    context.close()
    assert wrong == []


@pytest.mark.slow
def test_the_copy_is_searched_and_read_from_a_disk(copy: Path, page: Page) -> None:
    page.goto((copy / "index.html").as_uri())
    expect(page.get_by_role("heading", level=1)).to_have_text("67 conversations")
    page.keyboard.press("/")
    page.keyboard.type("trader loop")
    expect(page.locator("#found li")).to_have_count(1)
    page.locator("#found a").click()
    page.wait_for_url("**/c/run/loop.html*")
    expect(page.locator("mark.finding").first).to_be_visible()
    page.keyboard.press("j")
    page.wait_for_url("**/c/run/flip.html")
    page.keyboard.press("u")
    page.wait_for_url("**/index.html")
    page.get_by_role("link", name="Next 50").click()
    expect(page.locator("#list > li")).to_have_count(17)
    page.get_by_role("link", name="Statistics").click()
    page.wait_for_url("**/statistics.html")
    page.get_by_role("link", name="repeat loop").click()
    expect(page.locator("#found li")).to_have_count(1)
    page.goto((copy / "c/run/many.html").as_uri())
    page.get_by_role("link", name="Messages from 101").click()
    expect(page.locator("#turn-101")).to_be_visible()


@pytest.mark.parametrize("file", ["index.html", "c/run/hostile.html", "statistics.html", "c/run/loop.html"])
def test_a_page_of_the_copy_has_no_barrier_and_keeps_hostile_texts_texts(
    copy: Path, page: Page, file: str
) -> None:
    page.goto((copy / file).as_uri())
    assert page.title() != "owned"
    # Without preload: axe would fetch the styles.
    assert find_barriers(page, preload=False) == []
    if file == "index.html":
        page.locator("#find").fill("script")
        expect(page.locator("#found a")).to_contain_text("<script>document")


def test_every_link_of_the_copy_leads_to_a_file_of_it(copy: Path) -> None:
    broken: list[str] = []
    for file in copy.rglob("*.html"):
        text = file.read_text("utf-8")
        assert "Content-Security-Policy" in text
        assert "<form" not in text
        for link in re.findall(r'(?:href|src)="([^"]*)"', text):
            path = urllib.parse.unquote(unescape(link).partition("#")[0])
            if path and not (file.parent / path).resolve().is_file():
                broken.append(f"{file.name}: {link}")
            assert (file.parent / path).resolve().is_relative_to(copy.resolve())
    assert broken == []


def test_nothing_private_is_published(copy: Path) -> None:
    everything = b"".join(file.read_bytes() for file in copy.rglob("*") if file.is_file())
    for word in (b"my private note", b"Something harmful", str(copy.parent).encode(), b"csrf"):
        assert word not in everything
    assert b"good" in (copy / "index.html").read_bytes()


def test_no_text_ends_the_data_of_the_search(copy: Path) -> None:
    text = (copy / "static" / "rows.js").read_text("utf-8")
    assert "<" not in text
    assert len(json.loads(text.removeprefix("const ROWS = ").rstrip(";\n"))) == 67
