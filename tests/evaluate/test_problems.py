"""Problems: HumanEval, files in its format, MBPP's and EvalPlus's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bactrian.errors import BactrianError, InputError
from bactrian.evaluate.code_judge import Judge, Verdict, VerdictFile, judge_solutions
from bactrian.evaluate.problems import CodeSample, read_human_eval, read_problems
from bactrian.sandbox.tiers import Limits
from tests.helpers.sandbox import needs_sandbox

MBPP = {
    "task_id": 2,
    "text": "Write a function to find the shared elements of two lists.",
    "code": "def shared(a, b):\n    return tuple(set(a) & set(b))",
    "test_list": [
        "assert set(shared((3, 4), (4, 5))) == set((4,))",
        "assert math.floor(len(shared((), ()))) == 0",
    ],
    "test_setup_code": "import math",
    "challenge_test_list": [],
}
PLUS = {
    "task_id": "HumanEval/x",
    "prompt": "def half(x):\n    '''Halve x.'''\n",
    "entry_point": "half",
    "canonical_solution": "    return x / 2\n",
    "base_input": [[4]],
    "plus_input": [[5], [1e300], [-0.5]],
    "atol": 0,
}


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


@pytest.mark.slow
@needs_sandbox
@pytest.mark.parametrize(
    "step", [pytest.param(12, marks=pytest.mark.system), pytest.param(1, marks=pytest.mark.soak)]
)
def test_canonical_solutions_of_human_eval_pass(tmp_path: Path, step: int) -> None:
    problems = read_human_eval()
    assert len(problems) == 164
    solutions = [
        CodeSample(problem.id, problem, problem.build_module(problem.canonical))
        for problem in problems[::step]
    ]
    verdicts = VerdictFile(tmp_path / "verdicts.jsonl")
    judged = judge_solutions(solutions, verdicts, Limits(), workers=2, on_verdict=lambda _: None)
    assert [verdict for verdict in judged if not verdict.passed] == []


@needs_sandbox
@pytest.mark.system
def test_stubs_of_human_eval_do_not_pass(tmp_path: Path) -> None:
    solutions = [
        CodeSample(problem.id, problem, problem.build_module("    return None\n"))
        for problem in read_human_eval()[:6]
    ]
    verdicts = VerdictFile(tmp_path / "verdicts.jsonl")
    judged = judge_solutions(solutions, verdicts, Limits(), workers=2, on_verdict=lambda _: None)
    assert {verdict.kind for verdict in judged} <= {"wrong", "error"}


@needs_sandbox
@pytest.mark.system
def test_mbpp_problems_are_read(tmp_path: Path) -> None:
    (problem,) = read_problems(write(tmp_path / "mbpp.jsonl", MBPP))
    assert problem.functions == ("shared",)
    assert "assert set(shared" in problem.prompt
    with Judge() as judge:
        assert judge.judge(problem, problem.canonical).passed
        assert judge.judge(problem, "def shared(a, b): return a").kind == "wrong"


@needs_sandbox
@pytest.mark.slow
def test_own_problems_are_judged_whatever_their_prompt_looks_like(tmp_path: Path) -> None:
    prompts = {
        "no docstring": "def half(x):\n",
        "a comment": "import math\n\ndef half(x):\n    # Halve x.\n",
        "a method": "class Half:\n    def of(self, x):\n        # Halve x.\n",
        "a sentence": "Write a function `half` that halves a number.",
    }
    test = {"entry_point": "half", "test": "def check(f):\n    assert f(4) == 2\n"}
    rows = [{"task_id": name, "prompt": prompt, **test} for name, prompt in prompts.items()]
    codes = {"passed": "def half(x):\n    return x / 2\n", "wrong": "def half(x):\n    return x\n"}
    with Judge() as judge:
        for problem in read_problems(write(tmp_path / "own.jsonl", *rows)):
            kinds = {kind: judge.judge(problem, code).kind for kind, code in codes.items()}
            assert kinds == {kind: kind for kind in codes}, problem.id


@needs_sandbox
@pytest.mark.system
def test_plus_problems_take_expected_values_from_the_canonical_solution(tmp_path: Path) -> None:
    (problem,) = read_problems(write(tmp_path / "plus.jsonl", PLUS))
    with Judge() as judge:
        assert judge.judge(problem, problem.build_module(problem.canonical)).passed
        assert judge.judge(problem, "def half(x): return x // 2").kind == "wrong"
        assert judge.judge(problem, "def half(x): return x * 0.5").passed


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[1]\n",
        "{not json}\n",
        '{"task_id": 1}\n',
        '{"task_id": 1, "text": "x", "test_list": ["assert 1 == 1"]}\n',
        '{"task_id": 1, "text": "x", "test_list": ["assert ("]}\n',
        '{"task_id": 1, "text": "x", "test_list": 5}\n',
        2 * (json.dumps(MBPP) + "\n"),
        "[" * 100_000 + "\n",
    ],
)
def test_a_file_that_holds_no_problems_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "problems.jsonl"
    path.write_text(content, "utf-8")
    with pytest.raises(InputError) as caught:
        read_problems(path)
    assert str(path) in str(caught.value)


def test_a_file_that_cannot_be_written_keeps_the_verdicts_before_and_says_so(tmp_path: Path) -> None:
    problem = read_human_eval()[0]
    verdicts = VerdictFile(tmp_path / "v.jsonl")
    (tmp_path / "v.jsonl").mkdir()
    with pytest.raises(BactrianError) as caught:
        verdicts.add(CodeSample("a", problem, "x"), Verdict("wrong"))
    assert caught.value.where == str(tmp_path / "v.jsonl")
    assert "run the same command" in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [b"SQLite format 3\0\n", b'{"task_id": "HumanEval/0", "completion": "return 1"}\n', b"notes\n", b"[1]\n"],
    ids=["run", "solutions", "text", "json"],
)
def test_verdicts_are_not_added_to_a_file_of_another_kind(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(InputError, match="something other than verdicts"):
        VerdictFile(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b"", b'{"task_id": "HumanEval/0", "id'], ids=["empty", "cut short"])
def test_verdicts_are_added_to_a_file_that_a_kill_left(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "verdicts.jsonl"
    path.write_bytes(content)
    sample = CodeSample("a", read_human_eval()[0], "x")
    VerdictFile(path).add(sample, Verdict("wrong"))
    assert VerdictFile(path).find(sample) == Verdict("wrong")
