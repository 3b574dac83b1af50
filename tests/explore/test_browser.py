"""Every page in a real browser: what a keyboard, a screen reader, a phone and a hostile text meet."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.helpers.browser import APPEARANCES, IS_TOO_WIDE, add_axe, find_barriers
from tests.helpers.explorer import RunningExplorer

pytestmark = pytest.mark.system
PAGES = [
    "/",
    "/conversations?q=function&ending=repeat_loop&behaviour=infinite_loop",
    "/conversations?q=nothingatall",
    "/c/run/loop?q=function",
    "/c/run/hostile",
    "/c/run/open",
    "/c/run/red",
    "/c/run/loop/prompts",
    "/help",
    "/conversations?view=table&behaviour=role_flip&behaviour=flake_reply",
    "/statistics?q=dial&by=role_flip",
    "/map",
    "/play",
    "/compare?one=assistant%3DPoet&two=assistant%3DCook",
    "/compare/conversations?pick=run/loop&pick=run/flip",
    "/nowhere",
]


@pytest.mark.slow
def test_no_page_has_a_barrier_that_axe_finds(explored: RunningExplorer, chromium: Browser) -> None:
    barriers: list[str] = []
    context = chromium.new_context()
    add_axe(context)
    page = context.new_page()
    for path in PAGES:
        page.goto(explored.link(path))
        if page.evaluate(IS_TOO_WIDE):
            barriers.append(f"{path}: wider than the large window, with all its rows")
        for theme, width, rules in APPEARANCES:
            page.emulate_media(color_scheme=theme)
            page.set_viewport_size({"width": width, "height": 800})
            if page.evaluate(IS_TOO_WIDE):
                barriers.append(f"{path}, {theme}: wider than the window")
            if page.evaluate("document.querySelector('header.top').offsetHeight") > 100:
                barriers.append(f"{path}, {theme}: the header takes the page")
            barriers += [f"{path}, {theme}: {barrier}" for barrier in find_barriers(page, rules=rules)]
    context.close()
    assert barriers == []


def test_a_hostile_text_stays_text(explored: RunningExplorer, page: Page) -> None:
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    for path in ("/conversations", "/c/run/hostile", "/c/run/hostile?q=script"):
        page.goto(explored.link(path))
        assert page.title() != "owned"
        expect(page.get_by_text("<script>document").filter(visible=True).first).to_be_visible()


def test_the_keyboard_goes_from_the_list_to_the_findings_and_back(
    explored: RunningExplorer, page: Page
) -> None:
    page.goto(explored.link("/conversations"))
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_url("**/c/run/loop")
    page.keyboard.press("n")
    assert page.evaluate("document.activeElement.id") == "finding-1"
    page.keyboard.press("n")
    assert page.evaluate("document.activeElement.id") == "finding-2"
    page.keyboard.press("]")
    assert page.evaluate("document.activeElement.dataset.turn") is not None
    page.keyboard.press("j")
    page.wait_for_url("**/c/run/flip")
    page.keyboard.press("u")
    page.wait_for_url("**/conversations")
    expect(page.locator("#list a[href='/c/run/flip']")).to_be_focused()
    for key in "ckc":
        page.keyboard.press(key)
    page.keyboard.press("d")
    page.keyboard.press("Enter")
    page.wait_for_url("**/compare/conversations?pick=run%2Floop&pick=run%2Fflip")
    page.keyboard.press("]")
    assert page.evaluate("document.activeElement.matches('article')")
    page.keyboard.press("g")
    page.keyboard.press("l")
    page.wait_for_url(explored.address + "/")


def test_the_keys_are_shown_and_can_be_switched_off(explored: RunningExplorer, page: Page) -> None:
    page.goto(explored.link("/conversations"))
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.get_by_label("Single keys are on").uncheck()
    page.get_by_role("button", name="Close").click()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") != "find"


@pytest.mark.slow
def test_a_filter_is_a_link_that_the_back_button_leaves(explored: RunningExplorer, page: Page) -> None:
    page.goto(explored.link("/conversations"))
    page.get_by_role("link", name="repeat loop").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("1 conversation")
    page.get_by_role("link", name="Remove the filter Ending repeat loop").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("68 conversations")
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("1 conversation")
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("1 conversation")


def test_the_next_conversation_is_the_next_one_of_the_filter(explored: RunningExplorer, page: Page) -> None:
    page.goto(explored.link("/conversations?q=dial&assistant=Poet"))
    listed = [link.get_attribute("href") for link in page.locator("#list h2 a").all()[1:3]]
    second, third = (f"{explored.address}{link}" for link in listed)
    page.locator("#list h2 a").nth(1).click()
    page.wait_for_url(second)
    page.get_by_role("link", name="Next →").click()
    page.wait_for_url(third)
    page.get_by_role("link", name="← Previous").click()
    page.wait_for_url(second)
    assert "assistant=Poet" in second


def test_a_page_is_read_without_scripts(explored: RunningExplorer, chromium: Browser) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(explored.link("/conversations?q=function"))
    page.locator("#list h2 a").first.click()
    expect(page.get_by_text("Write a function that adds.")).to_be_visible()
    expect(page.locator("mark.finding").first).to_be_visible()
    context.close()


def test_a_long_message_is_shown_in_part_and_then_whole(explored: RunningExplorer, page: Page) -> None:
    page.goto(explored.link("/c/run/long"))
    words = re.compile(r"(word ){14000}")
    expect(page.locator("#turn-2")).to_contain_text("word")
    expect(page.locator("#turn-2")).not_to_contain_text(words)
    page.get_by_role("link", name="Show all").click()
    expect(page.locator("#turn-2")).to_contain_text(words)


def test_many_messages_come_in_windows(explored: RunningExplorer, page: Page) -> None:
    shown = explored.get("/c/run/many").text
    assert ("It reached its longest length." in shown, "It shows in" in shown) == (True, False)
    page.goto(explored.link("/c/run/many"))
    expect(page.locator("article.turn")).to_have_count(100)
    page.get_by_role("link", name="Messages from 101").click()
    expect(page.locator("#turn-101")).to_be_visible()


@pytest.mark.slow
def test_a_link_to_a_message_behind_the_first_hundred_leads_there(
    explored: RunningExplorer, page: Page
) -> None:
    page.goto(explored.link("/c/run/many?q=dial"))
    for number in (240, 7, 101):
        page.goto(f"{explored.address}/c/run/many?q=dial#turn-{number}")
        expect(page.locator(f"#turn-{number}")).to_be_in_viewport()
    assert "q=dial" in page.url
    page.emulate_media(reduced_motion="no-preference")
    page.evaluate("document.querySelector('#turn-199').scrollIntoView()")  # At once, however far it is.
    assert page.locator("#turn-199").evaluate("one => one.getBoundingClientRect().top < innerHeight")
    assert "placeholder {\ncolor" in explored.get("/static/style.css").text


def test_the_findings_go_on_in_the_next_part(explored: RunningExplorer, page: Page) -> None:
    page.goto(explored.link("/c/run/many"))
    last = page.locator("[data-finding]").last
    number = int(last.get_attribute("value") or "0")
    last.focus()
    page.keyboard.press("n")
    page.wait_for_url(f"**from=101#finding-{number + 1}")
    expect(page.locator(f"#finding-{number + 1}")).to_be_focused()
    page.keyboard.press("p")
    page.wait_for_url(f"**from=1#finding-{number}")
    expect(page.locator(f"#finding-{number}")).to_be_focused()


def test_the_notice_is_agreed_to_once(explored: RunningExplorer, page: Page) -> None:
    page.goto(explored.link("/c/run/red"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Made to study misuse")
    page.get_by_role("button", name="I understand").click()
    page.wait_for_url("**/c/run/red")
    expect(page.get_by_text("Something harmful", exact=True)).to_be_visible()


def test_a_conversation_prints_without_the_controls(
    explored: RunningExplorer, page: Page, tmp_path: Path
) -> None:
    page.goto(explored.link("/c/run/loop"))
    page.emulate_media(media="print")
    expect(page.get_by_role("button", name="Copy as Markdown")).to_be_hidden()
    expect(page.locator("#turn-1")).to_be_visible()
    assert page.pdf().startswith(b"%PDF")
