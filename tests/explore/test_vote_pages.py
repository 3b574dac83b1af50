"""Blind votes in a real browser: by keyboard, by two voters at once, by the owner."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from bactrian.evaluate.invitations import invite_voters
from bactrian.evaluate.votes import find_study, read_tally, read_votes
from tests.helpers.browser import APPEARANCES, IS_TOO_WIDE, add_axe, find_barriers
from tests.helpers.explorer import RunningExplorer, run_apart
from tests.helpers.voting import read_stored

pytestmark = pytest.mark.system


def open_link(chromium: Browser, voting: RunningExplorer, token: str) -> Page:
    page = chromium.new_context().new_page()
    page.goto(f"{voting.address}/vote?invite={token}")
    return page


@pytest.mark.slow
def test_a_person_votes_with_the_keyboard_only_and_is_thanked(
    voting: RunningExplorer, chromium: Browser
) -> None:
    folder = voting.folder / "run.agents"
    (token,) = invite_voters(folder, ["heron"]).values()
    page = open_link(chromium, voting, token)
    assert page.url == f"{voting.address}/vote"
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text("Pair 1 of 7")
    for word in ("extraction", "single_shot", "Role-play", "Single answer", "run.db", "Programmer"):
        assert word not in page.content()
    assert page.title() != "owned"
    page.keyboard.press("m")
    page.keyboard.type("because it rings")
    page.reload()
    expect(page.get_by_label("Comment")).to_have_value("because it rings")
    page.keyboard.press("Escape")
    page.keyboard.press("1")
    page.keyboard.press("Enter")
    expect(heading).to_have_text("Pair 2 of 7")
    page.get_by_role("link", name="Change my last vote").press("Enter")
    expect(heading).to_have_text("Your last vote")
    page.wait_for_load_state()  # keys are heard once the script has run, after the heading is there
    page.keyboard.press("2")
    page.keyboard.press("Enter")
    for number, key in enumerate("340121", start=2):
        expect(heading).to_have_text(f"Pair {number} of 7")
        page.wait_for_load_state()
        page.keyboard.press(key)
        page.keyboard.press("Enter")
    expect(heading).to_have_text("Thank you, heron")
    expect(page.get_by_text("pairs that came twice")).to_be_visible()
    assert find_barriers(page) == []
    votes = sorted(read_stored(voting.folder), key=lambda vote: vote.created)
    assert [vote.choice for vote in votes] == ["right", "equal", "both_bad", "skip", "left", "right", "left"]
    assert votes[0].comment == "because it rings"
    assert votes[0].session == votes[-1].session
    assert votes[0].left != votes[-1].left
    page.context.close()


@pytest.mark.slow
def test_the_pages_of_votes_have_no_barrier_and_show_both_sides(
    voting: RunningExplorer, chromium: Browser
) -> None:
    (token,) = invite_voters(voting.folder / "run.agents", ["heron"]).values()
    context = chromium.new_context(color_scheme="dark")
    add_axe(context)
    page = context.new_page()
    for path in (f"/vote?invite={token}", "/vote?change=1", "/votes", "/vote?invite=wrong"):
        page.goto(voting.link(path))
        for theme, width, rules in APPEARANCES:
            page.emulate_media(color_scheme=theme)
            page.set_viewport_size({"width": width, "height": 800})
            assert not page.evaluate(IS_TOO_WIDE), (path, width)
            assert find_barriers(page, rules=rules) == [], (path, theme)
    context.close()


@pytest.mark.slow
def test_two_browsers_of_two_voters_vote_at_once(voting: RunningExplorer, chromium: Browser) -> None:
    tokens = invite_voters(voting.folder / "run.agents", ["heron", "tern"])
    pages = [open_link(chromium, voting, token) for token in tokens.values()]
    for page in pages:
        expect(page.get_by_role("heading", level=1)).to_have_text("Pair 1 of 7")
    for number in range(7):
        for page in pages:
            page.get_by_role("button", name="Right is better").click(no_wait_after=True)
        for page in pages:
            expected = f"Pair {number + 2} of 7" if number < 6 else "Thank you"
            expect(page.get_by_role("heading", level=1)).to_contain_text(expected)
    assert len(read_stored(voting.folder)) == 14
    for page in pages:
        page.context.close()


@pytest.mark.slow
def test_the_owner_votes_without_a_link_and_sees_what_all_votes_say(
    voting: RunningExplorer, chromium: Browser
) -> None:
    page = chromium.new_context().new_page()
    page.goto(voting.link("/votes"))
    page.get_by_role("link", name="Vote", exact=True).click()
    page.get_by_label("Pseudonym").fill("owl")
    page.get_by_role("button", name="Begin").click()
    page.get_by_role("button", name="Left is better").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Pair 2 of 7")
    page.goto(voting.link("/votes"))
    expect(page.get_by_role("row", name="owl 1")).to_be_visible()
    expect(page.get_by_text("Role-play")).to_be_hidden()
    page.get_by_text("Results").click()
    expect(page.get_by_role("rowheader", name="Role-play")).to_be_visible()
    page.context.close()
    folder = find_study(voting.folder / "run.db")
    assert folder is not None
    assert run_apart(read_tally(folder))["votes"] == len(run_apart(read_votes(folder))) == 1
