"""Marks and notes are kept in the run, and a filter is exported."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

import pytest

from bactrian.records.run import Mark
from bactrian.store import open_store
from tests.helpers.command import bactrian
from tests.helpers.explorer import RunningExplorer, explore, fetch_zip
from tests.helpers.runs import make_run, session

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of ten conversations; each test marks others of them."""
    folder = tmp_path_factory.mktemp("marks")
    sessions = [session(f"s{number}", assistant="Poet" if number < 4 else "Cook") for number in range(10)]
    asyncio.run(make_run(folder / "run.db", sessions))
    return folder


@pytest.fixture(scope="module")
def editable(folder: Path) -> Generator[RunningExplorer]:
    """An explorer of this run that may write."""
    with explore(folder, "run.db", "--edit", sessions=10) as explorer:
        yield explorer


def send(explorer: RunningExplorer, path: str, **fields: str) -> tuple[int, str]:
    """Send a form as the page would."""
    token = re.search(r'name="csrf" value="([^"]+)"', explorer.get("/c/run/s1").text)
    assert token is not None
    data = urlencode({"csrf": token[1], **fields}).encode()
    answer = explorer.get(path, data, Origin=explorer.address)
    return answer.status, answer.text


@pytest.mark.slow
def test_two_explorers_of_a_run_both_keep_their_marks(editable: RunningExplorer, folder: Path) -> None:
    with explore(folder, "run.db", "--edit", sessions=10) as other, ThreadPoolExecutor(2) as both:

        def mark(explorer: RunningExplorer, name: str) -> set[int]:
            return {send(explorer, "/c/run/s2/marks", mark=f"{name} {number}")[0] for number in range(8)}

        assert list(both.map(mark, (editable, other), ("one", "two"))) == [{303}, {303}]

    async def count() -> int:
        async with open_store(folder / "run.db", read_only=True) as store:
            return len([mark for mark in await store.marks("s2") if mark.mark.startswith(("one ", "two "))])

    assert asyncio.run(count()) == 16


def test_after_a_mark_the_way_back_leads_to_the_list_from_which_the_reader_came(
    editable: RunningExplorer,
) -> None:
    page = editable.get("/c/run/s1?assistant=Poet&sort=longest").text
    (action,) = set(re.findall(r'action="(/c/[^"]+)"', page))
    token = re.search(r'name="csrf" value="([^"]+)"', page)
    assert token is not None
    data = urlencode({"csrf": token[1], "mark": "good"}).encode()
    answer = editable.get(action.replace("&amp;", "&"), data, Origin=editable.address)
    assert (answer.status, answer.headers["location"]) == (303, "/c/run/s1?assistant=Poet&sort=longest#marks")


def read_marks(folder: Path, name: str) -> list[Mark]:
    """The marks of a conversation in the run."""

    async def read() -> list[Mark]:
        async with open_store(folder / "run.db", read_only=True) as store:
            return [mark for mark in await store.marks() if mark.session == name]

    return asyncio.run(read())


def count(explorer: RunningExplorer, query: str) -> int:
    """The conversations that fit."""
    return json.loads(explorer.get(f"/conversations.json?{query}").text)["count"]


@pytest.mark.slow
def test_a_mark_is_stored_in_the_run_shown_and_found(editable: RunningExplorer, folder: Path) -> None:
    assert send(editable, "/c/run/s5/marks", mark="look again", note="<b>why</b>")[0] == 303
    assert [(mark.session, mark.mark, mark.note) for mark in read_marks(folder, "s5")] == [
        ("s5", "look again", "<b>why</b>")
    ]
    assert "&lt;b&gt;why" in editable.get("/c/run/s5").text
    editable.wait(lambda _: count(editable, "mark=look+again") == 1)
    (stored,) = read_marks(folder, "s5")
    assert (
        send(editable, "/c/run/s5/marks", mark="look again", remove="1", seen=f"{stored.created}")[0] == 303
    )
    assert read_marks(folder, "s5") == []


def test_a_note_that_somebody_else_changed_is_not_overwritten(
    editable: RunningExplorer, folder: Path
) -> None:
    send(editable, "/c/run/s6/marks", mark="good", note="first")
    (seen,) = read_marks(folder, "s6")
    assert send(editable, "/c/run/s6/marks", mark="good", note="theirs", seen=f"{seen.created}")[0] == 303
    status, text = send(editable, "/c/run/s6/marks", mark="good", note="mine", seen=f"{seen.created}")
    assert status == 409
    assert "theirs" in text
    assert "mine" in text
    assert [mark.note for mark in read_marks(folder, "s6")] == ["theirs"]


def download(explorer: RunningExplorer, query: str) -> str:
    """Return the chats of a filter, as its page of exports sends them."""
    sent = fetch_zip(explorer, f"/export/data.zip?{query}")
    (name,) = (name for name in sent.namelist() if name.endswith(".jsonl"))
    return sent.read(name).decode()


@pytest.mark.slow
def test_a_filter_is_marked_and_exported_by_the_command_that_is_shown(
    editable: RunningExplorer, folder: Path
) -> None:
    assert send(editable, "/marks?q=dial&assistant=Poet", mark="poets")[0] == 303
    editable.wait(lambda _: count(editable, "mark=poets") == 4)
    text = editable.get("/export?mark=poets").text
    command = re.search(r"<pre[^>]*><code>bactrian (export .*?)</code>", text)
    assert command is not None
    done = bactrian(*command[1].split(), cwd=folder)
    assert done.returncode == 0, done.stderr
    written = [json.loads(line) for line in (folder / "chosen.jsonl").read_text().splitlines()]
    sent = [json.loads(line) for line in download(editable, "mark=poets").splitlines()]
    assert [row["messages"] for row in sent] == [row["messages"] for row in written]
    assert len(written) == 4
    assert count(editable, "mark=-poets") == 6
    assert 'aria-label="Without poets" aria-current="true"' in editable.list("?mark=-poets")


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[RunningExplorer, Path]]:
    """An explorer of a run of six conversations, one of which is marked, and its folder."""
    folder = tmp_path_factory.mktemp("marked")
    flip = ["Instruction: Plan it.\nInput: None", "Instruction: Now you plan it.\nInput: None"]
    sessions = [
        *(
            session(f"f{number}", texts=flip, code="assistant_instruct", assistant="Cook")
            for number in range(3)
        ),
        *(session(f"s{number}", assistant="Poet", user="Nurse") for number in range(2)),
        session(
            "open",
            texts=["Instruction: Begin.\nInput: None", "Solution: Yes \u2028."],
            code=None,
            assistant="Poet",
        ),
    ]
    asyncio.run(make_run(folder / "run.db", sessions))
    with explore(folder, "run.db", "--edit", sessions=len(sessions)) as explorer:
        send(explorer, "/c/run/f1/marks", mark="read")
        explorer.wait(lambda _: count(explorer, "mark=read") == 1)
        yield explorer, folder


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("mark=-read&behaviour=role_flip", 2),
        ("user=Nurse&ending=task_done&ending=max_messages", 2),
        ("assistant=Poet", 3),
    ],
)
def test_the_command_of_a_filter_writes_the_same_file_as_the_download(
    marked: tuple[RunningExplorer, Path], query: str, found: int
) -> None:
    explorer, folder = marked
    page = explorer.get(f"/export?{query}").text
    assert f">{found} conversations</a>" in page
    sent = download(explorer, query)
    command = re.search(r"<pre[^>]*><code>bactrian (export .*?)</code>", page)
    assert command is not None
    done = bactrian(*shlex.split(unescape(command[1])), "--overwrite", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "chosen.jsonl").read_text() == sent
    assert len(sent.split("\n")) == found + 1


def test_a_filter_that_the_command_cannot_say_is_only_downloaded(editable: RunningExplorer) -> None:
    assert "cannot say this filter" in editable.get("/export?q=dial").text
    assert download(editable, "q=dial").count("\n") == 10


def test_nothing_is_written_without_the_flag(explored: RunningExplorer) -> None:
    for path in ("/c/run/s001/marks", "/marks?"):
        answer = explored.get(path, b"mark=x", Origin=explored.address)
        assert answer.status == 403
        assert "started without --edit" in answer.text
    assert read_marks(explored.folder, "s001") == []


@pytest.mark.parametrize("name", ["", "   ", "x" * 61])
def test_a_mark_without_a_usable_name_is_refused(editable: RunningExplorer, name: str) -> None:
    assert send(editable, "/c/run/s1/marks", mark=name)[0] == 400


@pytest.mark.slow
def test_a_run_that_is_being_written_says_so_and_keeps_the_mark_out(
    editable: RunningExplorer, folder: Path
) -> None:
    async def hold() -> tuple[int, str]:
        async with open_store(folder / "run.db"):
            return await asyncio.to_thread(send, editable, "/c/run/s7/marks", mark="good")

    status, text = asyncio.run(hold())
    assert status == 503
    assert "being written by another process" in text
    assert read_marks(folder, "s7") == []
