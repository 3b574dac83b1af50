"""Runs that earlier versions of this program made: each is opened, migrated, read, analyzed, exported and resumed."""

from __future__ import annotations

import json
import shlex
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bactrian.analyze.measure import measure
from bactrian.api.reading.status import read_status
from bactrian.export.filters import Filters
from bactrian.language.protocol import DONE
from bactrian.records.session import Session
from bactrian.store import open_store
from bactrian.store.migrations import MIGRATIONS
from bactrian.store.sqlite.verify import verify
from tests.data.runs.make import play
from tests.helpers.command import bactrian
from tests.helpers.exports import handed, lines

OLD = Path(__file__).parents[1] / "data" / "runs"
VERSIONS = range(1, 13)
LINES: dict[str, list[Any]] = json.loads((OLD / "lines.json").read_text("utf-8"))
WHOLE = [said[0] for pair in zip(LINES["user"], [*LINES["assistant"], [DONE]], strict=True) for said in pair]
"""What a session says from its first turn on, if the first of the alternatives is taken each time."""


def old_run(name: str, folder: Path) -> Path:
    """The run of this name, as it was when its version was today's."""
    path = folder / "run.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((OLD / f"{name}.sql").read_text("utf-8"))
    for file in ("lines.json", "shop.py", "shop.json", "recipe.toml"):
        shutil.copy(OLD / file, folder)
    return path


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT max(number) FROM migrations").fetchone()[0]


async def read_all(path: Path) -> dict[str, Session]:
    async with open_store(path, read_only=True) as store:
        return {one.task.original: one async for one in store.sessions()}


def calls_of(path: Path) -> Counter[tuple[Any, ...]]:
    """How often each call was paid for."""
    with closing(sqlite3.connect(path)) as connection:
        return Counter(
            connection.execute("SELECT session, agent, ordinal FROM calls WHERE error IS NULL").fetchall()
        )


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_old_run_is_read_as_it_is_and_migrated_to_be_written(tmp_path: Path, version: int) -> None:
    path = old_run(f"v{version}", tmp_path)
    before = path.read_bytes()
    assert version_of(path) == version
    sessions = await read_all(path)
    assert path.read_bytes() == before
    async with open_store(path):
        pass
    assert await read_all(path) == sessions
    whole = sessions["Plan a herb garden"]
    assert [turn.text for turn in whole.turns] == WHOLE[:7]
    assert whole.ending is not None
    assert whole.ending.code == "task_done"
    assert whole.usage.total > 1000
    assert sessions["Build a bird table"].ending is None
    assert sessions["Build a bird table"].task.planned == LINES["task_planner"][0]
    if version < len(MIGRATIONS):
        assert version_of(tmp_path / f"run.db.v{version}.backup") == version
    else:
        assert path.read_bytes() == before
    assert version_of(path) == len(MIGRATIONS)
    assert verify(path).faults == ()


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_migrated_run_has_todays_columns(tmp_path: Path, version: int) -> None:
    def columns(path: Path) -> dict[str, set[tuple[str, str, int]]]:
        with closing(sqlite3.connect(path)) as connection:
            return {
                table: {row[1:4] for row in connection.execute(f"PRAGMA table_info({table})")}
                for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            }

    path, new = old_run(f"v{version}", tmp_path), tmp_path / "new.db"
    for one in (path, new):
        async with open_store(one):
            pass
    assert columns(path) == columns(new)


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_status_of_an_old_run_names_a_command_only_if_it_resumes(
    tmp_path: Path, version: int
) -> None:
    path = old_run(f"v{version}", tmp_path)
    status = await read_status(path)
    assert status.left > 0
    async with open_store(path, read_only=True) as store:
        stored = {one.session for one in await store.commands() if one.options}
    shown = dict(status.list_facts())["resume"]
    if status.command is None:
        assert not stored
        assert shown == "Repeat the command, or the call in Python, that made it."
    else:
        assert shlex.split(shown)[-1] in stored


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_old_run_is_analyzed_and_exported(tmp_path: Path, version: int) -> None:
    path = old_run(f"v{version}", tmp_path)
    sessions = await read_all(path)
    async with open_store(path, read_only=True) as store:
        measured = await measure(store)
        assert len(measured.facts) == len(sessions)
        if version >= 6:
            answers = await store.confirmations("scripted:judge.json")
            assert ("missing_marker", 4, True) in [(one.behaviour, one.turn, one.holds) for one in answers]
    await handed(path, "messages", tmp_path / "out.jsonl")
    (row,) = lines(tmp_path / "out.jsonl")
    assert [message["content"] for message in row["messages"]][1:7] == WHOLE[:6]
    if version >= 4:
        await handed(path, "preference", tmp_path / "choices.jsonl", filters=Filters(unfinished=True))
        assert lines(tmp_path / "choices.jsonl")[0]["chosen"][0]["content"] == WHOLE[0]


@pytest.mark.parametrize(
    ("version", "command"),
    [
        pytest.param(version, command, id=f"v{version} {command[1]}")
        for version in VERSIONS
        for events, command in play(version)
        if events
    ],
)
async def test_a_session_that_an_old_version_began_is_played_to_its_end(
    tmp_path: Path, version: int, command: list[str]
) -> None:
    path = old_run(f"v{version}", tmp_path)
    begun = (await read_all(path))[command[1]]
    assert begun.ending is None
    async with open_store(path):
        paid = calls_of(path)
    done = bactrian(*command, "--run", "run.db", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    sessions = await read_all(path)
    ended = sessions[command[1]]
    assert ended.id == begun.id
    assert ended.turns[: len(begun.turns)] == begun.turns
    assert [turn.number for turn in ended.turns] == list(range(1, 8))
    assert ended.ending is not None
    assert ended.ending.code == "task_done"
    repeats = sum((calls_of(path)[call] - count) for call, count in paid.items())
    # The kill of the search came between the two candidates of one reply, so that reply was not stored.
    assert repeats <= ("--search" in command), "a call was paid twice"


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= 3])
async def test_a_run_that_an_old_version_began_is_generated_to_its_end(tmp_path: Path, version: int) -> None:
    path = old_run(f"v{version}.generated", tmp_path)
    begun = await begun_sessions(path)
    command = ("generate", "recipe.toml", "--run", "run.db", "--model", "scripted:lines.json", "--seed", "7")
    done = bactrian(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    made = await begun_sessions(path)
    assert len(made) == 4
    for name, session in made.items():
        assert [turn.text for turn in session.turns] == WHOLE[:7]
        assert session.ending is not None
        if name in begun:
            assert session.turns[: len(begun[name].turns)] == begun[name].turns
    assert set(calls_of(path).values()) <= {1}, "a call was paid twice"


async def begun_sessions(path: Path) -> dict[str, Session]:
    async with open_store(path, read_only=True) as store:
        return {one.id: one async for one in store.sessions()}


@pytest.mark.parametrize("version", VERSIONS)
def test_an_old_run_is_verified_and_stays_as_it_is(tmp_path: Path, version: int) -> None:
    path = old_run(f"v{version}", tmp_path)
    before = path.read_bytes()
    verdict = verify(path)
    assert verdict.faults == ()
    assert verdict.turns >= 7
    assert path.read_bytes() == before
