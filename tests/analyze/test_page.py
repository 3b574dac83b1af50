"""The page of a report: what it shows, what it links to, how large it may be, and how it looks in a browser."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser

import bactrian as bt
from bactrian.analyze.excerpts import find_cap
from bactrian.figures.chart import build_histogram
from bactrian.records.session import Session
from tests.helpers.browser import APPEARANCE, IS_TOO_WIDE, add_axe, find_barriers, needs_chromium
from tests.helpers.runs import make_run, session

FLAKE = (
    "Instruction: Design the dial of the timer.\nInput: None",
    "Solution: I will get started right away.\nNext request.",
)
FLIP = ("Instruction: Name part 1 of the timer.\nInput: None", "Instruction: Name it yourself.\nInput: None")
EVIL = "<script>document.title='owned'</script><img src=x> \u202etxt"


def list_sessions(*, flaky: int = 5) -> list[Session]:
    """Thirty conversations, some of which fail, with a hostile one."""
    good = [
        session(
            f"s{number:02}", rounds=1 + number % 4, assistant="Cook" if number % 2 else "Poet", user="Nurse"
        )
        for number in range(24)
    ]
    bad = [session(f"b{number}", texts=FLAKE, code="max_messages") for number in range(flaky)]
    hostile = session("evil", texts=(FLIP[0], f"{FLIP[1]} {EVIL}"), code="assistant_instruct", assistant=EVIL)
    return [*good, *bad, hostile]


async def save_page(folder: Path, *runs: Sequence[Session]) -> Path:
    """Write the report on a run, or the comparison of two."""
    opened = [
        bt.open_run(await make_run(folder / f"{name}.db", some))
        for name, some in zip("ab", runs, strict=False)
    ]
    report = opened[0].report() if len(opened) == 1 else opened[0].compare(opened[1])
    report.save(folder / "page.html")
    return folder / "page.html"


async def test_a_report_says_who_calls_the_tasks_done_and_how_many_are_doubted(tmp_path: Path) -> None:
    empty = [
        replace(session(f"e{number}", texts=("<CAMEL_TASK_DONE>",)), id=f"e{number}") for number in range(2)
    ]
    page = await asyncio.to_thread(lambda: asyncio.run(save_page(tmp_path, [*list_sessions(), *empty])))
    text = " ".join(page.read_text("utf-8").split())
    assert "In 26 of 32 conversations that ended, the AI user says that the task is done (81.2 %)." in text
    assert "doubts it in 2 of 32 conversations" in text
    assert "Of the failures of cooperation, the most frequent is flake reply, in 5" in text


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A report and a comparison."""
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    return [
        asyncio.run(asyncio.to_thread(lambda: asyncio.run(save_page(one, list_sessions())))),
        asyncio.run(
            asyncio.to_thread(lambda: asyncio.run(save_page(two, list_sessions(), list_sessions(flaky=2))))
        ),
    ]


def test_a_behaviour_unfolds_to_its_definition_and_three_quotations_with_links(pages: list[Path]) -> None:
    text = pages[0].read_text("utf-8")
    start = text.index('<span class="name">flake reply')
    shown = text[start : text.index("</details>", start)]
    assert "the AI assistant promises" in shown
    assert shown.count("<blockquote>") == 3
    assert shown.count("<mark>") == 3
    targets = re.findall(r'href="#([^"]+)"', text)
    assert targets
    assert [target for target in targets if f'id="{target}"' not in text] == []


def test_behaviours_that_were_not_seen_are_folded_and_a_page_says_why_it_has_no_intervals(
    pages: list[Path],
) -> None:
    text = pages[0].read_text("utf-8")
    assert re.search(r'<span class="name">\d+ not seen</span><span class="n">0 %</span>', text)
    assert not re.search(r"\b0(\.0)?–0(\.0)? %", text)
    unseen = bt.open_run(pages[0].parent / "a.db").report()["behaviours"]["infinite_loop"]
    assert unseen["turns"]["user"]["withheld"] == "only 4 role pairs, and an interval needs 10"
    assert "none here: only 4 role pairs, and an interval needs 10" in text
    assert not re.search(r"[\d.]+–[\d.]+ %", pages[1].read_text("utf-8"))


def test_what_a_run_does_not_know_is_unknown_and_never_free(pages: list[Path]) -> None:
    text = pages[0].read_text("utf-8")
    assert "cost of the run<b>unknown</b>" in text
    assert "cost of a finished conversation<b>unknown</b>" in text
    assert "$0" not in text


def test_hostile_words_in_quotations_and_conversations_stay_words(pages: list[Path]) -> None:
    text = pages[0].read_text("utf-8")
    assert text.count("&lt;script&gt;document") >= 2
    assert "<script" not in text
    assert "<img" not in text
    assert "\u202e" not in text


async def test_the_page_stays_small_however_long_the_conversations_are(tmp_path: Path) -> None:
    long = [
        session(
            f"s{number:03}", texts=["Instruction: <&> x.\nInput: None", "Solution: " + "<word> " * 1500] * 4
        )
        for number in range(4)
    ]
    page = await save_page(tmp_path, long)
    assert page.stat().st_size < 400_000
    assert "characters are left out" in page.read_text("utf-8")


def test_a_comparison_shows_the_same_job_side_by_side_and_repeats_no_report(pages: list[Path]) -> None:
    text = pages[1].read_text("utf-8")
    assert "On the same 27 jobs" in text
    assert not re.search(r">[+]?-\d", text)
    assert (
        "27 jobs (same id, roles and idea) ended in both runs; the task in their prompts is the same in all."
        in text
    )
    assert text.count('<section class="talks"><h3>') == 6
    assert 'id="c1-1"' in text
    assert 'id="c2-1"' in text
    assert "Distinct-n" not in text
    assert text.count("<h1>") == 1


def test_a_comparison_has_the_pictures_of_a_report_with_all_runs_in_each(pages: list[Path]) -> None:
    one, two = (page.read_text("utf-8") for page in pages)
    for title in ("Length", "Failures by round", "Growth of the prompt"):
        assert f"<h3>{title}" in one
        assert f"<h3>{title}" in two
    assert two.count('class="column"') > one.count('class="column"')
    for name, agents in (("Failures by round", 1), ("Growth of the prompt", 2)):
        drawn = two[two.index(f"<h3>{name}") :]
        assert [
            drawn.count(f'<polyline class="curve run{run}"', 0, drawn.index("</figure>")) for run in (0, 1)
        ] == [agents, agents]
    drawn = one[one.index("<h3>Growth of the prompt") :]
    assert [drawn.count(f'class="{kind} run{agent}"') for kind in ("curve", "band") for agent in (0, 1)] == [
        2,
        2,
        1,
        1,
    ]


def test_a_heat_map_needs_pairs_that_have_more_than_one_or_two_conversations(
    pages: list[Path],
) -> None:
    report = bt.open_run(pages[0].parent / "a.db").report()
    few = {**report.runs[0], "pairs": [{**pair, "sessions": 2} for pair in report["pairs"]]}
    assert '<table class="map">' in pages[0].read_text("utf-8")
    assert '<table class="map">' not in replace(report, runs=(few,)).render_page()


def test_a_cap_uses_all_room_and_no_more() -> None:
    assert find_cap([10, 20, 30], 100) == 30
    assert find_cap([10, 20, 30], 40) == 15
    assert find_cap([], 5) == 0


def test_a_histogram_counts_every_value_once() -> None:
    bars = build_histogram({2: 5, 3: 1, 40: 7})
    assert sum(bar.count for bar in bars) == 13
    assert len(bars) <= 16
    assert all(bar.y + bar.height == pytest.approx(220) for bar in bars)


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize(
    ("theme", "width", "rules"),
    [("light", 390, APPEARANCE), ("dark", 1280, ())],
    ids=["light-390", "dark-1280"],
)
def test_no_page_has_a_barrier_that_axe_finds(
    pages: list[Path], chromium: Browser, theme: str, width: int, rules: Sequence[str]
) -> None:
    # Colours depend on the theme and layouts on the width, so that two combinations show all of both.
    context = chromium.new_context(
        color_scheme="dark" if theme == "dark" else "light",
        viewport={"width": width, "height": 900},
        bypass_csp=True,  # axe runs as a script, which the policy of the page forbids.
    )
    add_axe(context)
    view = context.new_page()
    found: list[str] = []
    for page in pages:
        view.goto(page.as_uri())
        view.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        if view.evaluate(IS_TOO_WIDE):
            found.append(f"{page}: wider than the window")
        found += [f"{page}: {barrier}" for barrier in find_barriers(view, rules=rules)]
    context.close()
    assert found == []


@pytest.mark.system
@needs_chromium
def test_a_quotation_leads_to_its_turn_without_any_script(pages: list[Path], chromium: Browser) -> None:
    context = chromium.new_context(java_script_enabled=False)
    view = context.new_page()
    view.goto(pages[0].as_uri())
    link = view.locator("blockquote a").first
    target = (link.get_attribute("href") or "")[1:]
    assert not view.locator(f"[id='{target}']").is_visible()
    link.click()
    assert view.locator(f"[id='{target}']").is_visible()
    context.close()


@pytest.mark.system
@needs_chromium
def test_on_paper_every_behaviour_is_unfolded_and_only_open_conversations_are_printed(
    pages: list[Path], chromium: Browser
) -> None:
    view = chromium.new_page(viewport={"width": 794, "height": 1100})
    view.goto(pages[0].as_uri())
    view.emulate_media(media="print")
    assert view.locator(".behaviour blockquote").last.is_visible()
    assert view.locator(".talk:visible").count() == 0
    names = view.locator(".behaviour .name")
    assert min(names.nth(number).bounding_box()["width"] for number in range(names.count())) > 60  # type: ignore[index]
    view.close()


@pytest.mark.system
@needs_chromium
@pytest.mark.parametrize("number", [0, 1])
def test_on_paper_no_heading_stands_over_conversations_that_are_not_printed(
    pages: list[Path], chromium: Browser, number: int
) -> None:
    view = chromium.new_page(viewport={"width": 794, "height": 1100})
    view.goto(pages[number].as_uri())
    view.emulate_media(media="print")
    assert not view.locator("#conversations").is_visible()
    assert view.locator(".talks h3:visible").count() == 0
    view.emulate_media(media="screen")
    view.locator(".talk > summary").first.click()
    view.emulate_media(media="print")
    assert view.locator("#conversations").is_visible()
    assert (view.locator(".talk:visible").count(), view.locator(".talks h3:visible").count()) == (1, 1)
    view.close()
