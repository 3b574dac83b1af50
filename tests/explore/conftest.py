"""One explorer over a run with all kinds of conversations, for all tests of the folder."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from playwright.sync_api import Browser, Page

from bactrian.records.session import Session
from tests.helpers.explorer import RunningExplorer, explore, run_apart
from tests.helpers.runs import make_run, session
from tests.helpers.voting import make_study

CODE = '```python\ndef add(a, b):\n    return a + b  # "sum"\n```'
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=alert(1)> \u202etxt.exe \x1b[31mred"
LOOP = [
    "Instruction: Write a function that adds.\nInput: two numbers",
    f"Solution: Here it is:\n{CODE}\nNext request.",
    *("Thank you!", "You are welcome!", "Goodbye, thanks again!", "Thank you, goodbye!", "Bye!", "Bye!"),
]


def list_sessions() -> list[Session]:
    """Conversations with code, loops, hostile texts, many scripts, a long line, no ending; 60 ordinary ones."""
    flip = ["Instruction: Plan it.\nInput: None", "Instruction: Now you plan it.\nInput: None"]
    special = [
        session("loop", texts=LOOP, code="repeat_loop", assistant="Python Programmer", user="Stock Trader"),
        session("flip", texts=flip, code="assistant_instruct", assistant="Gärtner", user="Teacher"),
        session(
            "hostile", texts=[f"Instruction: {HOSTILE}\nInput: {HOSTILE}", HOSTILE], assistant=HOSTILE[:60]
        ),
        session("scripts", texts=["Instruction: 東京の天気を調べる\nInput: مرحبا بالعالم", "Solution: Café"]),
        session("long", texts=["Instruction: x\nInput: None", "Solution: " + "word " * 15_000]),
        session("open", texts=["Instruction: Begin.\nInput: None"], code=None),
        session("many", rounds=125, code="max_messages", task="Count to many"),
        replace(session("red", task="Something harmful"), mark="red-team"),
    ]
    usual = [
        session(
            f"s{number:03}", rounds=1 + number % 5, assistant="Cook" if number % 2 else "Poet", user="Nurse"
        )
        for number in range(60)
    ]
    return [*special, *usual]


@pytest.fixture(scope="session")
def indexed(tmp_path_factory: pytest.TempPathFactory, guarded_processes: Path) -> Path:
    """A folder with ``run.db`` and its complete index, to be copied; one for all processes of the tests."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "indexed"
    with FileLock(f"{folder}.lock"):
        if not (folder / "complete").exists():
            folder.mkdir(exist_ok=True)
            sessions = list_sessions()
            run_apart(make_run(folder / "run.db", sessions))
            with explore(folder, "run.db", sessions=len(sessions)):
                pass
            (folder / "complete").touch()
    return folder


def copy_indexed(indexed: Path, folder: Path) -> None:
    """Copy ``run.db`` and its complete index to ``folder``."""
    shutil.copytree(indexed, folder, dirs_exist_ok=True)
    (index,) = (folder / "cache" / "bactrian" / "explore").glob("index-*.db")
    with closing(sqlite3.connect(index)) as connection, connection:
        connection.execute("UPDATE runs SET path = ?", (os.fsencode((folder / "run.db").resolve()),))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let explorers in the test's process keep their index where those of ``explore`` do."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def explored(tmp_path_factory: pytest.TempPathFactory, indexed: Path) -> Generator[RunningExplorer]:
    """An explorer whose index is complete."""
    folder = tmp_path_factory.mktemp("explored")
    copy_indexed(indexed, folder)
    with explore(folder, "run.db", sessions=len(list_sessions())) as one:
        yield one


@pytest.fixture
def page(chromium: Browser) -> Generator[Page]:
    """A page of its own. It fails the test if a request leaves this computer, or a script fails."""
    # A page that scrolls smoothly is drawn sixty times a second.
    context = chromium.new_context(reduced_motion="reduce")
    one = context.new_page()
    wrong: list[str] = []

    def look(request: Any) -> None:
        if not request.url.startswith(("http://127.0.0.1:", "blob:", "file:")):
            wrong.append(request.url)

    one.on("request", look)
    one.on("pageerror", lambda error: wrong.append(str(error)))
    yield one
    context.close()
    assert wrong == []


@pytest.fixture(scope="module")
def voted(tmp_path_factory: pytest.TempPathFactory, guarded_processes: Path) -> Generator[RunningExplorer]:
    """An explorer that stores votes on six pairs."""
    folder = tmp_path_factory.mktemp("voted")
    run_apart(make_study(folder))
    shutil.copytree(folder / "run.agents", folder / "new")
    with explore(folder, "run.db", "--edit") as one:
        yield one


@pytest.fixture
def voting(voted: RunningExplorer) -> RunningExplorer:
    """This explorer, and an evaluation beside its run that has neither votes nor invitations."""
    shutil.rmtree(voted.folder / "run.agents")
    shutil.copytree(voted.folder / "new", voted.folder / "run.agents")
    return voted
