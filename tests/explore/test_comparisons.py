"""Comparisons say what the report says, and texts of one task are compared word by word."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from bactrian.amounts import write_points
from bactrian.explore.comparison_pages import mark_words
from tests.helpers.browser import find_barriers, needs_chromium
from tests.helpers.command import bactrian
from tests.helpers.explorer import explore, run_apart
from tests.helpers.runs import ORIGIN, make_run, session

FLIP = ["Instruction: Name a tea.\nInput: None", "Instruction: Name two."]


def test_words_that_are_new_or_gone_are_marked_and_the_spaces_stay() -> None:
    made = mark_words("Plant the red\nseeds now", "Plant blue\nseeds now, please")
    assert made is not None
    assert "".join(text for kind, text in made if kind != "gone") == "Plant blue\nseeds now, please"
    assert "".join(text for kind, text in made if kind != "new") == "Plant the red\nseeds now"
    assert ("same", "seeds ") in made
    assert mark_words("word " * 900, "word") is None


@needs_chromium
@pytest.mark.slow
def test_a_comparison_of_three_runs_says_pair_by_pair_what_the_report_says(
    tmp_path: Path, page: Page
) -> None:
    for number, name in enumerate(("one", "two", "three")):
        sessions = [
            session(
                f"s{each:02}", texts=FLIP, code="assistant_instruct", task=f"Task {each}", user=f"User {each}"
            )
            if each % 5 <= number
            else session(f"s{each:02}", rounds=2 + number, task=f"Task {each}", user=f"User {each}")
            for each in range(20)
        ]
        run_apart(make_run(tmp_path / f"{name}.db", sessions))
    told = bactrian("analyze", "one.db", "two.db", "three.db", "--json", cwd=tmp_path)
    changes = [change["paired"] for change in json.loads(told.stdout)["differences"]]
    with explore(tmp_path, "one.db", "two.db", "three.db") as one:
        for _ in range(300):
            if all(state["seen"] == 20 for state in one.status()):
                break
            page.wait_for_timeout(100)
        page.goto(one.link("/compare?one=data%3Done&two=data%3Dtwo&three=data%3Dthree"))
        assert find_barriers(page) == []
        expect(page.get_by_text("of 20 pairs")).to_have_count(2)
        for name in ("one", "two", "three"):
            expect(page.get_by_role("columnheader", name=f"{name} 20 conversations")).to_be_visible()
        for name, of in (("task done", "endings"), ("role flip", "behaviours")):
            cells = page.get_by_role("row", name=re.compile(f"^{name}")).get_by_role("cell").all_inner_texts()
            for change, cell in zip(changes, (cells[2], cells[4]), strict=True):
                expected = change[of][name.replace(" ", "_")]
                difference, _, ends = cell.partition("\n")
                assert difference == write_points(expected["difference"], 1)
                if name == "role flip":
                    assert (
                        ends == f"{write_points(expected['low'], 1)} to {write_points(expected['high'], 1)}"
                    )
        for name in ("messages", "tokens"):
            expect(page.get_by_role("row", name=re.compile(f"^{name}"))).to_have_count(1)
        page.get_by_role("row", name=re.compile("^role flip")).get_by_role("link").nth(1).click()
        page.wait_for_url("**/conversations?**behaviour=role_flip**")
        expect(page.get_by_role("heading", level=1)).to_have_text("8 conversations")
        page.goto(one.link("/compare/conversations?pick=one/s02&pick=two/s02"))
        assert find_barriers(page) == []
        expect(page.locator("ins").first).to_be_visible()
        expect(page.locator("del").first).to_have_text("<CAMEL_TASK_DONE>")
        page.get_by_role("link", name="Show the texts as they are").click()
        expect(page.get_by_role("link", name="Mark the differences")).to_be_visible()


@pytest.mark.slow
def test_the_numbers_of_pairs_stand_beside_their_difference_and_why_there_is_no_interval(
    tmp_path: Path,
) -> None:
    """Of six jobs of the first run, the second has two, which fail there and in the first do not."""
    done = [session(f"s{each}", task=f"Task {each}") for each in range(4)]
    failed = [
        session(f"s{each}", texts=FLIP, code="assistant_instruct", task=f"Task {each}") for each in (4, 5)
    ]
    run_apart(make_run(tmp_path / "one.db", [*done, *failed]))
    other = [replace(each, id=each.id) for each in done[:1]]
    lost = session("s1", texts=FLIP, code="assistant_instruct", task="Task 1")
    run_apart(make_run(tmp_path / "two.db", [*other, lost]))
    with explore(tmp_path, "one.db", "two.db", sessions=6) as one:
        text = one.get("/compare?one=data%3Done&two=data%3Dtwo").text
    row = text.partition(">task done<")[2].partition("</tr>")[0]
    assert "66.7 %" in row
    assert "100 % → 50.0 %" in row
    assert "\N{MINUS SIGN}50.0" in row
    assert "Here: only 2 conversations, and an interval needs 10." in text, text[text.find("Here:") :][:200]


@needs_chromium
@pytest.mark.slow
def test_a_behaviour_that_a_run_cannot_show_does_not_apply(tmp_path: Path, page: Page) -> None:
    for name, needs_code in (("plain", False), ("code", True)):
        origin = replace(ORIGIN, needs_code=needs_code)
        sessions = [session(f"s{each:02}", task=f"Task {each}", provenance=origin) for each in range(12)]
        run_apart(make_run(tmp_path / f"{name}.db", sessions))
    told = json.loads(bactrian("analyze", "plain.db", "code.db", "--json", cwd=tmp_path).stdout)
    applies = [report["behaviours"]["no_code"]["applies"] for report in told["runs"]]
    assert applies == [0, 12]
    with explore(tmp_path, "plain.db", "code.db") as one:
        for _ in range(300):
            if all(state["seen"] == 12 for state in one.status()):
                break
            page.wait_for_timeout(100)
        page.goto(one.link("/compare?one=data%3Dplain&two=data%3Dcode"))
        cells = page.get_by_role("row", name=re.compile("^no code")).get_by_role("cell").all_inner_texts()
        assert cells == ["does not apply", "100 %", "–\nno interval"]
