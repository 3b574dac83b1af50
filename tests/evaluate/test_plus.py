"""HumanEval+: its data format, and verdicts beside those of EvalPlus's own grader where that is installed."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bactrian.evaluate.code_judge import Judge
from bactrian.evaluate.problems import Problem, find_plus_file, read_human_eval, read_problems
from bactrian.sandbox.tiers import Limits
from tests.helpers.sandbox import needs_sandbox

COUNT = 12


def record_inputs(problem: Problem) -> list[list[Any]]:
    """Return the arguments with which the checks of a problem call its solution."""
    scope: dict[str, Any] = {}
    exec(problem.prompt + problem.canonical, scope)
    function: Callable[..., Any] = scope[problem.functions[0]]
    recorded: list[list[Any]] = []

    def record(*arguments: Any) -> Any:
        recorded.append(copy.deepcopy(list(arguments)))
        return function(*arguments)

    scope[problem.functions[0]] = record
    exec(problem.checks, scope)
    return recorded


def write_plus(path: Path) -> list[dict[str, Any]]:
    """Write the first problems of HumanEval in EvalPlus's format, and return its rows.

    The inputs of HumanEval's checks are divided into base and further ones.
    """
    rows: list[dict[str, Any]] = []
    for problem in read_human_eval():
        inputs = record_inputs(problem)
        if len(rows) < COUNT and inputs and json.loads(json.dumps(inputs)) == inputs:
            rows.append(
                {
                    "task_id": problem.id,
                    "prompt": problem.prompt,
                    "contract": "",
                    "canonical_solution": problem.canonical,
                    "entry_point": problem.functions[0],
                    "base_input": inputs[:1],
                    "plus_input": inputs[1:],
                    "atol": 0,
                }
            )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return rows


def spoil(code: str) -> list[str]:
    """Return variants of a solution, most of which are wrong."""
    changes = (
        (r"\+", "-"),
        (r"<=?", ">"),
        (r"True", "False"),
        (r"\b1\b", "2"),
        (r"return .*", "return None"),
    )
    spoilt = (re.sub(pattern, new, code, count=1) for pattern, new in changes)
    return [spoiled for spoiled in spoilt if spoiled != code]


@needs_sandbox
@pytest.mark.slow
def test_a_file_in_the_format_of_evalplus_is_read_and_judged(tmp_path: Path) -> None:
    rows = write_plus(tmp_path / "HumanEvalPlus.jsonl")
    problems = read_problems(tmp_path / "HumanEvalPlus.jsonl")
    assert [problem.id for problem in problems] == [row["task_id"] for row in rows]
    with Judge() as judge:
        for problem in problems[:4]:
            assert judge.judge(problem, problem.build_module(problem.canonical)).passed
            assert not judge.judge(problem, problem.build_module("    return None\n")).passed


def test_the_newest_whole_file_of_the_cache_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert find_plus_file() is None
    folder = tmp_path / "evalplus"
    folder.mkdir()
    for name in (
        "HumanEvalPlus-v0.1.9",
        "HumanEvalPlus-v0.1.10",
        "HumanEvalPlus-Mini-v0.1.11",
        "MbppPlus-v0.2.0",
    ):
        (folder / f"{name}.jsonl").touch()
    assert find_plus_file() == folder / "HumanEvalPlus-v0.1.10.jsonl"


def test_verdicts_are_those_of_evalplus(tmp_path: Path) -> None:
    grading = pytest.importorskip("evalplus.eval")
    rows = write_plus(tmp_path / "HumanEvalPlus.jsonl")
    compared = passed = 0
    with Judge(Limits(cpu=5, wall=20)) as judge:
        for row, problem in zip(rows, read_problems(tmp_path / "HumanEvalPlus.jsonl"), strict=True):
            inputs = [*row["base_input"], *row["plus_input"]]
            scope: dict[str, Any] = {}
            exec(row["prompt"] + row["canonical_solution"], scope)
            expected = [scope[row["entry_point"]](*copy.deepcopy(arguments)) for arguments in inputs]
            for body in (row["canonical_solution"], *spoil(row["canonical_solution"])):
                code = row["prompt"] + body
                theirs, _ = grading.untrusted_check(
                    "humaneval", code, inputs, row["entry_point"], expected, 0, [0.1] * len(inputs), True
                )
                ours = judge.judge(problem, code)
                assert ours.passed == (theirs == grading.PASS), (problem.id, body, theirs, ours)
                compared += 1
                passed += ours.passed
    assert COUNT <= passed < compared - COUNT
