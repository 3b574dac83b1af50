"""A conversation at a glance: its bar, its rail, and how a reader gets to what a filter looked for."""

from __future__ import annotations

import gzip
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, Page, expect

from bactrian.explore.conversation_pages import MOST_TICKS, build_rail
from bactrian.explore.session_lists import ListFilter
from bactrian.records.run import Finding
from bactrian.records.turn import Usage
from tests.helpers.browser import APPEARANCES, add_axe, find_barriers
from tests.helpers.explorer import RunningExplorer
from tests.helpers.runs import session

TALK = session("talk", texts=["Plan it.", "Here is a plan.", "Thanks.", "The plan is long and long."])
FINDINGS = [Finding("talk", 1, "missing_marker", 1.0, "Plan"), Finding("talk", 4, "role_flip", 1.0, "plan")]


def test_a_tick_tells_the_speaker_the_length_the_findings_and_the_hits() -> None:
    turns = tuple(
        replace(turn, usage=Usage(9, tokens)) for turn, tokens in zip(TALK.turns, (5, 20, 1, 40), strict=True)
    )
    ticks = build_rail(replace(TALK, turns=turns), FINDINGS, ListFilter(q="plan")).ticks
    assert [(tick.side, tick.length, tick.has_finding, tick.has_hit) for tick in ticks] == [
        ("user", 1, True, True),
        ("assistant", 4, False, True),
        ("user", 1, False, False),
        ("assistant", 8, True, True),
    ]
    assert ticks[3].label == "Message 4, Programmer, role flip, word of the search"


@pytest.mark.parametrize(
    ("filter_", "stops", "found"),
    [
        (ListFilter(), ("finding-1", "finding-2"), 0),
        (ListFilter(behaviour=("role_flip",)), ("finding-2",), 4),
        (ListFilter(q="thanks"), ("turn-3",), 3),
        (ListFilter(q="thanks", behaviour=("missing_marker",)), ("finding-1", "turn-3"), 1),
        # The words are in the idea, and in no message.
        (ListFilter(q="timer"), ("finding-1", "finding-2"), 0),
    ],
)
def test_the_stops_are_those_of_the_filter(filter_: ListFilter, stops: tuple[str, ...], found: int) -> None:
    rail = build_rail(TALK, FINDINGS, filter_)
    assert (rail.stops, rail.found) == (stops, found)


def test_a_very_long_conversation_has_ticks_for_several_messages() -> None:
    rail = build_rail(session("long", texts=["Yes."] * (2 * MOST_TICKS + 1)), [], ListFilter())
    assert [(tick.first, tick.last) for tick in (rail.ticks[0], rail.ticks[-1])] == [(1, 3), (961, 961)]
    assert rail.ticks[0].label == "Messages 1 to 3"
    assert len(rail.ticks) <= MOST_TICKS


@pytest.mark.slow
@pytest.mark.parametrize(("width", "height"), [(1280, 900), (360, 740)])
def test_the_first_message_and_all_ticks_are_on_the_first_screen(
    explored: RunningExplorer, page: Page, width: int, height: int
) -> None:
    page.set_viewport_size({"width": width, "height": height})
    for path in ("/c/run/loop", "/c/run/many?behaviour=nothing", "/c/run/hostile"):
        page.goto(explored.link(path))
        message = page.locator("article.turn").first.bounding_box()
        assert message is not None
        assert message["y"] < height / 2
        last = page.locator("#rail a").last.bounding_box()
        assert last is not None
        assert last["y"] + last["height"] <= height
        assert last["x"] + last["width"] <= width
    page.goto(explored.link("/c/run/many"))
    expect(page.locator("#rail a")).to_have_count(250)
    page.locator("#turn-90").scroll_into_view_if_needed()
    expect(page.locator("#rail a").first).to_be_in_viewport()
    expect(page.locator('#rail a[href$="#turn-90"]')).to_have_attribute("aria-current", "true")
    expect(page.locator("#rail a").first).not_to_have_attribute("aria-current", "true")


@pytest.mark.slow
def test_a_tick_leads_to_its_message_also_where_it_is_not_loaded(
    explored: RunningExplorer, page: Page
) -> None:
    page.goto(explored.link("/c/run/many?q=dial"))
    for number in (60, 240, 2):
        page.locator(f'#rail a[href$="#turn-{number}"]').click(force=True)
        expect(page.locator(f"#turn-{number}")).to_be_in_viewport()
    assert "q=dial" in page.url


@pytest.mark.slow
def test_the_rail_is_one_stop_of_the_tab_key_and_arrows_go_along_it(
    explored: RunningExplorer, page: Page
) -> None:
    page.goto(explored.link("/c/run/many"))
    expect(page.locator('#rail a[tabindex="0"]')).to_have_count(1)
    page.locator('#rail a[tabindex="0"]').focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowUp", "PageDown"):
        page.keyboard.press(key)
    expect(page.locator("#rail a").nth(11)).to_be_focused()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    expect(page.locator("#turn-250")).to_be_in_viewport()


@pytest.mark.slow
def test_a_reader_lands_on_what_the_list_was_filtered_by_and_goes_on_from_there(
    explored: RunningExplorer, page: Page
) -> None:
    page.goto(explored.link("/conversations?q=%22part+83%22"))
    page.locator("#list h2 a").first.click()
    page.wait_for_url("**/c/run/many?**#found")
    expect(page.locator("#turn-165")).to_be_focused()
    expect(page.locator("#turn-165 mark.hit").first).to_be_in_viewport()
    page.keyboard.press("n")
    expect(page.locator("#turn-166")).to_be_focused()
    page.keyboard.press("n")
    expect(page.locator("#turn-166")).to_be_focused()
    page.goto(explored.link("/conversations?behaviour=infinite_loop&ending=repeat_loop"))
    page.locator("#list h2 a").first.click()
    page.wait_for_url("**/c/run/loop?**#found")
    expect(page.locator("[data-finding]:focus")).to_contain_text("infinite loop")
    page.keyboard.press("n")
    expect(page.locator("[data-finding]:focus")).to_contain_text("infinite loop")


@pytest.mark.slow
def test_a_reader_without_scripts_lands_there_too(explored: RunningExplorer, chromium: Browser) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(explored.link("/conversations?q=%22part+83%22"))
    page.locator("#list h2 a").first.click()
    expect(page.locator("#turn-165")).to_be_in_viewport()
    page.locator('#rail a[href$="#turn-240"]').click(force=True)
    expect(page.locator("#turn-240")).to_be_in_viewport()
    context.close()


@pytest.mark.system
def test_what_is_known_of_a_conversation_is_one_press_away(explored: RunningExplorer, page: Page) -> None:
    page.goto(explored.link("/c/run/loop"))
    expect(page.get_by_role("link", name="read the inception prompts")).to_be_hidden()
    page.get_by_text("Build a tea timer", exact=True).click()
    expect(page.get_by_role("link", name="read the inception prompts")).to_be_visible()


@pytest.mark.slow
def test_a_long_conversation_has_no_barrier_either(explored: RunningExplorer, chromium: Browser) -> None:
    context = chromium.new_context()
    add_axe(context)
    page = context.new_page()
    page.goto(explored.link("/c/run/many?q=dial"))
    page.locator(".about").evaluate("about => { about.open = true; }")
    barriers: list[str] = []
    for theme, width, _ in APPEARANCES:
        page.emulate_media(color_scheme=theme)
        page.set_viewport_size({"width": width, "height": 800})
        barriers += find_barriers(page)
    context.close()
    assert barriers == []


@pytest.mark.slow
def test_a_first_visit_stays_small(explored: RunningExplorer, page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(explored.link("/c/run/loop"))
    page.wait_for_load_state("networkidle")
    paths = {url.removeprefix(explored.address).replace(explored.token, "") for url in asked}
    sent = [path for path in paths if "token" not in path]
    assert len(sent) <= 4
    assert sum(len(gzip.compress(explored.get(path).text.encode())) for path in sent) <= 15_000
