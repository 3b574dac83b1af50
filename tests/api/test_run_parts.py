"""Merging: parts of a run become the run that one process would have made."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import bactrian as bt
from bactrian.api.run_parts import group_parts, join_parts, merge_runs
from bactrian.errors import InputError, StoreError
from bactrian.store.care import verify
from bactrian.store.record_tables import SEALED, compute_seal, quote_names
from tests.helpers.command import bactrian, start_python
from tests.helpers.generation import RECIPE as GENERATED

RECIPE = GENERATED.replace("count = 4", "count = 2")
# Columns that tell when something was made, and how long that took.
TIMES = {"created", "seconds", "tool_seconds", "seal", "applied", "first_token"}


def answer(messages: Sequence[Mapping[str, Any]]) -> str:
    """A reply that is a function of what is asked."""
    text = str(messages[-1]["content"])
    if text.startswith("List"):
        return f"1. Help the {text[16:-1]}\n2. Leave the {text[16:-1]}"
    if "you instruct" in str(messages[0]["content"]).lower():
        return f"Instruction: Do part {len(messages)}.\nInput: None"
    return f"Solution: {text[:40]} is done.\nNext request."


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "small.toml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make(run: str, **options: Any) -> Path:
    bt.generate("small.toml", run=run, model=answer, concurrency=1, seed=3, **options)
    return Path(run)


def make_parts(count: int = 2) -> list[Path]:
    return [make(f"part-{k}.db", shard=f"{k}/{count}") for k in range(1, count + 1)]


def read(run: Path, *, rows: bool = True) -> dict[str, list[tuple[Any, ...]]]:
    """All that a run contains but for its times and its commands."""
    content: dict[str, list[tuple[Any, ...]]] = {}
    with closing(sqlite3.connect(f"file:{run}?mode=ro", uri=True)) as connection:
        for table, columns in SEALED.items():
            if table not in ("commands", "migrations"):
                names = ", ".join(
                    f'"{name}"' for name in (*(["row"] if rows else []), *columns) if name not in TIMES
                )
                content[table] = connection.execute(f"SELECT {names} FROM {table} ORDER BY 1").fetchall()
    return content


def test_merged_shards_equal_one_run(folder: Path) -> None:
    whole = make("whole.db")
    parts = make_parts()
    report = merge_runs(parts, folder / "merged.db")
    assert read(folder / "merged.db") == read(whole)
    assert (report.sessions, report.turns, report.open, report.missing) == (6, 24, 0, ())
    assert verify(folder / "merged.db").faults == ()
    for run in ("whole", "merged"):
        bt.open_run(f"{run}.db").export("messages", f"{run}.jsonl")
    exports = [
        (folder / f"{run}.jsonl").read_text().replace("merged", "whole") for run in ("whole", "merged")
    ]
    assert exports[0] == exports[1]


def answer_first_list_last(messages: Sequence[Mapping[str, Any]]) -> str:
    """The same replies; the list of the first role takes longest, so that its jobs begin last."""
    if "tasks for Chef" in str(messages[-1]["content"]):
        time.sleep(0.3)
    return answer(messages)


@pytest.mark.parametrize("form", ["messages", "csv"])
def test_exports_of_merged_shards_are_those_of_one_run_whose_lists_came_in_any_order(
    folder: Path, form: str
) -> None:
    ending = {"messages": "jsonl"}.get(form, form)
    options: dict[str, Any] = {"model": answer_first_list_last, "seed": 3}
    (folder / "one").mkdir()
    bt.generate("small.toml", run="one/run.db", concurrency=8, **options)
    began = [row[1] for row in read(folder / "one" / "run.db")["sessions"]]
    assert began != sorted(began)
    parts = make_parts()
    merge_runs(parts, folder / "run.db")
    for run in ("one/run.db", "run.db"):
        bt.open_run(run).export(form, Path(run).with_suffix(f".{ending}"))
    exports = [(folder / f"{name}.{ending}").read_bytes() for name in ("one/run", "run")]
    assert exports[0].replace(b"_first_list_last", b"") == exports[1]


CHANGES = (
    "UPDATE run SET recipe = '{'",
    "UPDATE run SET recipe = '[1]'",
    "UPDATE run SET recipe = 5",
    "UPDATE run SET created = 'x'",
    "UPDATE lists SET items = 'x'",
    "UPDATE lists SET items = 5",
)


def test_a_part_with_values_that_no_version_writes_is_refused(folder: Path) -> None:
    first, second = make_parts()
    for number, change in enumerate(CHANGES):
        changed = folder / f"changed-{number}.db"
        shutil.copyfile(first, changed)
        with closing(sqlite3.connect(changed)) as connection, connection:
            connection.execute(change)
        with pytest.raises(StoreError, match="no version of bactrian writes|does not match its checksum"):
            merge_runs([changed, second], folder / f"merged-{number}.db")


def test_a_damaged_part_does_not_damage_the_whole(folder: Path) -> None:
    first, second = make_parts()
    with closing(sqlite3.connect(second)) as connection, connection:
        connection.execute("UPDATE turns SET text = 'Something else.' WHERE number = 2")
    with pytest.raises(StoreError, match="a row of the table turns does not match its checksum"):
        merge_runs([first, second], folder / "merged.db")
    assert verify(folder / "merged.db").faults == ()


def test_a_part_without_the_names_of_its_sessions_is_told_in_a_line(folder: Path) -> None:
    first, second = make_parts()
    with closing(sqlite3.connect(second)) as connection, connection:
        connection.execute("PRAGMA writable_schema = 1")
        connection.execute(
            "UPDATE sqlite_master SET sql = replace(sql, ' NOT NULL', '') WHERE type = 'table'"
        )
    with closing(sqlite3.connect(second)) as connection, connection:
        connection.execute('UPDATE sessions SET id = NULL WHERE "row" = 1')
    done = bactrian("merge", str(first), str(second), "--run", "merged.db", cwd=folder)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 2), done.stderr


def test_a_merge_can_be_repeated_and_adds_what_is_new(folder: Path) -> None:
    first, second = make("part-1.db", shard="1/2"), make("part-2.db", shard="2/2")
    merge_runs([first], folder / "merged.db")
    assert merge_runs([first], folder / "merged.db").missing == ("2/2",)
    report = merge_runs([first, second], folder / "merged.db")
    assert (report.sessions, report.added) == (6, 2)
    assert read(folder / "merged.db", rows=False).keys() == read(make("whole.db"), rows=False).keys()
    again = merge_runs([second, first], folder / "merged.db")
    assert (again.sessions, again.turns, again.added) == (6, 24, 0)
    assert verify(folder / "merged.db").faults == ()


def cut(run: Path) -> None:
    """Make the run as it was when a session had one turn, and the next one none."""
    with closing(sqlite3.connect(run)) as connection:
        connection.create_function("row_seal", -1, lambda *row: compute_seal(row))
        connection.execute("UPDATE sessions SET ending = NULL, ending_turn = NULL WHERE id = '002_001'")
        connection.execute(f"UPDATE sessions SET seal = row_seal({quote_names(SEALED['sessions'])})")
        connection.execute(
            "DELETE FROM turns WHERE session = '002_001' AND number > 1 OR session = '002_002'"
        )
        connection.execute("DELETE FROM sessions WHERE id = '002_002'")
        connection.commit()


def test_the_whole_of_incomplete_parts_is_finished_by_resuming(folder: Path) -> None:
    parts = make_parts()
    cut(parts[1])
    report = merge_runs(parts, folder / "merged.db")
    assert (report.sessions, report.turns, report.open) == (5, 17, 1)
    whole = read(make("whole.db"), rows=False)
    merged = read(make("merged.db"), rows=False)
    assert {table: sorted(rows) for table, rows in merged.items() if table != "run"} == {
        table: sorted(rows) for table, rows in whole.items() if table != "run"
    }


KILLED = """
import os, signal, sys
from pathlib import Path
from bactrian.api import run_parts

run_parts._ROWS = 1  # each session is committed by itself

def kill(done, total):
    if total and done == 3:
        os.kill(os.getpid(), signal.SIGKILL)

*parts, merged = map(Path, sys.argv[1:])
run_parts.merge_runs(parts, merged, kill)
"""


@pytest.mark.system
def test_a_killed_merge_goes_on(folder: Path) -> None:
    parts = make_parts()
    killed = start_python(KILLED, *parts, "merged.db", cwd=folder)
    killed.finish()
    assert killed.wait() == -signal.SIGKILL
    assert len(bt.open_run("merged.db")) == 3
    assert merge_runs(parts, folder / "merged.db").added == 3
    assert read(folder / "merged.db") == read(make("whole.db"))
    assert verify(folder / "merged.db").faults == ()


def test_two_texts_for_one_turn_are_refused_before_anything_is_written(folder: Path) -> None:
    parts = make_parts()
    other = make("other.db")
    with closing(sqlite3.connect(other)) as connection:
        connection.execute(
            "UPDATE turns SET text = 'Something else.' WHERE session = '003_001' AND number = 2"
        )
        connection.commit()
    with pytest.raises(
        InputError, match="Turn 2 of session 003_001 has two texts: one in part-1.db and one in other.db"
    ):
        merge_runs([*parts, other], folder / "merged.db")
    assert not (folder / "merged.db").exists()
    merge_runs(parts, folder / "merged.db")
    before = read(folder / "merged.db")
    with pytest.raises(InputError, match="has two texts"):
        merge_runs([other], folder / "merged.db")
    assert read(folder / "merged.db") == before


def test_two_lists_are_refused(folder: Path) -> None:
    first = make("one.db")
    second = folder / "two.db"
    bt.generate(
        "small.toml", run=second, model=lambda messages: f"{answer(messages)}s", concurrency=1, seed=3
    )
    with closing(sqlite3.connect(second)) as connection:
        connection.execute("DELETE FROM turns")
        connection.execute("DELETE FROM sessions")
        with closing(sqlite3.connect(first)) as other:
            plan = other.execute("SELECT recipe FROM run").fetchone()[0]
        connection.execute("UPDATE run SET recipe = ?", (plan,))
        connection.commit()
    with pytest.raises(InputError, match="There are two lists 'task@001'"):
        merge_runs([first, second], folder / "merged.db")


def test_a_session_that_several_parts_have_is_taken_from_the_longest(folder: Path) -> None:
    whole, short = make("whole.db"), make("short.db")
    cut(short)
    for order in ([whole, short], [short, whole]):
        merge_runs(order, folder / f"{order[0].stem}-first.db")
        assert read(folder / f"{order[0].stem}-first.db") == read(whole)
    merge_runs([short], folder / "grown.db")
    assert merge_runs([whole], folder / "grown.db").added == 2
    assert read(folder / "grown.db", rows=False)["sessions"] == read(whole, rows=False)["sessions"]
    assert verify(folder / "short-first.db").faults == ()


def test_parts_of_other_plans_and_a_shard_as_the_whole_are_refused(folder: Path) -> None:
    first = make("part-1.db", shard="1/2")
    bt.generate("small.toml", run="other.db", model=answer, seed=4)
    with pytest.raises(InputError, match="another plan than part-1.db: seed: 3 → 4"):
        merge_runs([first, folder / "other.db"], folder / "merged.db")
    with pytest.raises(InputError, match="This run is shard 1/2"):
        merge_runs([make("part-2.db", shard="2/2")], first)
    with pytest.raises(InputError, match="cannot be the whole"):
        merge_runs([first], first)
    with pytest.raises(InputError, match="named twice"):
        merge_runs([first, folder / "part-1.db"], folder / "merged.db")
    assert not (folder / "merged.db").exists()


def test_what_people_and_failed_calls_add_is_merged_once(folder: Path) -> None:
    parts = make_parts()
    bt.open_run(parts[0]).mark("001_001", "good", "right")
    with closing(sqlite3.connect(parts[1])) as connection:
        connection.execute(
            "INSERT INTO calls (session, agent, ordinal, model, seconds, raw, error)"
            " VALUES ('002_001', 'user', 0, 'm', 1.5, x'', 'closed')"
        )
        connection.commit()
    for _ in range(2):
        merge_runs(parts, folder / "merged.db")
    merged = read(folder / "merged.db")
    assert [row[1:4] for row in merged["marks"]] == [("001_001", "good", "right")]
    assert len(merged["calls"]) == 1


def test_imports_are_merged_too(folder: Path) -> None:
    for name, text in (("one", "Ask"), ("two", "Beg")):
        chat = [{"role": "user", "content": f"{text} me."}, {"role": "assistant", "content": "Yes?"}]
        (folder / f"{name}.jsonl").write_text(json.dumps({"messages": chat, "id": name}))
        bt.import_chats(f"{name}.jsonl", run=f"{name}.db")
    assert len(bt.merge(["one.db", "two.db"], run="both.db")) == 2


def test_shards_of_one_plan_are_read_as_one_run(folder: Path) -> None:
    parts, other = make_parts(), make("other.db")
    assert group_parts([parts[0], other, parts[1]]) == [parts, [other]]
    with join_parts(parts) as whole:
        assert whole.stem == "part"
        assert len(bt.open_run(whole)) == 6
    assert not whole.exists()


@pytest.mark.system
def test_the_command_merges_and_says_what_is_missing(folder: Path) -> None:
    make_parts(3)
    done = bactrian("merge", "part-1.db", "part-2.db", "--run", "the whole.db", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "the whole.db: 4 sessions with 16 turns; 4 new or longer" in done.stdout
    assert "Shards that are not among the parts: 3/3." in done.stderr
    assert "`bactrian resume 'the whole.db'` makes the jobs" in done.stderr
    late = ("merge", "part-3.db", "-r", "the whole.db")
    told = json.loads(bactrian(*late, "--json", cwd=folder).stdout)
    assert (told["sessions"], told["added"]) == (6, 2)
    assert bactrian(*late, cwd=folder).stderr == "", "nothing is left to make"


@pytest.mark.slow
def test_commands_read_several_parts_as_one_run(folder: Path) -> None:
    make_parts()
    make("whole.db")
    parts = ("part-1.db", "part-2.db")
    for run in (parts, ("whole.db",)):
        done = bactrian("export", *run, "--format", "messages", "--out", f"{len(run)}.jsonl", cwd=folder)
        assert done.returncode == 0, done.stderr
    assert (folder / "2.jsonl").read_text().replace('"part"', '"whole"') == (folder / "1.jsonl").read_text()
    status = json.loads(bactrian("status", *parts, "--json", cwd=folder).stdout)
    assert (status["parts"], status["jobs"], status["left"], status["state"]) == ([*parts], 6, 0, "complete")
    assert "2 parts, part-1.db to part-2.db (complete)" in bactrian("status", *parts, cwd=folder).stdout
    listed = bactrian("show", *parts, cwd=folder)
    assert len(listed.stdout.splitlines()) == 6
    assert "bactrian show part-1.db part-2.db ID" in listed.stderr
    assert "Help the  Pilot" in bactrian("show", *parts, "002_001", cwd=folder).stdout
    wrong = bactrian("show", *parts, "002_001", "no.db", cwd=folder)
    assert (wrong.returncode, "are no runs" in wrong.stderr) == (2, True)
    report = json.loads(bactrian("analyze", *parts, "--json", cwd=folder).stdout)
    assert report["sessions"] == 6
    compared = json.loads(bactrian("analyze", *parts, "whole.db", "--json", cwd=folder).stdout)
    assert [run["sessions"] for run in compared["runs"]] == [6, 6]


def test_parts_that_contradict_each_other_are_not_exported(folder: Path) -> None:
    make("one.db")
    bt.generate("small.toml", run="two.db", model=answer, seed=4)
    done = bactrian("export", "one.db", "two.db", "--format", "messages", "--out", "x.jsonl", cwd=folder)
    assert (done.returncode, "another plan than one.db: seed: 3 → 4" in done.stderr) == (2, True)
    done = bactrian("export", "one.db", "--format", "messages", "--out", "one.db", "--overwrite", cwd=folder)
    assert done.returncode == 2
