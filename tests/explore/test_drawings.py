"""A society is drawn as it hears, a search as it branched, and a conversation is replayed in its own time."""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser, Page, expect

from bactrian.explore.layout import Branch
from bactrian.explore.pictures import MOST_DRAWN, draw_hearing, draw_search, list_heard
from bactrian.recipes.society_file import load_society
from bactrian.records.session import Role, Session
from bactrian.records.text import Text
from bactrian.records.turn import Proposal, Usage
from bactrian.store import open_store
from tests.helpers.browser import APPEARANCES, add_axe, find_barriers
from tests.helpers.explorer import RunningExplorer, explore, run_apart
from tests.helpers.runs import ORIGIN, make_run, session


def make_chat(*roles: str, messages: int = 4) -> Session:
    """A group chat of agents ``a``, ``b`` … that speak in turn."""
    cast = {chr(97 + place): Role(role) for place, role in enumerate(roles)}
    names = list(cast)
    talk = session("chat", texts=["Yes."] * messages)
    turns = tuple(
        replace(turn, speaker=names[place % len(names)], role=cast[names[place % len(names)]].name)
        for place, turn in enumerate(talk.turns)
    )
    return replace(talk, turns=turns, provenance=replace(ORIGIN, cast=cast))


def test_an_arrow_leads_to_everyone_who_hears() -> None:
    chat = make_chat("Poet", "<Cook>", "Nurse")
    drawn = draw_hearing(chat, {"a": ("b", "c"), "b": ("c",)})
    ElementTree.fromstring(drawn)
    assert drawn.count('class="tip"') == 3  # From b to a; from c to a and b.
    assert "&lt;Cook&gt;" in drawn
    heard = list_heard(chat, {"a": ("b", "c"), "b": ("c",)})
    assert [
        (one.role, one.messages, one.first, one.heard_by, one.not_heard_by) for one in heard.values()
    ] == [
        ("Poet", 2, 1, (), ("<Cook>", "Nurse")),
        ("<Cook>", 1, 2, ("Poet",), ("Nurse",)),
        ("Nurse", 1, 3, ("Poet", "<Cook>"), ()),
    ]
    assert len({one.hue for one in heard.values()}) == 3


def test_agents_do_not_stand_on_each_other_and_too_many_are_only_listed() -> None:
    for count in (2, 3, 7, MOST_DRAWN):
        drawn = draw_hearing(make_chat(*["Agent"] * count), {})
        places = re.findall(r'cx="(\d+)" cy="(\d+)"', drawn)
        assert len(set(places)) == count
        assert drawn.count('class="tip"') == count * (count - 1)
    assert draw_hearing(make_chat(*["Agent"] * (MOST_DRAWN + 1)), {}) == ""


def branch(number: int, place: int, *children: Branch, chosen: bool = False) -> Branch:
    """A proposal with those that continue it."""
    made = Proposal(number, 1, place, "user", Text("x"), Usage(), 0.0, "m", "stop")
    return Branch(made, chosen, survives=bool(children), children=list(children))


def test_a_search_is_drawn_with_a_column_for_each_message_and_the_spoken_line() -> None:
    roots = [
        branch(4, 1, branch(5, 1), branch(5, 2, chosen=True), chosen=True),
        branch(4, 2, branch(5, 3, branch(6, 1))),
        branch(4, 3),
    ]
    drawn = draw_search(roots)
    ElementTree.fromstring(drawn)
    dots = re.findall(r'<circle class="(\w+)" cx="(\d+)" cy="([\d.]+)"', drawn)
    assert [kind for kind, _, _ in dots].count("chosen") == 2
    assert drawn.count("<path") == 4
    assert sorted({x for _, x, _ in dots}, key=int) == ["20", "130", "240"]
    assert len(set(dots)) == 7
    assert "message 4" in drawn
    assert "message 6" in drawn


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, guarded_processes: Path) -> Generator[RunningExplorer]:
    """An explorer with a society of which one agent is not heard by all, and a conversation that took its time."""
    folder = tmp_path_factory.mktemp("told")
    society, _ = load_society("panel")
    names = [agent.name for agent in society.agents]
    content = society.model_dump(mode="json", exclude_none=True)
    content["agents"][1]["hears"] = [names[2]]
    chat = make_chat(*(agent.role for agent in society.agents))
    cast = dict(zip(names, chat.provenance.cast.values(), strict=True))
    turns = tuple(replace(turn, speaker=name) for turn, name in zip(chat.turns, names, strict=True))
    chat = replace(chat, provenance=replace(chat.provenance, cast=cast), turns=turns)
    slow = session("slow")
    slow = replace(slow, turns=tuple(replace(turn, seconds=900.0 * (turn.number > 1)) for turn in slow.turns))

    async def write() -> None:
        run = await make_run(folder / "run.db", [chat, slow, session("quick", rounds=3)])
        async with open_store(run) as store:
            await store.freeze({"recipe": {"name": "x"}, "society": content})

    run_apart(write())
    with explore(folder, "run.db") as one:
        yield one


@pytest.mark.slow
def test_a_group_chat_shows_who_hears_whom_without_a_barrier(
    told: RunningExplorer, chromium: Browser
) -> None:
    context = chromium.new_context()
    add_axe(context)
    page = context.new_page()
    page.goto(told.link("/c/run/chat"))
    page.get_by_text("Who hears whom").click()
    expect(page.get_by_role("img", name="Who hears whom")).to_be_visible()
    expect(page.get_by_text("not by Transport Engineer").first).to_be_visible()
    colours = {
        page.locator(f"#turn-{number} h2").evaluate("one => getComputedStyle(one).color")
        for number in (1, 2, 3, 4)
    }
    assert len(colours) == 4
    barriers: list[str] = []
    for theme, width, _ in APPEARANCES:
        page.emulate_media(color_scheme=theme)
        page.set_viewport_size({"width": width, "height": 800})
        barriers += find_barriers(page)
    context.close()
    assert barriers == []


@pytest.mark.system
def test_a_replay_waits_as_long_as_each_message_took_and_arrows_go_on(
    told: RunningExplorer, page: Page
) -> None:
    page.clock.install()
    page.goto(told.link("/c/run/slow"))
    page.get_by_role("button", name="Replay").click()
    shown = page.locator(".turn:visible")
    expect(shown).to_have_count(1)
    page.clock.fast_forward(899_000)
    expect(shown).to_have_count(1)
    page.clock.fast_forward(2_000)
    expect(shown).to_have_count(2)
    page.keyboard.press("ArrowRight")
    expect(shown).to_have_count(3)
    page.keyboard.press("ArrowLeft")
    expect(shown).to_have_count(2)
    page.keyboard.press("s")  # Four times as fast.
    page.clock.fast_forward(226_000)
    expect(shown).to_have_count(3)
    page.keyboard.press(" ")
    page.clock.fast_forward(1_000_000)
    expect(shown).to_have_count(3)
    page.keyboard.press("Escape")
    expect(shown).to_have_count(5)
    expect(page.get_by_role("region", name="Replay")).to_have_count(0)
    expect(page.get_by_role("button", name="Replay")).to_be_enabled()
