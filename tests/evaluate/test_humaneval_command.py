"""``bactrian evaluate humaneval`` as a user calls it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.command import Command, bactrian, clean_environment
from tests.helpers.sandbox import needs_sandbox

pytestmark = [needs_sandbox, pytest.mark.system]

PROBLEM = {
    "task_id": "own/1",
    "prompt": "def double(n):\n    '''Return n, doubled.'''\n",
    "entry_point": "double",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(0) == 0\n",
    "canonical_solution": "    return 2 * n\n",
}
OTHER = {
    **PROBLEM,
    "task_id": "own/2",
    "prompt": PROBLEM["prompt"].replace("double", "twice"),
    "entry_point": "twice",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (PROBLEM, OTHER)))
    return tmp_path


def write_solutions(folder: Path, *rows: dict[str, str]) -> None:
    (folder / "solutions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.slow
def test_solutions_of_a_file_are_scored(folder: Path) -> None:
    write_solutions(
        folder,
        {"task_id": "own/1", "completion": "    return n + n\n"},
        {"task_id": "own/1", "completion": "    return n\n"},
        {"task_id": "own/2", "solution": "def twice(n): return 2 * n"},
        {"task_id": "own/2", "solution": "import os; os._exit(0)"},
    )
    command = ("evaluate", "humaneval", "--problems", "problems.jsonl", "--solutions", "solutions.jsonl")
    done = bactrian(*command, "-k", "1,2,10", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    score = json.loads(done.stdout)
    assert score["kinds"] == {"passed": 2, "wrong": 1, "crashed": 1}
    assert score["pass_at"]["1"]["value"] == 0.5
    assert score["pass_at"]["2"]["value"] == 1.0
    assert score["left_out"] == [10]
    rows = [json.loads(line) for line in (folder / "solutions.jsonl.verdicts.jsonl").read_text().splitlines()]
    assert {(row["id"], row["kind"]) for row in rows} == {
        ("1", "passed"),
        ("2", "wrong"),
        ("3", "passed"),
        ("4", "crashed"),
    }
    # A line cut off by a kill is made again, and the others are taken as they are.
    verdicts = folder / "solutions.jsonl.verdicts.jsonl"
    verdicts.write_bytes(verdicts.read_bytes()[:-40])
    again = bactrian(*command, cwd=folder)
    assert again.returncode == 0, again.stderr
    assert "pass@1    50.0 %" in again.stdout
    assert "pass@" not in again.stderr  # Nobody asked for more than there are samples.


@pytest.mark.parametrize(
    ("row", "arguments", "message"),
    [
        ({"task_id": "own/3", "completion": ""}, (), "There is no problem 'own/3'"),
        ({"task_id": "own/1"}, (), "neither `completion` nor `solution`"),
        ({"task_id": "own/1", "completion": ""}, ("-k", "0"), "not a list of numbers"),
        ({"task_id": "own/1", "completion": ""}, ("--model", "local"), "no model is asked"),
        ({"task_id": "own/1", "completion": ""}, ("--plus", "x.jsonl"), "two sets of problems"),
    ],
)
def test_bad_input_is_refused(
    folder: Path, row: dict[str, str], arguments: tuple[str, ...], message: str
) -> None:
    write_solutions(folder, row)
    command = ("evaluate", "humaneval", "--problems", "problems.jsonl", "--solutions", "solutions.jsonl")
    done = bactrian(*command, *arguments, cwd=folder)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_model_is_asked_and_its_samples_are_judged_and_kept(folder: Path) -> None:
    script = folder / "script.json"
    replies = ["```python\ndef double(n):\n    return 2 * n\n```"]
    script.write_text(json.dumps({"assistant": replies}))
    command = (
        "evaluate",
        "humaneval",
        "--problems",
        "problems.jsonl",
        "--limit",
        "1",
        "--run",
        "s.db",
    )
    two = ("-n", "2")
    done = bactrian(*command, *two, "--model", f"scripted:{script}", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    score = json.loads(done.stdout)
    assert (score["samples"], score["missing"], score["kinds"]) == (2, 0, {"passed": 2})
    again = bactrian(*command, *two, "--model", f"scripted:{script}", "--json", cwd=folder)
    assert json.loads(again.stdout)["kinds"] == score["kinds"]
    other = bactrian(*command, "--model", f"scripted:{script}", "-n", "3", cwd=folder)
    assert other.returncode == 2
    assert "another plan" in other.stderr


def wait_until(holds: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def list_descendants(process: int) -> set[int]:
    """The processes that ``process`` has started, and those that they have started."""
    descendants: set[int] = set()
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            descendants |= {child} | list_descendants(child)
    return descendants


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
def test_a_kill_in_the_middle_of_judging_loses_no_verdict_and_leaves_no_process(folder: Path) -> None:
    slow = "import time\ndef double(n):\n    time.sleep(0.2)\n    return 2 * n  # {}\n"
    rows = [{"task_id": "own/1", "solution": slow.format(number)} for number in range(12)]
    write_solutions(folder, *rows)
    command = (
        "evaluate",
        "humaneval",
        "--problems",
        "problems.jsonl",
        "--solutions",
        "solutions.jsonl",
        "--partial",
    )
    verdicts = folder / "solutions.jsonl.verdicts.jsonl"
    running = Command((*command, "--json"), folder, clean_environment())
    assert wait_until(lambda: verdicts.exists() and verdicts.read_bytes().count(b"\n") >= 2)
    # The sandboxes of the next solutions may be anywhere between their start and their end.
    started = list_descendants(running.pid)
    running.kill()
    running.finish()
    assert running.returncode != 0
    assert started
    assert wait_until(lambda: not any(map(is_alive, started)))
    before = [line for line in verdicts.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    assert len(before) < len(rows)
    done = bactrian(*command, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kinds"] == {"passed": len(rows)}
    after = verdicts.read_bytes().splitlines(keepends=True)
    assert after[: len(before)] == before
    assert sorted(int(json.loads(line)["id"]) for line in after) == list(range(1, len(rows) + 1))


@pytest.mark.slow
def test_a_part_of_the_problems_is_scored_only_where_the_table_says_so(folder: Path) -> None:
    write_solutions(folder, {"task_id": "own/1", "completion": "    return n + n\n"})
    known = [json.loads(line) for line in (folder / "problems.jsonl").read_text().splitlines()]
    named = [{**row, "task_id": row["task_id"].replace("own", "HumanEval")} for row in known]
    (folder / "some.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in named))
    (folder / "own.jsonl").write_text('{"task_id": "HumanEval/1", "completion": "    return n + n"}')
    for problems, solutions, part in (
        ("problems", "solutions", "1 of the 2"),
        ("some", "own", "2 of the 164"),
    ):
        files = ("--problems", f"{problems}.jsonl", "--solutions", f"{solutions}.jsonl")
        refused = bactrian("evaluate", "humaneval", *files, cwd=folder)
        assert (refused.returncode, f"The file has {part} problems" in refused.stderr) == (2, True)
        done = bactrian("evaluate", "humaneval", *files, "--partial", cwd=folder)
        assert done.stdout.startswith(f"1 of {part.split()[-1]} problems (a part), 1 sample"), done.stderr


def test_a_forecast_spends_nothing(folder: Path) -> None:
    command = ("evaluate", "humaneval", "--problems", "problems.jsonl", "-n", "5", "--temperature", "0.2,0.8")
    done = bactrian(*command, "--forecast", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "20 sessions are left" in done.stdout and "--pilot" not in done.stdout
    assert not (folder / "humaneval.db").exists()
