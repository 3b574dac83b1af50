"""The list of recent runs: runs that were used lately are found wherever they are."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

import bactrian as bt
from bactrian.api.status import list_runs
from bactrian.files.recent_runs import add_recent_run, list_recent_runs
from tests.helpers.command import bactrian

SCRIPT = ["Instruction: Name a tea.\nInput: None", "Solution: Sencha."]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder for states."""
    monkeypatch.delenv("BACTRIAN_DATA")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "state" / "bactrian" / "recent-runs.jsonl"


def play(run: Path) -> Path:
    run.parent.mkdir(exist_ok=True)
    bt.play("Tea", model=bt.Scripted(SCRIPT), specify=False, max_messages=2, run=run)
    return run


def test_a_run_is_listed_from_any_folder_after_python_or_a_command_used_it(
    tmp_path: Path, state: Path
) -> None:
    made, read = play(tmp_path / "far" / "made.db"), play(tmp_path / "away" / "read.db")
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    assert list_recent_runs() == [read, made]
    state.unlink()
    other = tmp_path / "other"
    other.mkdir()
    home = {name: os.environ[name] for name in ("XDG_STATE_HOME", "XDG_DATA_HOME")}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return bactrian(*words, cwd=other, text=None, own_process=True, **home)

    assert "There is no run" in run("runs").stderr
    run("status", str(read))
    listed = run("runs", "--json").stdout
    assert [json.loads(line)["run"] for line in listed.splitlines()] == [str(read)]
    assert state.read_text() == f"{json.dumps(str(read))}\n"
    elsewhere = run("runs", str(other))
    assert "There is no run" in elsewhere.stderr


def test_a_run_that_is_not_there_is_answered_with_the_nearest(tmp_path: Path, state: Path) -> None:
    play(tmp_path / "far" / "society.db")
    for wrong in (tmp_path / "far" / "socety.db", tmp_path / "societ.db"):
        with pytest.raises(bt.BactrianError, match=r"Did you mean \S+far/society.db\?"):
            bt.open_run(wrong)
    with pytest.raises(bt.BactrianError, match="Check the path"):
        bt.open_run(tmp_path / "unlike.db")


def test_a_run_of_an_unknown_recipe_does_not_hide_the_others(tmp_path: Path, state: Path) -> None:
    run, strange = play(tmp_path / "a.db"), play(tmp_path / "b.db")
    with closing(sqlite3.connect(strange)) as connection, connection:
        connection.execute(
            'INSERT INTO run ("row", recipe, created) VALUES (1, ?, 0)', ('{"recipe": {"name": "x"}}',)
        )
    listed = {summary.run: summary for summary in asyncio.run(list_runs())}
    assert listed[run].status is not None
    assert "what it is made from" in listed[strange].problem


def test_what_is_gone_or_broken_in_the_list_is_left_out(tmp_path: Path, state: Path) -> None:
    run, gone = play(tmp_path / "a.db"), play(tmp_path / "b.db")
    gone.unlink()
    with state.open("ab") as file:
        file.write(b'\xff\n{"a": 1}\n[\n"relative.db"\n"/etc/passwd"\n"a\\u0000b"\n"/half')
    assert [summary.run for summary in asyncio.run(list_runs())] == [run]
    add_recent_run(run)
    assert [summary.run for summary in asyncio.run(list_runs())] == [run]


def test_the_list_stays_short_and_keeps_the_latest(tmp_path: Path, state: Path) -> None:
    run = play(tmp_path / "a.db")
    for number in range(400):
        add_recent_run(tmp_path / f"{'x' * 60}-{number}.db")
    add_recent_run(run)
    assert state.stat().st_size < 20_000
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    assert list_recent_runs()[0] == run
    assert [path.name for path in state.parent.iterdir()] == [state.name]


def test_runs_that_are_noted_at_the_same_time_are_all_found(tmp_path: Path, state: Path) -> None:
    runs = [play(tmp_path / f"{name}.db") for name in "abcd"]
    state.unlink()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add_recent_run, runs * 25))
    assert {*list_recent_runs()} == {*runs}


@pytest.mark.parametrize("obstacle", ["file", "pipe", "link", "folder"])
def test_where_the_list_cannot_be_written_a_run_is_made_all_the_same(
    tmp_path: Path, state: Path, obstacle: str
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    if obstacle == "file":
        state.parent.parent.write_text("not a folder")
    else:
        state.parent.mkdir(parents=True)
        make = {"pipe": os.mkfifo, "link": lambda path: path.symlink_to(precious), "folder": Path.mkdir}
        make[obstacle](state)
    run = play(tmp_path / "a.db")
    assert run.is_file()
    assert precious.read_text() == "mine"
    assert list_recent_runs() == []
