"""A person says of findings whether they are right; lists, statistics and the run know it."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from bactrian.records.run import Confirmation
from bactrian.store import open_store
from tests.helpers.browser import APPEARANCES, IS_TOO_WIDE, find_barriers
from tests.helpers.command import bactrian
from tests.helpers.explorer import Answer, RunningExplorer, explore, run_apart
from tests.helpers.runs import make_run, session

pytestmark = pytest.mark.system

FLIP = ["Instruction: Plan the garden.\nInput: None", "Instruction: Now you plan it.\nInput: None"]
IN_SMALL_LETTERS = [
    "Instruction: Design the dial of the timer.\nInput: None",
    "solution: The dial has sixty marks and one hand of brass.\nNext request.",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run: twelve role flips, a candidate, and two conversations without a finding."""
    folder = tmp_path_factory.mktemp("review")
    sessions = [
        *(session(f"f{number:02}", texts=FLIP, code="assistant_instruct") for number in range(12)),
        session("small", texts=IN_SMALL_LETTERS),
        *(session(f"s{number}") for number in range(2)),
    ]
    run_apart(make_run(folder / "run.db", sessions))
    return folder


@pytest.fixture(scope="module")
def reviewed(folder: Path) -> Generator[RunningExplorer]:
    """An explorer of this run that may write."""
    with explore(folder, "run.db", "--edit", sessions=15) as explorer:
        yield explorer


def say(explorer: RunningExplorer, conversation: str, answer: str, **fields: str) -> Answer:
    """Send the form of a conversation's page."""
    token = re.search(r'name="csrf" value="([^"]+)"', explorer.get(f"/c/run/{conversation}").text)
    assert token is not None
    data = urlencode({"csrf": token[1], "answer": answer, **fields}).encode()
    return explorer.get(f"/c/run/{conversation}/findings?sort=longest", data, Origin=explorer.address)


def read_answers(folder: Path) -> dict[tuple[str, int, str], bool | None]:
    """What the run contains."""

    async def read() -> list[Confirmation]:
        async with open_store(folder / "run.db", read_only=True) as store:
            return await store.confirmations("human")

    return {answer.key: answer.holds for answer in run_apart(read())}


def count(explorer: RunningExplorer, behaviour: str) -> int:
    """The conversations that show a behaviour."""
    return json.loads(explorer.get(f"/conversations.json?behaviour={behaviour}").text)["count"]


@pytest.mark.slow
def test_a_rejected_finding_does_not_count_and_a_confirmed_candidate_does(
    reviewed: RunningExplorer, folder: Path
) -> None:
    assert (count(reviewed, "role_flip"), count(reviewed, "missing_marker")) == (12, 12)
    assert "possible: <strong>missing marker" in reviewed.get("/c/run/small").text
    answer = say(reviewed, "f00", "wrong 2 role_flip")
    assert (answer.status, answer.headers["location"]) == (303, "/c/run/f00?sort=longest#finding-1")
    assert say(reviewed, "small", "right 2 missing_marker").status == 303
    assert "<s>role flip</s>" in reviewed.get("/c/run/f00").text
    reviewed.wait(lambda _: (count(reviewed, "role_flip"), count(reviewed, "missing_marker")) == (11, 13))
    for number in range(1, 11):
        say(reviewed, f"f{number:02}", "right 2 role_flip")
    reviewed.wait(lambda _: "10 of 11 findings read are right, 90.9 %" in reviewed.get("/statistics").text)
    assert "10 of 11 findings read are right, 90.9 %" in reviewed.get("/conversations").text
    read = json.loads(reviewed.get("/statistics.json").text)["read"]["role_flip"]
    assert (read["found"], read["precision"]["confirmed"]) == (11, 10)
    assert 0.5 < read["precision"]["low"] < 0.91 < read["precision"]["high"] < 1
    report = json.loads(bactrian("analyze", "run.db", "--json", cwd=folder).stdout)["behaviours"]
    assert report["role_flip"]["read"] == {**read, "possible": 0, "confirmed_possible": 0}
    assert (report["role_flip"]["sessions"], report["missing_marker"]["sessions"]) == (11, 13)
    assert "10 of 11 (" in bactrian("analyze", "run.db", cwd=folder).stdout


def test_an_answer_can_be_changed_and_withdrawn(reviewed: RunningExplorer, folder: Path) -> None:
    key = ("f11", 2, "role_flip")
    for word, stored in (("wrong", False), ("right", True), ("unsaid", None)):
        say(reviewed, "f11", f"{word} 2 role_flip")
        assert read_answers(folder)[key] is stored
    page = reviewed.get("/c/run/f11").text
    assert 'value="right 2 role_flip"' in page
    assert "<s>" not in page


@pytest.mark.parametrize(
    "answer", ["maybe 2 role_flip", "right 9 role_flip", "right 2 refusal", "right", "", "right x role_flip"]
)
def test_what_is_no_answer_to_a_finding_is_refused(reviewed: RunningExplorer, answer: str) -> None:
    refused = say(reviewed, "s1", answer)
    assert refused.status == 400
    assert "no such finding" in refused.text


@pytest.mark.slow
def test_answers_of_a_judge_stand_beside_the_finding_and_a_person_is_believed_more(
    tmp_path: Path,
) -> None:
    run_apart(make_run(tmp_path / "run.db", [session("f", texts=FLIP, code="assistant_instruct")]))

    async def judge() -> None:
        from bactrian.records.turn import Usage

        async with open_store(tmp_path / "run.db") as store:
            await store.add_confirmation(
                Confirmation("f", 2, "role_flip", "openai:judge", False, "No.", Usage(), 0.0, "judge")
            )

    run_apart(judge())
    with explore(tmp_path, "run.db", "--edit", sessions=1) as explorer:
        explorer.wait(lambda _: count(explorer, "role_flip") == 0)
        assert "openai:judge: wrong." in explorer.get("/c/run/f").text
        say(explorer, "f", "right 2 role_flip")
        explorer.wait(lambda _: count(explorer, "role_flip") == 1)


def test_without_the_flag_nothing_is_asked_and_nothing_stored(explored: RunningExplorer) -> None:
    assert 'id="review"' not in explored.get("/c/run/flip").text
    refused = explored.get("/c/run/flip/findings", b"answer=right+2+role_flip", Origin=explored.address)
    assert refused.status == 403


@pytest.mark.slow
def test_findings_are_answered_with_the_keyboard_only(
    reviewed: RunningExplorer, folder: Path, page: Page
) -> None:
    page.goto(reviewed.link("/c/run/f11"))
    page.wait_for_load_state()
    page.keyboard.press("n")
    page.keyboard.press("x")
    wrong = page.get_by_role("button", name="Wrong: finding 1")
    expect(wrong).to_have_attribute("aria-pressed", "true")
    assert read_answers(folder)["f11", 2, "role_flip"] is False
    assert page.url.endswith("#finding-1")
    page.wait_for_load_state()
    page.keyboard.press("y")
    expect(page.get_by_role("button", name="Right: finding 1")).to_have_attribute("aria-pressed", "true")
    for theme, width, rules in APPEARANCES:
        page.emulate_media(color_scheme=theme)
        page.set_viewport_size({"width": width, "height": 800})
        assert not page.evaluate(IS_TOO_WIDE), width
        assert find_barriers(page, rules=rules) == [], theme
