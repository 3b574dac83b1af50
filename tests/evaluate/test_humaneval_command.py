"""``bactrian evaluate humaneval`` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.command import bactrian

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
    assert "pass@1    50.0%" in again.stdout
    assert "pass@100" in again.stderr


@pytest.mark.parametrize(
    ("row", "arguments", "said"),
    [
        ({"task_id": "own/3", "completion": ""}, (), "There is no problem 'own/3'"),
        ({"task_id": "own/1"}, (), "neither `completion` nor `solution`"),
        ({"task_id": "own/1", "completion": ""}, ("-k", "0"), "not a list of numbers"),
        ({"task_id": "own/1", "completion": ""}, ("--model", "local"), "no model is asked"),
        ({"task_id": "own/1", "completion": ""}, ("--plus", "x.jsonl"), "two sets of problems"),
    ],
)
def test_bad_input_is_refused(
    folder: Path, row: dict[str, str], arguments: tuple[str, ...], said: str
) -> None:
    write_solutions(folder, row)
    command = ("evaluate", "humaneval", "--problems", "problems.jsonl", "--solutions", "solutions.jsonl")
    done = bactrian(*command, *arguments, cwd=folder)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


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
        "-n",
        "2",
        "--run",
        "s.db",
    )
    done = bactrian(*command, "--model", f"scripted:{script}", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    score = json.loads(done.stdout)
    assert (score["samples"], score["missing"], score["kinds"]) == (2, 0, {"passed": 2})
    again = bactrian(*command, "--model", f"scripted:{script}", "--json", cwd=folder)
    assert json.loads(again.stdout)["kinds"] == score["kinds"]
    other = bactrian(*command, "--model", f"scripted:{script}", "-n", "3", cwd=folder)
    assert other.returncode == 2
    assert "another plan" in other.stderr


def test_a_forecast_spends_nothing(folder: Path) -> None:
    command = ("evaluate", "humaneval", "--problems", "problems.jsonl", "-n", "5", "--temperature", "0.2,0.8")
    done = bactrian(*command, "--forecast", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "20 sessions are left" in done.stdout
    assert not (folder / "humaneval.db").exists()
