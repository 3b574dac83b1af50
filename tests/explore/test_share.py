"""What leaves the explorer: exports in all formats, a copy, pages as files, and saved views."""

from __future__ import annotations

import json
import re
from collections import Counter
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from bactrian.export.formats import FORMATS
from tests.helpers.browser import add_axe, find_barriers
from tests.helpers.explorer import RunningExplorer, fetch_zip

pytestmark = pytest.mark.system
PICKS = "pick=run/loop&pick=run/flip&pick=other/many"


@pytest.mark.parametrize("name", ["messages", "sharegpt", "csv", "camel-chat"])
def test_what_is_ticked_is_exported_in_any_format_with_its_manifest(
    explored: RunningExplorer, name: str
) -> None:
    files = fetch_zip(explored, f"/export/data.zip?{PICKS}&format={name}")
    (manifest,) = (each for each in files.namelist() if each.endswith("manifest.json"))
    told = json.loads(files.read(manifest))
    assert told["format"] == name
    assert told["counts"]["sessions"] == 2
    assert told["filters"] == {"sessions": 2, "unfinished": True}


def test_the_formats_that_a_run_can_give_are_offered_and_another_one_says_why(
    explored: RunningExplorer,
) -> None:
    offered = re.findall(r"<option[^>]*>([\w-]+)</option>", explored.get("/export?ending=repeat_loop").text)
    assert {"messages", "sharegpt", "camel-chat", "csv"} <= set(offered) <= FORMATS.keys() - {"preference"}
    refused = explored.get(f"/export/data.zip?{PICKS}&format=preference")
    assert refused.status == 400
    assert "no choices of a critic" in refused.text
    assert explored.get("/export/data.zip?format=no").status == 400
    assert "No conversation fits" in explored.get("/export/data.zip?assistant=Nobody").text


def test_a_filter_becomes_a_copy_that_needs_no_server(explored: RunningExplorer) -> None:
    files = fetch_zip(explored, f"/export/copy.zip?{PICKS}")
    names = Counter(name.partition("/")[0] for name in files.namelist())
    assert {"index.html", "statistics.html", "c", "static"} <= names.keys()
    assert "2 conversations" in files.read("index.html").decode().replace('<data value="2">2</data>', "2")
    assert explored.get("/export/copy.zip?mark=red-team").status == 400


def test_conversations_become_one_page(explored: RunningExplorer) -> None:
    page = explored.get(f"/export/conversations.html?{PICKS}").text
    assert "Stock Trader" in page
    assert "Gärtner" in page
    assert "<script" not in page
    assert "Something harmful" not in explored.get("/export/conversations.html?task=Something+harmful").text


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("/statistics?q=dial&data=run", "run-statistics.html"),
        ("/conversations?view=table", "conversations.html"),
        ("/c/run/loop", "run-loop.html"),
        ("/compare", "compare.html"),
    ],
)
def test_a_view_becomes_one_file_with_its_name(
    explored: RunningExplorer, page: Page, address: str, name: str
) -> None:
    answer = explored.get(f"/page.html?of={quote(address, safe='')}")
    text = answer.text
    assert answer.headers["content-disposition"] == f'attachment; filename="{name}"'
    for part in ("<script", "<form", "<link", 'href="/', explored.token, "csrf"):
        assert part not in text
    page.set_content(text)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.locator("button, input, select, a[href]:not([href^='#'])")).to_have_count(0)
    if "conversations" in address:
        expect(page.locator("#list tr")).to_have_count(50)
    assert page.evaluate("getComputedStyle(document.body).margin") == "0px"


@pytest.mark.parametrize(
    "address",
    [
        *("", "//evil.example/x", "/\\evil.example", "http://evil.example", "/status", "/nowhere"),
        "/c/run/open/events",  # which has no end
    ],
)
def test_only_a_page_of_this_server_becomes_a_file(explored: RunningExplorer, address: str) -> None:
    assert explored.get(f"/page.html?of={quote(address, safe='')}").status == 400


@pytest.mark.slow
def test_a_view_is_saved_found_in_the_library_and_removed(
    explored: RunningExplorer, chromium: Browser
) -> None:
    context = chromium.new_context(java_script_enabled=True)
    add_axe(context)
    page = context.new_page()
    page.goto(explored.link("/statistics?ending=task_done"))
    page.get_by_text("Share or save this view").click()
    page.get_by_label("Name").fill("What was done")
    assert find_barriers(page) == []
    page.get_by_role("button", name="Save it in the library").click()
    page.get_by_role("link", name="What was done").click()
    page.wait_for_url("**/statistics?ending=task_done")
    page.goto(f"{explored.address}/")
    assert find_barriers(page) == []
    page.get_by_role("button", name="Remove the view What was done").click()
    expect(page.get_by_role("link", name="What was done")).to_have_count(0)
    context.close()


def test_a_view_does_not_replace_another_one(explored: RunningExplorer) -> None:
    csrf = explored.get("/statistics").text.partition('name="csrf" value="')[2].partition('"')[0]

    def save(address: str) -> int:
        form = f"csrf={csrf}&name=mine&address={quote(address, safe='')}".encode()
        return explored.get("/views", form, Origin=explored.address).status

    assert [save("/statistics"), save("/statistics"), save("/conversations")] == [303, 303, 400]
    assert 'href="/statistics"' in explored.get("/").text.partition("Saved views")[2]
    form = f"csrf={csrf}&remove=mine".encode()
    assert explored.get("/views", form, Origin=explored.address).status == 303


@pytest.mark.parametrize("address", ["//evil.example", "javascript:alert(1)", "/\\evil.example", "/x\ny"])
def test_a_view_leads_to_no_other_place(explored: RunningExplorer, address: str) -> None:
    csrf = explored.get("/statistics").text.partition('name="csrf" value="')[2].partition('"')[0]
    form = f"csrf={csrf}&name=bad&address={quote(address, safe='')}".encode()
    assert explored.get("/views", form, Origin=explored.address).status == 400
    assert "bad" not in explored.get("/").text.partition("Saved views")[2]
