"""What was made is found, read, marked and finished again, without its command being remembered."""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

import bactrian as bt
from bactrian.store import open_store
from tests.helpers.command import LINES, Command, bactrian, clean_environment, events
from tests.helpers.endpoint import Endpoint
from tests.helpers.runs import make_run, session

TWELVE = ("--limit", "12", "--set", "task.count=3", "--concurrency", "2", "--seed", "5")


def write_script(folder: Path, *, delay: float = 0.0) -> str:
    task, instruction, solution, done = ({"text": text, "delay": delay} for text in LINES)
    script = {
        "task_specifier": [task],
        "user": [instruction, done],
        "assistant": [solution],
        "lister": ["1. Brew\n2. Pour\n3. Sip"],
    }
    (folder / "lines.json").write_text(json.dumps(script), "utf-8")
    return "scripted:lines.json"


def play(folder: Path, *more: str) -> list[str]:
    return ["play", "Build a tea timer", "--model", write_script(folder), *more]


@pytest.fixture
def data(tmp_path: Path) -> dict[str, Any]:
    return {"BACTRIAN_DATA": str(tmp_path / "data")}


async def read_ids(run: Path) -> dict[str, str | None]:
    async with open_store(run, read_only=True) as store:
        return {session.id: session.ending async for session in store.progress()}


async def test_a_session_is_kept_without_being_told_where(tmp_path: Path, data: dict[str, Any]) -> None:
    first = bactrian(*play(tmp_path), cwd=tmp_path, **data)
    second = bactrian(*play(tmp_path), cwd=tmp_path, **data)
    ids = await read_ids(tmp_path / "data" / "plays.db")
    assert list(ids.values()) == ["task_done", "task_done"]
    for done in (first, second):
        again = done.stderr.partition("read it again: bactrian ")[2].splitlines()[0]
        shown = bactrian(*shlex.split(again), cwd=tmp_path, **data)
        assert "Solution: A dial and a bell." in shown.stdout


def test_no_keep_keeps_nothing(tmp_path: Path, data: dict[str, Any]) -> None:
    done = bactrian(*play(tmp_path, "--no-keep"), cwd=tmp_path, **data)
    assert done.returncode == 0
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
async def test_a_failure_with_no_keep_does_not_say_that_data_is_stored(
    tmp_path: Path, data: dict[str, Any]
) -> None:
    async with Endpoint(["no JSON"]) as endpoint:
        words = (
            "play",
            "Tea",
            "--model",
            "openai:any",
            "--base-url",
            endpoint.url,
            "--no-specify",
            "--no-keep",
        )
        done = await asyncio.to_thread(
            bactrian, *words, "--protocol", "enforced", cwd=tmp_path, OPENAI_API_KEY="sk-1", **data
        )
    assert done.returncode == 1
    assert "Nothing was stored, as --no-keep asks." in done.stderr
    assert "it is not JSON" in done.stderr
    assert "validation error" not in done.stderr
    assert "saved" not in done.stderr


@pytest.mark.slow
async def test_two_plays_at_once_keep_both_sessions(tmp_path: Path, data: dict[str, Any]) -> None:
    arguments = (*play(tmp_path), "--no-specify")
    write_script(tmp_path, delay=0.3)
    both = [Command(arguments, tmp_path, clean_environment(**data)) for _ in range(2)]
    for process in both:
        process.finish()
    assert [process.wait() for process in both] == [0, 0]
    runs = sorted((tmp_path / "data").glob("*.db"))
    assert [list((await read_ids(run)).values()) for run in runs] == [["task_done"], ["task_done"]]


def test_a_data_folder_that_cannot_be_written_does_not_stop_a_play(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    done = bactrian(*play(tmp_path), cwd=tmp_path, BACTRIAN_DATA=str(tmp_path / "data"))
    assert done.returncode == 0
    assert "The session is not kept" in done.stderr


async def test_a_limit_is_normal_and_the_command_that_is_named_goes_on(
    tmp_path: Path, data: dict[str, Any]
) -> None:
    done = bactrian(*play(tmp_path, "--max-messages", "2"), cwd=tmp_path, **data)
    assert "which is normal" in done.stderr
    again = done.stderr.partition("To continue it: bactrian ")[2].splitlines()[0]
    resumed = bactrian(*shlex.split(again), cwd=tmp_path, **data)
    assert resumed.returncode == 0, resumed.stderr
    assert list((await read_ids(tmp_path / "data" / "plays.db")).values()) == ["task_done"]


async def test_no_key_is_kept(tmp_path: Path, data: dict[str, Any]) -> None:
    address = "http://me:sk-secret-password@127.0.0.1:9/v1"
    bactrian(
        *("play", "Tea", "--model", "openai:any", "--base-url", address, "--set", "endpoint.max_wait=0"),
        cwd=tmp_path,
        OPENAI_API_KEY="sk-secret-key",
        **data,
    )
    (run,) = (tmp_path / "data").glob("*.db")
    kept = run.read_bytes()
    assert b"127.0.0.1:9" in kept
    assert b"sk-secret" not in kept


def test_an_address_that_no_model_takes_is_refused_without_its_password(tmp_path: Path) -> None:
    address = "http://me:sk-secret-password@127.0.0.1:9/v1"
    refused = bactrian("play", "Tea", "--model", write_script(tmp_path), "--base-url", address, cwd=tmp_path)
    assert refused.returncode == 2
    assert "@http://127.0.0.1:9/v1" in refused.stderr
    assert "secret" not in refused.stderr


@pytest.mark.system
async def test_a_killed_run_is_found_and_finished_without_its_command(
    tmp_path: Path, data: dict[str, Any]
) -> None:
    model = write_script(tmp_path, delay=0.3)
    made = Command(
        ("generate", "ai-society", "--run", "tea garden.db", "--model", model, *TWELVE),
        tmp_path,
        clean_environment(**data),
    )
    run = tmp_path / "tea garden.db"
    while not run.exists() or not await read_ids(run):
        assert made.returncode is None, made.peek()
        time.sleep(0.05)
    made.kill()
    made.finish()
    write_script(tmp_path)

    (listed,) = events(bactrian("runs", "--json", cwd=tmp_path, **data).stdout)
    assert (listed["recipe"], listed["state"], listed["jobs"]) == ("ai-society", "incomplete", 12)
    status = json.loads(bactrian("status", listed["run"], "--json", cwd=tmp_path, **data).stdout)
    assert status["left"] == 12 - status["sessions"] + status["open"]
    assert status["seed"] == 5
    program, *arguments = shlex.split(status["command"])
    assert program == "bactrian"
    resumed = bactrian(*arguments, cwd=tmp_path, **data)
    assert resumed.returncode == 0, resumed.stderr
    assert list((await read_ids(run)).values()) == ["task_done"] * 12
    status = json.loads(bactrian("status", "tea garden.db", "--json", cwd=tmp_path, **data).stdout)
    assert (status["state"], status["left"], status["command"]) == ("complete", 0, None)


def test_an_address_in_a_run_receives_no_key_unless_a_person_names_it(
    tmp_path: Path, data: dict[str, Any]
) -> None:
    address = "http://models.example:8000/v1"
    arguments = (
        "generate",
        "ai-society",
        "--run",
        "run.db",
        "--model",
        "openai:m",
        "--base-url",
        address,
        *TWELVE,
    )
    stopped = bactrian(
        *arguments, "--set", "endpoint.timeout=0.01", cwd=tmp_path, OPENAI_API_KEY="sk-1", **data
    )
    assert stopped.returncode == 1
    status = bactrian("status", "run.db", cwd=tmp_path, OPENAI_API_KEY="sk-1", **data)
    assert f"bactrian resume run.db --send-keys-to {address}" in status.stdout
    refused = bactrian("resume", "run.db", cwd=tmp_path, OPENAI_API_KEY="sk-1", **data)
    assert refused.returncode == 2
    assert f"--send-keys-to {address}" in refused.stderr


@pytest.fixture
async def run(tmp_path: Path) -> Path:
    flip = session(
        "003_001_001", texts=["Instruction: Sew.\nInput: None", "Instruction: You sew.\nInput: None"]
    )
    return await make_run(
        tmp_path / "run.db",
        [
            session("001_001_001", assistant="Pilot", user="Nurse", task="Fly to Rome"),
            session("002_001_001", code=None, rounds=1),
            flip,
        ],
    )


def show(run: Path, *arguments: str) -> str:
    done = bactrian("show", run.name, *arguments, cwd=run.parent)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("filters", "matching"),
    [
        ((), ["001_001_001", "002_001_001", "003_001_001"]),
        (("--role", "nurse"), ["001_001_001"]),
        (("--role", "P*"), ["001_001_001", "002_001_001", "003_001_001"]),
        (("--pair", "pilot x nurse"), ["001_001_001"]),
        (("--task", "to rome"), ["001_001_001"]),
        (("--ending", "unfinished"), ["002_001_001"]),
        (("--behaviour", "role_flip"), ["003_001_001"]),
        (("--grep", r"part 2\\."), []),
        (("--grep", "you sew"), ["003_001_001"]),
    ],
)
def test_a_list_holds_the_sessions_that_fit(run: Path, filters: tuple[str, ...], matching: list[str]) -> None:
    done = bactrian("show", run.name, *filters, cwd=run.parent)
    assert [line.split()[0] for line in done.stdout.splitlines()] == matching
    assert done.returncode == (0 if matching else 2)


def test_a_sample_is_the_same_for_the_same_seed(run: Path) -> None:
    first, second = (show(run, "--sample", "2", "--seed", "7") for _ in range(2))
    assert first == second
    assert len(first.splitlines()) == 2


async def test_a_list_has_columns_and_the_beginning_of_a_long_idea(tmp_path: Path) -> None:
    idea, made = "Complete this function. " * 20, ("1-talk", "1-essay")
    run = await make_run(tmp_path / "run.db", [session(name, task=idea) for name in made])
    lines = show(run).splitlines()
    assert len({line.index("Programmer ×") for line in lines}) == 1
    assert [len(line) < 180 and line.endswith("…") for line in lines] == [True, True]


def test_markdown_keeps_the_lines_of_what_was_said(run: Path) -> None:
    assert "<br />\nNext request." in MarkdownIt().render(show(run, "001", "--format", "markdown"))


def test_a_session_is_shown_whole_in_each_form(run: Path) -> None:
    assert "Solution: Part 2 is the dial" in show(run, "001_001_001")
    assert "Solution: Part 2 is the dial" in show(run, "001")
    assert show(run, "001", "--format", "markdown").startswith("# Pilot × Nurse\n")
    page = show(run, "001", "--format", "html")
    assert page.startswith("<!doctype html>")
    assert page.count('<div data-speaker="assistant"') == page.count("Solution: Part") > 0
    whole = json.loads(show(run, "003", "--json"))
    assert [turn["speaker"] for turn in whole["turns"]] == ["user", "assistant"]
    assert "role_flip" in [finding["behaviour"] for finding in whole["findings"]]
    assert {line["findings"] for line in map(json.loads, show(run, "--json").splitlines())} == {None}
    (flipped,) = show(run, "--json", "--behaviour", "role_flip").splitlines()
    assert {finding["behaviour"] for finding in json.loads(flipped)["findings"]} == {"role_flip"}


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("001_001_002",), "Did you mean '001_001_001'?"),
        (("--role", "Nurze"), "Did you mean 'Nurse'?"),
        (("--ending", "task_don"), "Did you mean 'task_done'?"),
        (("--behaviour", "role_flop"), "Did you mean 'role_flip'?"),
        (("--marked", "good"), "The run has no marks."),
        (("--grep", "("), "not a regular expression"),
        (("00",), "3 sessions have an id that begins with '00'"),
    ],
)
def test_what_is_not_found_names_the_nearest(run: Path, arguments: tuple[str, ...], hint: str) -> None:
    done = bactrian("show", run.name, *arguments, cwd=run.parent)
    assert (done.returncode, done.stdout) == (2, "")
    assert hint in done.stderr


def test_a_mark_is_set_shown_and_selected(run: Path) -> None:
    marked = bactrian("show", run.name, "001", "--mark", "good", "--note", "A plan.", cwd=run.parent)
    assert marked.returncode == 0, marked.stderr
    assert [line.split()[0] for line in show(run, "--marked", "good").splitlines()] == ["001_001_001"]
    assert "mark good A plan." in show(run, "001")


async def test_a_run_that_is_being_written_is_read(run: Path) -> None:
    async with open_store(run):
        assert len(show(run).splitlines()) == 3
        status = json.loads(bactrian("status", run.name, "--json", cwd=run.parent).stdout)
        assert (status["state"], status["open"]) == ("being written", 1)
    assert json.loads(bactrian("status", run.name, "--json", cwd=run.parent).stdout)["state"] == "incomplete"


def test_runs_changes_nothing_in_a_run(run: Path, tmp_path: Path, data: dict[str, Any]) -> None:
    before = run.read_bytes()
    (tmp_path / "notes.db").write_text("no run")
    (listed,) = events(bactrian("runs", "--json", cwd=tmp_path, **data).stdout)
    assert (listed["run"], listed["state"]) == ("run.db", "incomplete")
    assert run.read_bytes() == before


def test_societies_are_listed_and_shown(tmp_path: Path) -> None:
    listed = events(bactrian("societies", "--json", cwd=tmp_path).stdout)
    assert "tech-lead" in [society["name"] for society in listed]
    shown = bactrian("societies", "show", "tech-lead", cwd=tmp_path)
    assert 'name = "tech-lead"' in shown.stdout


@pytest.mark.parametrize(
    ("selection", "rows"),
    [
        (("--id", "001*"), 1),
        (("--role", "Nurse"), 1),
        (("--pair", "Programmer x Cook"), 1),
        (("--task", "timer"), 1),
        (("--mark", "good"), 1),
        (("--role", "Nurse", "--role", "Cook"), 2),
    ],
)
def test_an_export_holds_the_sessions_that_fit(run: Path, selection: tuple[str, ...], rows: int) -> None:
    bactrian("show", run.name, "001", "--mark", "good", cwd=run.parent)
    done = bactrian(
        *("export", run.name, "--format", "messages", "--out", "out.jsonl", *selection), cwd=run.parent
    )
    assert done.returncode == 0, done.stderr
    assert len((run.parent / "out.jsonl").read_text("utf-8").splitlines()) == rows


def test_another_recipe_on_a_run_is_told_the_recipe_of_the_run(tmp_path: Path) -> None:
    model = write_script(tmp_path)
    bactrian("generate", "ai-society", "--run", "run.db", "--model", model, "--limit", "1", cwd=tmp_path)
    wrong = bactrian("generate", "math", "--run", "run.db", "--model", model, "--limit", "1", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "This run is ai-society, and the command is for math." in wrong.stderr


async def test_two_models_work_on_the_very_same_tasks(tmp_path: Path) -> None:
    write_script(tmp_path)
    second = json.loads((tmp_path / "lines.json").read_text("utf-8"))
    second["task_specifier"] = ["Never asked for."]
    second["user"] = second["user"][:1]
    (tmp_path / "other.json").write_text(json.dumps(second), "utf-8")
    generate = ("generate", "ai-society", "--run", "a.db", "--limit", "6", "--set", "task.count=3", "--model")
    bactrian(*generate, "scripted:lines.json", cwd=tmp_path)
    fork = ("--fork", "b.db", "--keep-tasks", "--set", "role_play.max_messages=2")
    made = bactrian(*generate, "scripted:other.json", *fork, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    async with open_store(tmp_path / "b.db", read_only=True) as store:
        tasks = [session.task.specified async for session in store.sessions()]
    assert tasks == [LINES[0]] * 6
    compared = json.loads(bactrian("analyze", "a.db", "b.db", "--json", cwd=tmp_path).stdout)
    paired = compared["differences"]["paired"]
    assert (paired["pairs"], paired["same_tasks"]) == (6, 6)
    done = paired["endings"]["task_done"]
    assert (done["before"], done["after"], done["only_before"], done["difference"]) == (1, 0, 6, -1)
    assert done["withheld"] == "only 2 role pairs, and an interval needs 10"


def test_tasks_are_kept_only_if_the_jobs_are_the_same(tmp_path: Path) -> None:
    generate = ("generate", "ai-society", "--run", "a.db", "--limit", "1", "--model", write_script(tmp_path))
    bactrian(*generate, cwd=tmp_path)
    done = bactrian(*generate, "--fork", "b.db", "--keep-tasks", "--set", "task.count=3", cwd=tmp_path)
    assert done.returncode == 2
    assert "The tasks cannot be kept: the list 'task'" in done.stderr


def test_costs_in_the_list_of_runs_have_the_same_decimals(tmp_path: Path) -> None:
    for name, price in (("dear", "100/100"), ("cheap", "1/1")):
        model = bt.Scripted({"user": ["<CAMEL_TASK_DONE>"]})
        bt.play("Choose a tea", model=model, specify=False, price=price, run=tmp_path / f"{name}.db")
    listed = bactrian("runs", ".", cwd=tmp_path).stdout
    costs = [word for word in listed.split() if word.startswith("$")]
    assert len({len(cost.partition(".")[2]) for cost in costs}) == 1, listed
    assert len(costs) == 2
