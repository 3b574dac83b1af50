"""What is special about some kinds of conversations: searches, group chats, translations, embodied agents."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bactrian.api.conversation import order_session
from bactrian.explore.bundle import FetchedPage, fetch_page, write_bundle
from bactrian.explore.layout import Branch, explain_behaviour, list_rounds
from bactrian.explore.library import list_kept_files, open_library
from bactrian.explore.playing import LiveStage
from bactrian.explore.rendering import Explorer
from bactrian.explore.server import build_app
from bactrian.models.model import Request
from bactrian.options import PlayOptions
from bactrian.recipes.society_file import load_society
from bactrian.records.run import BEHAVIOURS
from bactrian.records.session import Ending, Role
from bactrian.records.text import Text
from bactrian.records.turn import CriticSettings, Decision, Deliberation, Message, Proposal, Sampling, Usage
from bactrian.roleplay.role_play import SessionOrder
from bactrian.store import open_store
from bactrian.store.locations import name_files_folder
from tests.helpers.command import bactrian
from tests.helpers.runs import ORIGIN, make_run, session, turn


async def fetch(runs: Sequence[Path], *addresses: str) -> list[FetchedPage]:
    """Return pages of an explorer over ``runs``."""
    async with open_library(runs) as library:
        app = build_app(Explorer(library))
        return [await fetch_page(app, address) for address in addresses]


def propose(number: int, place: int, text: str, parent: int | None = None) -> Proposal:
    return Proposal(number, 1, place, "user", Text(text), Usage(), 0.0, "m", "stop", parent=parent)


def decide(number: int, *kept: int) -> Decision:
    return Decision(number, 1, 1, "user", "Critic", Text("x"), kept[0], kept=kept)


def outline(branches: Sequence[Branch]) -> list[object]:
    """The tree as nested lists: text, ``!`` if spoken, ``+`` if the search went on."""
    return [
        [f"{branch.proposal.text}{'!' * branch.chosen}{'+' * branch.survives}", *outline(branch.children)]
        for branch in branches
    ]


def test_a_search_is_one_tree_over_all_its_turns_with_the_line_that_was_spoken() -> None:
    known = Deliberation(
        (
            *(propose(1, place, f"a{place}") for place in (1, 2, 3)),
            *(propose(2, place, f"b{place}", parent) for place, parent in ((1, 2), (2, 2), (3, 1), (4, 1))),
            propose(3, 1, "c1", 3),
            propose(3, 2, "c2", 1),
        ),
        (decide(1, 2, 1), decide(2, 3, 1), decide(3, 1)),
    )
    critic = CriticSettings("Critic", width=2, depth=3)
    (tree,) = list_rounds(known, 1, critic, ())
    assert outline(tree.roots) == [
        ["a1!+", ["b3!+", ["c1!+"]], ["b4"]],
        ["a2+", ["b1+", ["c2"]], ["b2"]],
        ["a3"],
    ]
    assert (tree.count, tree.last, len(tree.verdicts)) == (9, 3, 3)
    assert list(list_rounds(known, 2, critic, ())) == []


def test_proposals_that_were_all_the_same_show_which_was_spoken() -> None:
    known = Deliberation((propose(1, 1, "a"), propose(1, 2, "a")))
    (round_,) = list_rounds(known, 1, CriticSettings("Critic"), (turn(1, "a"),))
    assert outline(round_.roots) == [["a!"], ["a"]]


async def test_a_group_chat_says_who_does_not_hear_a_message(tmp_path: Path) -> None:
    society, _ = load_society("tech-lead")
    names = [agent.name for agent in society.agents]
    content = society.model_dump(mode="json", exclude_none=True)
    content["agents"][1]["hears"] = [names[2]]
    cast = {name: Role(f"Role {name}") for name in names}
    talk = replace(session("talk", texts=["Hello"]), provenance=replace(ORIGIN, cast=cast))
    ending = Ending("task_done", 1, names[0], "")
    talk = replace(talk, turns=(replace(talk.turns[0], speaker=names[0]),), ending=ending)
    run = await make_run(tmp_path / "run.db", [talk])
    async with open_store(run) as store:
        await store.freeze({"recipe": {"name": "x"}, "society": content})
    (page,) = await fetch([run], "/c/run/talk")
    assert f'Not heard by <span dir="auto">Role {names[1]}</span>'.encode() in page.body
    assert f"Role {names[0]} said that the task is done.".encode() in page.body


OWN_SOCIETY = """
name = "own"
description = "Three talk, and one of them does not hear another."
task = "A timer"
[[agents]]
name = "a"
role = "Role a"
prompt = "Talk about {{ task }}."
[[agents]]
name = "b"
role = "Role b"
prompt = "Talk about {{ task }}."
hears = ["c"]
[[agents]]
name = "c"
role = "Role c"
prompt = "Talk about {{ task }}."
[[stages]]
name = "talk"
agents = ["a", "b", "c"]
max_messages = 3
"""


async def test_a_played_society_of_a_file_says_who_does_not_hear_a_message(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(OWN_SOCIETY)
    (tmp_path / "script.json").write_text(json.dumps({name: ["Yes."] for name in "abc"}))
    command = "play --society own.toml --model scripted:script.json --run run.db".split()
    done = bactrian(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "own.toml").unlink()
    async with open_store(tmp_path / "run.db", read_only=True) as store:
        (talk,) = [session.id async for session in store.sessions()]
    (page,) = await fetch([tmp_path / "run.db"], f"/c/run/{talk}")
    assert page.body.count(b"Not heard by") == 1
    assert b'Not heard by <span dir="auto">Role b</span>' in page.body


async def test_a_translation_and_its_original_lead_to_each_other(tmp_path: Path) -> None:
    original = await make_run(tmp_path / "run.db", [session("001")])
    german = replace(
        session("de_001", texts=["Anweisung"]),
        values={"language": "de", "source": "001"},
        provenance=replace(ORIGIN, models={"translator": "openai:one"}, language="German"),
    )
    translated = await make_run(tmp_path / "de.db", [german])
    async with open_store(translated) as store:
        recipe = {
            "translate": {"source": "run.db", "languages": {"de": "German"}},
            "axes": [{"name": "language", "given": ["de"]}],
        }
        await store.freeze({"recipe": recipe})
    pages = await fetch([original, translated], "/c/run/001", "/c/de/de_001")
    beside = "/compare/conversations?pick=run/001&amp;pick=de/de_001"
    assert f'href="{beside}"'.encode() in pages[0].body
    back = "/compare/conversations?pick=de/de_001&amp;pick=run/001"
    assert f'href="{back}"'.encode() in pages[1].body
    (alone,) = await fetch([translated], "/c/de/de_001")
    assert b"side by side" not in alone.body


FILES: Mapping[str, bytes] = {"camel.png": b"\x89PNG", "page.html": b"<script>1</script>", "a.svg": b"<svg/>"}


async def make_embodied(folder: Path) -> Path:
    """Write a run whose first conversation has files, and a link out of their folder."""
    run = await make_run(folder / "run.db", [session("001"), session("002")])
    kept = name_files_folder(run, "001")
    kept.mkdir(parents=True)
    for name, content in FILES.items():
        (kept / name).write_bytes(content)
    (folder / "secret.txt").write_text("secret")
    (kept / "link.txt").symlink_to(folder / "secret.txt")
    (kept / ".hidden").write_text("secret")
    return run


async def test_files_of_an_embodied_agent_are_shown_and_lead_nowhere_else(tmp_path: Path) -> None:
    run = await make_embodied(tmp_path)
    assert [file.name for file in list_kept_files(run, "001")] == ["a.svg", "camel.png", "page.html"]
    strange = ("link.txt", ".hidden", "..%2Fsecret.txt", "%2e%2e", "secret.txt")
    names = (*FILES, *strange)
    page, other, *files = await fetch(
        [run], "/c/run/001", "/c/run/002", *(f"/c/run/001/files/{name}" for name in names)
    )
    assert b'<img src="/c/run/001/files/camel.png" alt="camel.png"' in page.body
    assert b'<img src="/c/run/001/files/page.html"' not in page.body
    assert b"/files/" not in other.body
    for answer, content in zip(files, FILES.values(), strict=False):
        assert (answer.status, answer.body) == (200, content)
        assert answer.headers["content-disposition"].startswith("attachment")
    assert {answer.status for answer in files[len(FILES) :]} == {404}


async def test_a_copy_takes_pictures_and_no_other_files(tmp_path: Path) -> None:
    run = await make_embodied(tmp_path)
    await write_bundle([run], tmp_path / "copy")
    made = [path.name for path in (tmp_path / "copy").rglob("*") if path.parent.name == "001-files"]
    assert made == ["camel.png"]
    page = (tmp_path / "copy" / "c" / "run" / "001.html").read_text()
    assert '<img src="001-files/camel.png"' in page
    assert "page.html</a>" in page
    assert json.loads((tmp_path / "copy" / "manifest.json").read_text())["conversations"] == 2


async def test_code_is_no_landmark_which_has_a_name_of_its_own(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "run.db", [session("talk", texts=["```python\npass\n```"] * 2)])
    for page in await fetch([run], "/c/run/talk", "/c/run/talk?text=raw"):
        assert page.body.count(b'aria-label="Code, python"') == 2
        assert b'role="region"' not in page.body


def test_every_behaviour_is_explained_in_a_sentence() -> None:
    assert explain_behaviour("role_flip") == "An agent plays the other's part."
    told = {code: explain_behaviour(code) for code in BEHAVIOURS}
    assert [code for code, text in told.items() if not (text.endswith(".") and text[0].isupper())] == []
    assert explain_behaviour("unknown") == ""


async def test_questions_of_one_turn_share_an_answer_and_others_wait(tmp_path: Path) -> None:
    order = order_session("Tea", model="local", run=tmp_path / "run.db", options=PlayOptions(max_messages=2))
    assert isinstance(order, SessionOrder)
    asked = LiveStage("played", ("user",), order)
    first, second = (
        Request([Message("user", Text(text))], Sampling(), agent="user") for text in ("one", "two")
    )
    waiting = [asyncio.create_task(asked.ask(request)) for request in (first, second, first)]
    for text in ("A", "B"):
        await asyncio.sleep(0.01)
        assert asked.question is not None
        assert asked.answer(text)
    assert await asyncio.gather(*waiting) == ["A", "B", "A"]
    assert asked.question is None


def test_what_was_spoken_is_marked_where_no_decision_could_be_read() -> None:
    unreadable = tuple(
        Decision(1, 1, attempt, "user", "Critic", Text("?"), None, problem="no number") for attempt in (1, 2)
    )
    known = Deliberation((propose(1, 1, "A"), propose(1, 2, "B")), unreadable)
    (shown,) = list_rounds(known, 1, CriticSettings("Critic"), [turn(1, "A")])
    assert [root.chosen for root in shown.roots] == [True, False]
