"""Queues of conversations that people label in the browser, each alone; agreement, export, and training on them."""

from __future__ import annotations

import http.client
import json
import re
import signal
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, expect

from bactrian.evaluate.label_queues import (
    GivenLabels,
    find_queues,
    read_given,
    read_queue,
    store_labels,
)
from tests.helpers.browser import APPEARANCES, IS_TOO_WIDE, add_axe, find_barriers
from tests.helpers.command import bactrian
from tests.helpers.explorer import Answer, RunningExplorer, explore, run_apart
from tests.helpers.runs import make_run, session

pytestmark = pytest.mark.system

ASK = "Instruction: Sort the tools by size.\nInput: None"
SORRY = "Solution: I am sorry, I cannot see the tools.\nNext request."
SORTED = "Solution: The hammer comes first, then the awl.\nNext request."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of twenty conversations, of which half contain an apology."""
    folder = tmp_path_factory.mktemp("labels")
    sessions = [
        session(f"s{number:02}", texts=[ASK, SORRY if number % 2 else SORTED], task=f"Task {number}")
        for number in range(20)
    ]
    run_apart(make_run(folder / "run.db", sessions))
    return folder


@pytest.fixture(scope="module")
def labelling(folder: Path) -> Generator[RunningExplorer]:
    """An explorer of this run that may write."""
    with explore(folder, "run.db", "--edit") as explorer:
        yield explorer


def make(folder: Path, name: str, *words: str) -> dict[str, str]:
    """Make a queue, and return the token of each person."""
    done = bactrian("behaviours", "queue", "run.db", name, *words, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return {row["person"]: row["link"].partition("invite=")[2] for row in json.loads(done.stdout)}


def get(explorer: RunningExplorer, token: str, path: str = "/label") -> Answer:
    return explorer.get(path, Cookie=f"bactrian_labeller_{explorer.address.rsplit(':', 1)[1]}={token}")


def send(explorer: RunningExplorer, token: str, page: str, **fields: str) -> Answer:
    """Send the form of ``page`` as its browser would."""
    hidden = dict(
        re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page.split('id="labels"')[1])
    )
    return explorer.get(
        "/label",
        urlencode({**hidden, **fields}).encode(),
        Origin=explorer.address,
        Cookie=f"bactrian_labeller_{explorer.address.rsplit(':', 1)[1]}={token}",
    )


def given(folder: Path, name: str) -> list[GivenLabels]:
    return read_given(find_queues(folder / "run.db")[name])


def is_sorry(name: str) -> bool:
    return int(name[1:]) % 2 == 1


def open_link(chromium: Browser, explorer: RunningExplorer, token: str) -> Page:
    page = chromium.new_context().new_page()
    page.goto(f"{explorer.address}/label?invite={token}")
    return page


@pytest.mark.slow
def test_two_people_label_twenty_conversations_at_once_with_three_keys_each(
    labelling: RunningExplorer, folder: Path, chromium: Browser
) -> None:
    tokens = make(folder, "sorry", "--label", "apology=The assistant apologises.", "--label", "refusal",
                  "--person", "heron", "--person", "tern")  # fmt: skip
    for token in tokens.values():  # the first of them without a browser, which takes longer
        page = get(labelling, token).text
        for _ in range(14):
            sorry = {"is-apology": "1", "at-apology": "2"} if "I am sorry" in page else {"none": "1"}
            assert send(labelling, token, page, **sorry).status == 303
            page = get(labelling, token).text
    pages = [open_link(chromium, labelling, token) for token in tokens.values()]
    heading = [page.get_by_role("heading", level=1) for page in pages]
    for number in range(14, 20):
        for page, title in zip(pages, heading, strict=True):
            expect(title).to_have_text(f"Conversation {number + 1} of 20")
            page.wait_for_load_state()  # keys are heard once the script has run
            if page.get_by_text("I am sorry").count():
                page.keyboard.press("]")
                page.keyboard.press("]")
                page.keyboard.press("1")
            else:
                page.keyboard.press("0")
            page.keyboard.press("Enter")
    for title, name in zip(heading, tokens, strict=True):
        expect(title).to_have_text(f"Thank you, {name}")
    for page in pages:
        page.context.close()
    answers = given(folder, "sorry")
    assert len(answers) == 40
    assert all(answer.labels == ({"apology": 2} if is_sorry(answer.session) else {}) for answer in answers)
    said = json.loads(bactrian("behaviours", "labels", "run.db", "sorry", "--json", cwd=folder).stdout)[
        "sorry"
    ]
    assert (said["labelled"], said["twice"], said["people"]) == (20, 20, {"heron": 20, "tern": 20})
    assert (said["labels"]["apology"]["count"], said["labels"]["apology"]["alpha"]["value"]) == (10, 1)
    assert said["labels"]["refusal"]["alpha"]["value"] is None  # nobody chose it
    text = labelling.get("/labels").text
    assert "20 of 20 conversations are labelled, 20 of them by two people or more" in text
    report = bactrian("analyze", "run.db", cwd=folder).stdout
    assert (
        "labels of sorry: 20 of 20 conversations, 20 of them by several people (heron 20, tern 20)" in report
    )
    assert "1.00" in report
    assert bactrian("analyze", "run.db", "--report", "run.html", cwd=folder).returncode == 0
    assert "What people say: sorry" in (folder / "run.html").read_text("utf-8")


@pytest.mark.slow
def test_what_people_labelled_trains_a_behaviour(
    labelling: RunningExplorer, folder: Path, tmp_path: Path
) -> None:
    tokens = make(folder, "learn", "--label", "apology", "--person", "owl")
    page = get(labelling, tokens["owl"]).text
    for _ in range(20):
        sorry = {"is-apology": "1", "at-apology": "2"} if "I am sorry" in page else {"none": "1"}
        assert send(labelling, tokens["owl"], page, **sorry).status == 303
        page = get(labelling, tokens["owl"]).text
    assert "nothing is left" in page
    done = bactrian("behaviours", "labels", "run.db", "learn", "-o", "learn.jsonl", cwd=folder)
    assert "learn.jsonl: 20 of 20 labelled conversations" in done.stderr
    written = (folder / "learn.jsonl").read_text("utf-8")
    assert labelling.get("/labels/run/learn.training.jsonl").text == written
    answers = labelling.get("/labels/run/learn.answers.jsonl").text.splitlines()
    assert {json.loads(line)["person"] for line in answers} == {"owl"}
    trained = bactrian("behaviours", "train", "learn.jsonl", cwd=folder, XDG_DATA_HOME=str(tmp_path))
    assert "apology: 20 conversations" in trained.stdout, trained.stderr


def test_exactly_one_label_fits_where_the_queue_says_so(labelling: RunningExplorer, folder: Path) -> None:
    tokens = make(folder, "tone", "--label", "warm", "--label", "cold", "--one", "-n", "10",
                  "--person", "heron", "--person", "tern")  # fmt: skip
    for name, token in tokens.items():
        for number in range(10):
            page = get(labelling, token).text
            session = re.findall(r'name="session" value="(\w+)"', page)[0]
            label = "warm" if is_sorry(session) or (name == "tern" and number == 0) else "cold"
            assert send(labelling, token, page).status == 409  # nothing is chosen
            assert send(labelling, token, page, label=label).status == 303
    said = json.loads(bactrian("behaviours", "labels", "run.db", "tone", "--json", cwd=folder).stdout)["tone"]
    assert said["exclusive"]
    assert 0.3 < said["alpha"]["value"] <= 1
    assert "all labels together" in labelling.get("/labels").text


@pytest.mark.slow
def test_labels_that_are_behaviours_tell_precision_and_recall_of_their_detectors(
    labelling: RunningExplorer, tmp_path: Path
) -> None:
    flip = ["Instruction: Plan the garden.\nInput: None", "Instruction: Now you plan it.\nInput: None"]
    sessions = [
        *(session(f"f{number}", texts=flip, task=f"Plan {number}", assistant=f"Cook {number}") for number in range(12)),
        *(session(f"s{number}", task=f"Sort {number}", assistant=f"Poet {number}") for number in range(12)),
    ]  # fmt: skip
    run_apart(make_run(tmp_path / "run.db", sessions))
    for name, words in (("all", ("-n", "24")), ("found", ("--behaviour", "role_flip", "-n", "12"))):
        make(tmp_path, name, "--label", "role_flip", *words)
        folder = find_queues(tmp_path / "run.db")[name]
        queue = read_queue(folder)
        for place in queue.sessions:  # people reject two findings, and see one that was missed
            holds = place == "s0" or (place.startswith("f") and place not in ("f0", "f1"))
            store_labels(folder, queue, GivenLabels(place, "owl", {"role_flip": 2} if holds else {}), None)
    report = json.loads(bactrian("analyze", "run.db", "--json", cwd=tmp_path).stdout)["labels"]
    detector = report["all"]["labels"]["role_flip"]["detector"]
    assert (detector["found"], detector["precision"]["count"], detector["recall"]["count"]) == (12, 10, 10)
    assert detector["precision"]["low"] < 10 / 12 < detector["precision"]["high"]
    assert detector["recall"]["rate"] == 10 / 11
    assert report["found"]["labels"]["role_flip"]["detector"]["recall"] is None
    assert "10 of 12: 83.3 %" in bactrian("analyze", "run.db", cwd=tmp_path).stdout
    assert bactrian("analyze", "run.db", "--report", "run.html", cwd=tmp_path).returncode == 0
    assert "10 of 12, 83.3 %" in (tmp_path / "run.html").read_text("utf-8")
    with explore(tmp_path, "run.db", sessions=24) as explorer:
        page = explorer.get("/labels").text
    assert page.count("10 of 12: 83.3 %") == 2
    assert page.count("10 of 11: 90.9 %") == 1


def test_nobody_sees_the_labels_of_others_or_the_findings(labelling: RunningExplorer, folder: Path) -> None:
    tokens = make(folder, "blind", "--label", "apology", "--person", "heron", "--person", "tern")
    first = get(labelling, tokens["heron"]).text
    send(labelling, tokens["heron"], first, **{"is-apology": "1", "comment": "my secret"})
    for number in range(1, 21):
        other = get(labelling, tokens["tern"], f"/label?at={number}").text
        assert "my secret" not in other
        assert " checked" not in other
        assert "data-finding>" not in other
        assert "heron" not in other
    for path in ("/labels", "/c/run/s01", "/labels/run/blind.answers.jsonl"):
        answer = labelling.get(path, Cookie=f"bactrian_labeller_1={tokens['tern']}")
        assert answer.status == 401


def test_an_answer_is_changed_and_a_second_window_does_not_overwrite_it(
    labelling: RunningExplorer, folder: Path
) -> None:
    (token,) = make(folder, "change", "--label", "apology", "--person", "heron").values()
    shown = get(labelling, token).text
    assert send(labelling, token, shown, none="1").status == 303
    second = send(labelling, token, shown, **{"is-apology": "1"})
    assert second.status == 409
    assert "in another window" in second.text
    again = get(labelling, token, "/label?at=1").text
    assert send(labelling, token, again, **{"is-apology": "1", "at-apology": "1"}).status == 303
    (answer,) = given(folder, "change")
    assert answer.labels == {"apology": 1}
    assert send(labelling, token, get(labelling, token).text, skip="1").status == 303
    assert given(folder, "change")[1].skipped


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, "Nothing is chosen"),
        ({"is-apology": "1", "at-apology": "3"}, "There is no message"),
        ({"is-apology": "1", "at-apology": "x"}, "There is no message"),
        ({"is-apology": "1", "none": "1"}, "both chosen"),
        ({"none": "1", "seen": "5.0"}, "in another window"),
    ],
)
def test_a_form_that_says_nothing_clear_stores_nothing_and_keeps_what_was_written(
    labelling: RunningExplorer, folder: Path, changes: dict[str, str], why: str
) -> None:
    queues = find_queues(folder / "run.db")
    words = ("--person", "heron") if "unclear" in queues else ("--label", "apology", "--person", "heron")
    (token,) = make(folder, "unclear", *words).values()
    refused = send(labelling, token, get(labelling, token).text, comment="long thoughts", **changes)
    assert refused.status == 409
    assert why in refused.text
    assert "long thoughts" in refused.text
    assert given(folder, "unclear") == []


def test_a_wrong_link_lets_nobody_in_and_a_new_one_replaces_the_old(
    labelling: RunningExplorer, folder: Path
) -> None:
    old = make(folder, "links", "--label", "apology", "--person", "heron")["heron"]
    new = make(folder, "links", "--person", "heron")["heron"]
    assert labelling.get(f"/label?invite={old}").status == 403
    answer = labelling.get(f"/label?invite={new}")
    assert (answer.status, answer.headers["location"]) == (303, "/label")
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert get(labelling, old).status == 401


@pytest.mark.slow
def test_the_pages_of_labels_have_no_barrier(
    labelling: RunningExplorer, folder: Path, chromium: Browser
) -> None:
    words = [word for code in "abcdefgh" for word in ("--label", f"label_{code}=A long meaning of a label.")]
    (token,) = make(folder, "pages", *words, "--person", "heron").values()
    context = chromium.new_context(color_scheme="dark")
    add_axe(context)
    page = context.new_page()
    for path in (f"/label?invite={token}", "/labels", "/label?invite=wrong"):
        page.goto(labelling.link(path))
        for theme, width, rules in APPEARANCES:
            page.emulate_media(color_scheme=theme)
            page.set_viewport_size({"width": width, "height": 800})
            assert not page.evaluate(IS_TOO_WIDE), (path, width)
            assert find_barriers(page, rules=rules) == [], (path, theme)
    context.close()


def test_the_owner_labels_without_a_link(labelling: RunningExplorer, folder: Path, page: Page) -> None:
    make(folder, "mine", "--label", "apology")
    page.goto(labelling.link("/labels"))
    section = page.get_by_role("region", name="mine run", exact=True)
    section.get_by_label("Pseudonym").fill("owl")
    section.get_by_role("button", name="Label it yourself").click()
    page.get_by_label("none of these").check()
    page.get_by_role("button", name="Save and go on").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Conversation 2 of 20")
    assert [answer.person for answer in given(folder, "mine")] == ["owl"]


def test_what_was_made_to_study_misuse_is_shown_to_labellers_after_a_notice_and_markup_stays_text(
    tmp_path: Path,
) -> None:
    hostile = "<script>document.title='owned'</script> \u202e"
    texts = [f"Instruction: {hostile}\nInput: None", f"Solution: {hostile}"]
    harmful = replace(session("red", texts=texts, task=hostile, assistant=hostile[:40]), mark="red-team")
    run_apart(make_run(tmp_path / "run.db", [harmful]))
    (token,) = make(tmp_path, "red", "--label", "apology=<b>Sorry</b>", "--person", "heron").values()
    with explore(tmp_path, "run.db", "--edit") as explorer:
        port = explorer.address.rsplit(":", 1)[1]
        notice = get(explorer, token)
        assert notice.status == 403
        assert "owned" not in notice.text
        shown = explorer.get(
            "/label", Cookie=f"bactrian_labeller_{port}={token}; bactrian_agreed_{port}=yes"
        ).text
        assert "&lt;script&gt;" in shown
        assert "<script>document" not in shown
        assert "&lt;b&gt;Sorry" in shown
        assert "\u202e" not in shown


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("x/y", "--label", "apology"), "cannot be the name"),
        (("odd", "--label", "Not a code"), "cannot be the code"),
        (("odd",), "1 to 9 labels"),
        (("odd", "--label", "a=1", "--label", "a=2"), "'a' is given twice"),
        (("odd", "--label", "apology", "--one"), "2 to 9 labels"),
        (("odd", "--label", "apology", "--role", "Nobody"), "No session"),
    ],
)
def test_a_queue_that_cannot_be_is_refused(folder: Path, words: tuple[str, ...], why: str) -> None:
    done = bactrian("behaviours", "queue", "run.db", *words, cwd=folder)
    assert done.returncode == 2
    assert why in done.stderr
    assert "odd" not in find_queues(folder / "run.db")


def test_the_line_of_a_killed_writer_is_no_answer(folder: Path, labelling: RunningExplorer) -> None:
    (token,) = make(folder, "torn", "--label", "apology", "--person", "heron").values()
    assert send(labelling, token, get(labelling, token).text, none="1").status == 303
    path = find_queues(folder / "run.db")["torn"] / "labels.jsonl"
    path.write_bytes(path.read_bytes() + b'{"session": "s01", "pers')
    assert len(given(folder, "torn")) == 1
    assert send(labelling, token, get(labelling, token).text, none="1").status == 303
    assert len(given(folder, "torn")) == 2
    assert len(read_queue(path.parent).sessions) == 20


def test_no_answer_that_was_acknowledged_is_lost_when_the_explorer_is_killed(tmp_path: Path) -> None:
    run_apart(make_run(tmp_path / "run.db", [session(f"s{number:02}") for number in range(40)]))
    people = ("heron", "tern")
    words = [word for name in people for word in ("--person", name)]
    tokens = make(tmp_path, "kill", "--label", "apology", "-n", "40", *words)
    acknowledged: list[tuple[str, str]] = []

    def answer(explorer: RunningExplorer, name: str) -> None:
        with suppress(OSError, http.client.HTTPException):  # the server is gone
            while 'id="labels"' in (page := get(explorer, tokens[name]).text):
                if send(explorer, tokens[name], page, none="1").status == 303:
                    shown = re.findall(r'name="session" value="(\w+)"', page)[0]
                    acknowledged.append((name, shown))

    for _ in range(2):
        with explore(tmp_path, "run.db", "--edit") as explorer, ThreadPoolExecutor(2) as threads:
            work = [threads.submit(answer, explorer, name) for name in people]
            before = len(acknowledged)
            while len(acknowledged) < before + 6:
                assert not all(part.done() for part in work)
                time.sleep(0.01)
            explorer.command.send_signal(signal.SIGKILL)
            for part in work:
                part.result()
            while explorer.command.returncode is None:
                time.sleep(0.01)
    stored = {(one.person, one.session) for one in given(tmp_path, "kill")}
    assert len(acknowledged) >= 12
    assert set(acknowledged) <= stored


def test_the_link_of_a_person_is_withdrawn_and_the_labels_stay(
    folder: Path, labelling: RunningExplorer
) -> None:
    (token,) = make(folder, "gone", "--label", "apology", "--person", "heron").values()
    queue = find_queues(folder / "run.db")["gone"]
    store_labels(queue, read_queue(queue), GivenLabels(read_queue(queue).sessions[0], "heron", {}), None)
    assert (
        bactrian("behaviours", "queue", "run.db", "gone", "--withdraw", "heron", cwd=folder).returncode == 0
    )
    assert labelling.get(f"/label?invite={token}", Cookie="").status == 403
    assert [answer.person for answer in read_given(queue)] == ["heron"]
    again = bactrian("behaviours", "queue", "run.db", "gone", "--withdraw", "heron", cwd=folder)
    assert (again.returncode, "Nobody is named 'heron'" in again.stderr) == (2, True)
