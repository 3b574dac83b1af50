"""Conversations that are being written are seen at once; from the page they are played, paused and taken over."""

from __future__ import annotations

import asyncio
import json
import queue
import re
import threading
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from bactrian.records.session import Session
from bactrian.store import open_store
from tests.helpers.browser import find_barriers, needs_chromium
from tests.helpers.explorer import RunningExplorer, explore, run_apart
from tests.helpers.runs import make_run, session

pytestmark = [needs_chromium, pytest.mark.system]


def write_script(delay: float) -> dict[str, list[object]]:
    """What the agents say, each message after ``delay`` seconds."""
    return {
        "task_specifier": ["Build a small tea timer."],
        "user": [
            *({"text": f"Instruction: Name part {n}.\nInput: None", "delay": delay} for n in range(1, 5)),
            "<CAMEL_TASK_DONE>",
        ],
        "assistant": [{"text": f"Solution: Part {n}.\nNext request.", "delay": delay} for n in range(1, 5)],
    }


SCRIPT = write_script(0.05)
WATCHED = write_script(0.4)
"""Slow enough to be paused or stopped by a person."""
CHOICES = {
    "user": [
        ["Instruction: Name a tea.\nInput: None", "Instruction: Name a cup.\nInput: None"],
        "<CAMEL_TASK_DONE>",
    ],
    "assistant": [["Solution: Sencha.\nNext request.", "Solution: Assam.\nNext request."]],
    "critic": ["Choice: 1\nIt is clear."] * 4,
}


SOCIETY = """
name = "tea-house"
task = "Choose a tea"

[[agents]]
name = "guest"
role = "Guest"

[[agents]]
name = "host"
role = "Host"
prompt = "Pour what was chosen: {{ task }}"

[[agents]]
name = "taster"
role = "human"
prompt = "Drink: {{ task }}"

[[stages]]
name = "choose"
user = "guest"
assistant = "host"

[stages.critic]
role = "Tea taster"
proposals = 2

[[stages]]
name = "pour"
agents = ["host", "taster"]
done_by = ["taster"]
"""
POURING = {**CHOICES, "host": ["Here is your cup."] * 3}


@pytest.fixture(scope="module")
def theatre(tmp_path_factory: pytest.TempPathFactory, guarded_processes: Path) -> Generator[RunningExplorer]:
    """An explorer that may play two scripts, each idea once, beside a run of one conversation."""
    folder = tmp_path_factory.mktemp("theatre")
    # Apart, before the browser's event loop runs in this thread.
    run_apart(make_run(folder / "run.db", [session("first")]))
    (folder / "tea-house.toml").write_text(SOCIETY)
    for name, content in (("script", SCRIPT), ("choices", CHOICES), ("pouring", POURING)):
        (folder / f"{name}.json").write_text(json.dumps(content))
    models = [
        part
        for name in ("script", "choices", "pouring")
        for part in ("--model", f"scripted:{folder}/{name}.json")
    ]
    with explore(folder, "run.db", "--edit", "--society", "tea-house.toml", *models, sessions=1) as explorer:
        yield explorer


@pytest.fixture
def stage(theatre: RunningExplorer, chromium: Browser) -> Generator[tuple[RunningExplorer, Page]]:
    """This explorer, with what it can play as it was, and a page of it."""
    (theatre.folder / "script.json").write_text(json.dumps(SCRIPT))
    (theatre.folder / "choices.json").write_text(json.dumps(CHOICES))
    # A page that scrolls smoothly is drawn sixty times a second.
    context = chromium.new_context(reduced_motion="reduce")
    yield theatre, context.new_page()
    context.close()


def read_played(folder: Path) -> Session:
    """The conversation that was played."""
    made: list[Session] = []

    async def read() -> None:
        async with open_store(folder / "played.db", read_only=True) as store:
            made.extend([session async for session in store.sessions()])

    reader = threading.Thread(target=lambda: asyncio.run(read()))
    reader.start()
    reader.join()
    return made[-1]


def roles(page: Page) -> Locator:
    """The form of a conversation between two roles."""
    return page.get_by_role("form", name="Two roles")


@pytest.mark.slow
def test_a_conversation_is_played_paused_and_watched_to_its_end(stage: tuple[RunningExplorer, Page]) -> None:
    explorer, page = stage
    (explorer.folder / "script.json").write_text(json.dumps(WATCHED))
    page.goto(explorer.link("/play"))
    assert find_barriers(page) == []
    # What is left empty is what `play` does by itself.
    for label in ("Task specifier", "Messages, at most", "Seed"):
        expect(roles(page).get_by_label(label)).to_have_value("")
    roles(page).get_by_role("textbox", name="Idea").fill("Build a tea timer")
    roles(page).get_by_role("button", name="Begin").click()
    expect(page.locator("#turn-1")).to_be_visible()
    expect(page.get_by_role("link", name="playing", exact=True)).to_be_visible()
    page.get_by_role("button", name="Pause").press("Enter")
    expect(page.get_by_text("Paused")).to_be_visible()
    expect(page.get_by_role("button", name="Resume")).to_be_focused()
    page.wait_for_timeout(700)
    before = page.locator("article.turn").count()
    page.wait_for_timeout(1000)
    assert page.locator("article.turn").count() == before < 9
    assert find_barriers(page) == []
    page.reload()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("heading", name="task done")).to_be_visible(timeout=20_000)
    expect(page.locator("article.turn")).to_have_count(9)
    played = read_played(explorer.folder)
    assert (len(played.turns), played.task.specified) == (9, "Build a small tea timer.")


@pytest.mark.slow
def test_a_person_takes_a_part_and_gives_it_back(stage: tuple[RunningExplorer, Page]) -> None:
    explorer, page = stage
    page.goto(explorer.link("/play"))
    roles(page).get_by_label("the AI assistant").check()
    roles(page).get_by_role("button", name="Begin").click()
    expect(page.get_by_text("You are the AI assistant")).to_be_visible()
    page.get_by_role("textbox", name="Your message").fill("A glass of <b>sand</b>.")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#turn-2")).to_contain_text("A glass of <b>sand</b>.")
    page.get_by_role("button", name="Give the assistant back").click()
    expect(page.get_by_role("heading", name="task done")).to_be_visible(timeout=20_000)
    said = read_played(explorer.folder).turns
    assert said[1].text == "Solution: A glass of <b>sand</b>.\nNext request."
    assert said[1].model == "human"
    assert said[3].model != "human"


@pytest.mark.slow
def test_a_person_is_the_critic(stage: tuple[RunningExplorer, Page]) -> None:
    explorer, page = stage
    page.goto(explorer.link("/play"))
    roles(page).get_by_label("Model").select_option(index=1)
    roles(page).get_by_label("Task specifier").select_option("no")
    roles(page).get_by_label("Critic, a role").fill("Tea taster")
    roles(page).get_by_label("Proposals").fill("2")
    roles(page).get_by_label("the critic", exact=True).check()
    roles(page).get_by_role("button", name="Begin").click()
    expect(page.get_by_text("You are the critic")).to_be_visible()
    expect(page.locator("#proposals")).to_contain_text("Name a cup.")
    assert find_barriers(page) == []
    page.get_by_role("textbox", name="Your reason").fill("because cups come first")
    page.get_by_role("button", name="Choose 2").click()
    expect(page.locator("#turn-1")).to_contain_text("Name a cup.")
    page.get_by_role("button", name="Give the critic back").click()
    expect(page.get_by_role("heading", name="task done")).to_be_visible(timeout=20_000)
    page.get_by_text("2 proposals, and the critic's decision").first.click()
    expect(page.get_by_text("because cups come first")).to_be_visible()


@pytest.mark.slow
def test_a_critic_edits_a_proposal_writes_a_message_and_asks_for_better_ones(
    stage: tuple[RunningExplorer, Page],
) -> None:
    explorer, page = stage
    offered = [f"Instruction: Name a {thing}.\nInput: None" for thing in ("tea", "cup", "pot", "bowl")]
    solutions = ["Solution: Sencha.\nNext request.", "Solution: Assam.\nNext request."]
    script = {
        "user": [offered, "<CAMEL_TASK_DONE>"],
        "assistant": [solutions],
        "critic": ["Choice: 1\nClear."] * 4,
    }
    (explorer.folder / "choices.json").write_text(json.dumps(script))
    page.goto(explorer.link("/play"))
    roles(page).get_by_role("textbox", name="Idea").fill("Talk about tea")
    roles(page).get_by_label("Model").select_option(index=1)
    roles(page).get_by_label("Task specifier").select_option("no")
    roles(page).get_by_label("Proposals", exact=True).fill("2")
    roles(page).get_by_label("Rounds of the critic").fill("2")
    roles(page).get_by_label("the critic", exact=True).check()
    roles(page).get_by_role("button", name="Begin").click()
    box = page.get_by_role("textbox", name="your own message")
    box.fill("Name something that is drunk in Japan.")
    page.get_by_role("button", name="Ask for better ones").click()
    expect(page.get_by_role("button", name="Ask for better ones")).to_be_hidden()
    page.get_by_role("button", name="Edit 2").click()
    expect(box).to_have_value(offered[3])
    assert find_barriers(page) == []
    box.fill("Instruction: Name a cup of porcelain.\nInput: None")
    page.get_by_role("button", name="Say this instead").click()
    expect(page.locator("#turn-1")).to_contain_text("Name a cup of porcelain.")
    expect(page.locator("#proposals")).to_contain_text("Assam")
    box.fill("Meissen.")
    page.get_by_role("button", name="Say this instead").click()
    expect(page.locator("#turn-2")).to_contain_text("Meissen.")
    expect(page.get_by_label("About this conversation")).to_contain_text("2 messages")
    page.get_by_role("button", name="Give the critic back").click()
    expect(page.get_by_role("heading", name="task done")).to_be_visible(timeout=20_000)
    rounds = page.locator("#turn-1 details").filter(has_text="critic's decision")
    expect(rounds.first).to_contain_text("Critic: none of them")
    expect(rounds.first).not_to_contain_text("chosen")
    said = read_played(explorer.folder).turns
    assert [turn.text for turn in said[:2]] == [
        "Instruction: Name a cup of porcelain.\nInput: None",
        "Solution: Meissen.\nNext request.",
    ]


@pytest.mark.slow
def test_a_critic_is_asked_where_all_proposals_are_equal_too(stage: tuple[RunningExplorer, Page]) -> None:
    explorer, page = stage
    script = {**CHOICES, "user": ["Instruction: Name a tea.\nInput: None", "<CAMEL_TASK_DONE>"]}
    (explorer.folder / "choices.json").write_text(json.dumps(script))
    page.goto(explorer.link("/play"))
    roles(page).get_by_role("textbox", name="Idea").fill("Talk about cups")
    roles(page).get_by_label("Model").select_option(index=1)
    roles(page).get_by_label("Task specifier").select_option("no")
    roles(page).get_by_label("Critic, a role").fill("Tea taster")
    roles(page).get_by_label("Proposals", exact=True).fill("2")
    roles(page).get_by_label("the critic", exact=True).check()
    roles(page).get_by_role("button", name="Begin").click()
    page.get_by_role("textbox", name="your own message").fill("Name a cup.")
    page.get_by_role("button", name="Say this instead").click()
    expect(page.locator("#turn-1")).to_contain_text("Name a cup.")
    page.get_by_role("button", name="Give the critic back").click()
    expect(page.get_by_role("heading", name="task done")).to_be_visible(timeout=20_000)


@pytest.mark.slow
def test_a_stopped_conversation_is_kept_and_goes_on_where_it_was(stage: tuple[RunningExplorer, Page]) -> None:
    explorer, page = stage
    (explorer.folder / "script.json").write_text(json.dumps(WATCHED))
    page.goto(explorer.link("/play"))
    roles(page).get_by_role("textbox", name="Idea").fill("Build an egg timer")
    roles(page).get_by_role("button", name="Begin").click()
    expect(page.locator("#turn-2")).to_be_visible()
    stop = page.get_by_role("button", name="Stop")
    before = stop.bounding_box()
    expect(page.locator("#turn-4")).to_be_visible()
    assert stop.bounding_box() == before, "the button moved while the page grew"
    expect(page.get_by_role("button", name="Resume")).to_be_hidden()
    stop.click()
    expect(page.get_by_role("heading", name="stopped")).to_be_visible()
    loaded = page.evaluate("performance.timeOrigin")
    kept = read_played(explorer.folder)
    assert 4 <= len(kept.turns) < 9
    assert kept.ending is not None
    assert (kept.ending.code, kept.ending.evidence) == ("stopped", "The person said stop.")
    page.wait_for_timeout(700)
    assert page.evaluate("performance.timeOrigin") == loaded, "the page loads itself again and again"
    (explorer.folder / "script.json").write_text(json.dumps(SCRIPT))
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("heading", name="task done")).to_be_visible(timeout=20_000)
    assert len(read_played(explorer.folder).turns) == 9


@pytest.mark.slow
def test_after_a_failed_model_the_page_says_why_and_goes_on(stage: tuple[RunningExplorer, Page]) -> None:
    explorer, page = stage
    script = explorer.folder / "script.json"
    script.write_text(json.dumps({**SCRIPT, "assistant": SCRIPT["assistant"][:1]}))
    page.goto(explorer.link("/play"))
    roles(page).get_by_role("textbox", name="Idea").fill("Build an hourglass")
    roles(page).get_by_role("button", name="Begin").click()
    expect(page.get_by_role("heading", name="failed")).to_be_visible(timeout=20_000)
    expect(page.get_by_text("The script has no line 2 for assistant")).to_be_visible()
    script.write_text(json.dumps(SCRIPT))
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("heading", name="task done")).to_be_visible(timeout=20_000)


def test_a_model_that_was_not_named_does_not_play(stage: tuple[RunningExplorer, Page]) -> None:
    explorer, _ = stage
    token = re.search(r'name="csrf" value="([^"]+)"', explorer.get("/play").text)
    assert token is not None
    answer = explorer.get(
        "/play", f"csrf={token[1]}&model=scripted:/etc/passwd".encode(), Origin=explorer.address
    )
    assert answer.status == 400
    assert "was not named" in answer.text


@pytest.mark.slow
def test_what_another_process_writes_appears_and_survives_a_broken_connection(
    stage: tuple[RunningExplorer, Page],
) -> None:
    explorer, page = stage
    later = session("later")
    steps = queue.Queue[int]()
    done = queue.Queue[int]()

    async def write() -> None:
        async with open_store(explorer.folder / "run.db") as store:
            await store.begin(replace(later, turns=(), ending=None))
            for turn in later.turns:
                await asyncio.to_thread(steps.get, timeout=60)
                await store.add_turn("later", turn)
                done.put(turn.number)
            await asyncio.to_thread(steps.get, timeout=60)
            assert later.ending is not None
            await store.end("later", later.ending)

    writer = threading.Thread(target=lambda: asyncio.run(write()))
    writer.start()
    steps.put(1)
    done.get(timeout=60)
    page.goto(explorer.link("/c/run/later"))
    expect(page.locator("#turn-1")).to_be_visible()
    steps.put(1)
    expect(page.locator("#turn-2")).to_be_visible()
    page.reload()
    steps.put(1)
    expect(page.locator("article.turn")).to_have_count(3)
    for _ in range(3):
        steps.put(1)
    expect(page.get_by_role("heading", name="task done")).to_be_visible()
    writer.join(timeout=60)
    expect(page.locator("article.turn")).to_have_count(len(later.turns))


@pytest.mark.slow
def test_begin_never_goes_on_with_an_older_conversation(stage: tuple[RunningExplorer, Page]) -> None:
    explorer, page = stage
    addresses: list[str] = []
    for _ in range(2):
        page.goto(explorer.link("/play"))
        roles(page).get_by_role("textbox", name="Idea").fill("Build a water clock")
        roles(page).get_by_role("button", name="Begin").click()
        expect(page.get_by_role("heading", name="task done")).to_be_visible(timeout=20_000)
        addresses.append(page.url)
    assert len(set(addresses)) == 2


@pytest.mark.slow
def test_a_person_speaks_once_where_a_critic_chooses_for_the_models(
    stage: tuple[RunningExplorer, Page],
) -> None:
    explorer, page = stage
    page.goto(explorer.link("/play"))
    roles(page).get_by_role("textbox", name="Idea").fill("Choose a cup of tea")
    roles(page).get_by_label("Model").select_option(index=1)
    roles(page).get_by_label("Task specifier").select_option("no")
    roles(page).get_by_label("Critic, a role").fill("Tea taster")
    roles(page).get_by_label("Proposals").fill("2")
    roles(page).get_by_label("the AI user").check()
    roles(page).get_by_role("button", name="Begin").click()
    for number, text in ((1, "Name a strong tea."), (3, "done")):
        expect(page.get_by_text("You are the AI user")).to_be_visible()
        page.get_by_role("textbox", name="Your message").fill(text)
        page.keyboard.press("Control+Enter")
        if number == 1:
            expect(page.locator("#turn-2")).to_contain_text("Sencha")
    expect(page.get_by_role("heading", name="task done")).to_be_visible(timeout=20_000)
    expect(page.locator("#turn-1")).to_contain_text("Name a strong tea.")


@pytest.mark.slow
def test_a_person_is_the_critic_of_a_society_and_one_of_its_agents(
    stage: tuple[RunningExplorer, Page],
) -> None:
    explorer, page = stage
    page.goto(explorer.link("/play"))
    form = page.get_by_role("form", name="A society")
    form.get_by_label("Society", exact=False).first.select_option("tea-house.toml")
    form.get_by_label("Model").select_option(index=2)
    form.get_by_label("I play its critic").check()
    form.get_by_role("button", name="Begin").click()
    expect(page.get_by_text("You are the critic")).to_be_visible()
    first = page.url.replace("?watch=1", "")
    page.get_by_role("button", name="Choose 2").click()
    expect(page.locator("#turn-1")).to_contain_text("Name a cup.")
    # The message is there before the next question is.
    expect(page.locator("#proposals")).not_to_contain_text("Name a cup.")
    page.get_by_role("textbox", name="Your reason").fill("Sencha, in a blue cup.")
    page.get_by_role("button", name="Say this instead").click()
    expect(page.locator("#proposals")).to_contain_text("CAMEL_TASK_DONE")
    page.get_by_role("button", name="Choose 1").click()
    # The next conversation of the society follows by itself. Its file has a person in it.
    expect(page.get_by_role("heading", name="You are taster")).to_be_visible(timeout=20_000)
    assert page.url != first
    expect(page.locator("#turn-1")).to_contain_text("Here is your cup.")
    assert find_barriers(page) == []
    page.get_by_role("textbox", name="Your message").fill("Thank you. <CAMEL_TASK_DONE>")
    page.get_by_role("button", name="Say it").click()
    expect(page.get_by_role("heading", name="task done")).to_be_visible(timeout=20_000)
    assert [turn.model for turn in read_played(explorer.folder).turns][1] == "human"
    page.goto(first)
    expect(page.locator("#turn-2")).to_contain_text("Sencha, in a blue cup.")


@pytest.mark.slow
def test_a_society_of_instant_replies_leads_to_its_last_conversation(
    stage: tuple[RunningExplorer, Page],
) -> None:
    explorer, page = stage
    page.goto(explorer.link("/play"))
    form = page.get_by_role("form", name="A society")
    expect(form.get_by_text("tea-house:")).to_have_count(0)
    form.get_by_label("Society", exact=False).first.select_option("tea-house.toml")
    form.get_by_label("Model").select_option(index=2)
    form.get_by_label("Idea").fill("Choose a quick tea")
    form.get_by_role("button", name="Begin").click()
    expect(page.get_by_role("heading", name="You are taster")).to_be_visible()
    parts = page.locator("#controls [data-seat]")
    assert [part.get_attribute("data-seat") for part in parts.all()] == ["host", "taster"]
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("heading", name="stopped")).to_be_visible()


def test_a_society_that_was_not_named_is_refused(theatre: RunningExplorer) -> None:
    token = re.search(r'name="csrf" value="([^"]+)"', theatre.get("/play").text)
    assert token is not None
    for name, what in (("/etc/passwd", "There is no society"), ("panel&take_critic=1", "has a critic")):
        answer = theatre.get("/play", f"csrf={token[1]}&society={name}".encode(), Origin=theatre.address)
        assert (answer.status, what in answer.text) == (400, True)


def test_one_conversation_is_played_at_a_time(theatre: RunningExplorer) -> None:
    (theatre.folder / "script.json").write_text(json.dumps(write_script(30.0)))
    token = re.search(r'name="csrf" value="([^"]+)"', theatre.get("/play").text)
    assert token is not None
    form = urlencode({"csrf": token[1], "idea": "Name a tea"}).encode()
    first, second = (theatre.get("/play", form, Origin=theatre.address) for _ in "12")
    assert first.status == 303
    assert second.status == 400
    assert "A conversation is being played." in second.text
    stop = urlencode({"csrf": token[1], "do": "stop"}).encode()
    assert theatre.get("/play/control", stop, Origin=theatre.address).status == 303
