"""Code of solutions that is run in the sandbox."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bactrian.analyze.code_runs import LIMITS, check_runs, run_solutions
from bactrian.records.session import Session
from tests.helpers.command import bactrian
from tests.helpers.runs import make_run, session
from tests.helpers.sandbox import needs_sandbox

pytestmark = [needs_sandbox, pytest.mark.system]

ASK = "Instruction: Write it.\nInput: None"


def solve(*codes: str, name: str = "1") -> Session:
    texts = [text for code in codes for text in (ASK, f"Solution: Here it is.\n{code}\nNext request.")]
    return session(name, texts=texts, code="max_messages")


def fence(code: str, language: str = "python") -> str:
    return f"```{language}\n{code}\n```"


ENDINGS = {
    "print(1 + 1)": "runs",
    "import sys\nsys.exit(0)": "runs",
    "x = [1]\nx[3]": "fails",
    "def f(:": "fails",
    "assert 1 == 2, 'sums'": "fails",
    "import pandas_of_nobody": "unknown",
    "name = input('Who? ')": "unknown",
    "open('prices.csv')": "unknown",
    "import urllib.request as r\nr.urlopen('http://127.0.0.1:1')": "unknown",
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('f')\np.parse_args()": "unknown",
    "import time\ntime.sleep(99)": "unknown",
    "import os\nos.kill(os.getpid(), 9)": "unknown",
}


@pytest.mark.slow
def test_a_solution_runs_or_fails_or_needs_more_than_a_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bactrian.analyze.code_runs.LIMITS", replace(LIMITS, wall=2))
    runs = run_solutions(solve(*map(fence, ENDINGS)))
    assert [run.ending for run in runs] == list(ENDINGS.values())


def test_text_that_is_no_program_is_not_run() -> None:
    texts = [
        fence("hello", ""),
        fence("echo 1", "bash"),
        fence(">>> 1 + 1\n2"),
        fence("pip install tea"),
        "no",
    ]
    assert list(run_solutions(solve(*texts))) == []


def test_a_solution_uses_what_earlier_ones_have_defined() -> None:
    found = list(
        run_solutions(solve(fence("def double(n): return 2 * n"), fence("print(double(2), triple)")))
    )
    assert [(solution.turn, solution.ending) for solution in found] == [(2, "runs"), (4, "fails")]
    assert found[1].line == "print(double(2), triple)"
    assert "triple" in found[1].reason
    after = list(run_solutions(solve(fence("import tea_of_nobody\nx = 1"), fence("print(x)"))))
    assert [solution.ending for solution in after] == ["unknown", "unknown"]


def test_a_session_runs_if_some_code_runs_and_none_fails() -> None:
    assert check_runs(solve(fence("x = 1"), fence("import tea_of_nobody")))
    assert not check_runs(solve(fence("x = 1"), fence("1 / 0")))
    assert not check_runs(solve("in words"))


async def test_code_is_run_only_where_it_is_asked_for(tmp_path: Path) -> None:
    good, bad = solve(fence("x = 1"), name="good"), solve(fence("1 / 0"), name="bad")
    await make_run(tmp_path / "code.db", [good, bad, solve("in words", name="words")])
    plain = bactrian("analyze", "code.db", "--json", cwd=tmp_path)
    assert plain.returncode == 0, plain.stderr
    assert "code_fails" not in json.loads(plain.stdout)["behaviours"]
    run = bactrian("analyze", "code.db", "--run-code", "--json", "--findings", "f.jsonl", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["behaviours"]["code_fails"]["sessions"] == 1
    lines = [json.loads(line) for line in (tmp_path / "f.jsonl").read_text("utf-8").splitlines()]
    (finding,) = [line for line in lines if line["behaviour"] == "code_fails"]
    assert (finding["session"], finding["turn"], finding["quote"]) == ("bad", 2, "1 / 0")
    assert "ZeroDivisionError" in finding["reason"]


@pytest.mark.slow
async def test_an_export_keeps_only_sessions_whose_code_runs(tmp_path: Path) -> None:
    good, bad = solve(fence("x = 1"), name="good"), solve(fence("1 / 0"), name="bad")
    await make_run(tmp_path / "code.db", [good, bad, solve("in words", name="words")])
    words = ("export", "code.db", "--format", "messages", "--only")
    done = bactrian(*words, "runs", "--out", "runs.jsonl", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert (made["counts"]["sessions"], made["counts"]["left_out"]) == (1, {"not runs": 2})
    assert made["filters"]["required"] == ["runs"]
    dropped = bactrian(
        "export", "code.db", "--format", "messages", "--drop", "finding=code_fails", "--out", "d.jsonl",
        "--json", cwd=tmp_path,
    )  # fmt: skip
    assert json.loads(dropped.stdout)["counts"]["sessions"] == 2, dropped.stderr
    shown = bactrian("show", "code.db", "--behaviour", "code_fails", cwd=tmp_path)
    assert "bad" in shown.stdout, shown.stderr
