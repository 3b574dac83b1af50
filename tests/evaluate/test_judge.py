"""The split judge: honest solutions pass, cheats do not, and each failure has its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from bactrian.evaluate.code_judge import Judge, VerdictFile, judge_solutions
from bactrian.evaluate.problems import CodeSample, Problem
from bactrian.sandbox.tiers import MIB, Limits
from tests.evaluate.cheats import CHEATS, HONEST
from tests.helpers.sandbox import needs_sandbox

pytestmark = [needs_sandbox, pytest.mark.system]
LIMITS = Limits(cpu=0.4, wall=4, memory=512 * MIB)

PROBLEM = Problem(
    id="even",
    prompt="def add_even(numbers):\n    '''Add the even numbers.'''\n",
    functions=("add_even",),
    checks="expected = 6\nassert add_even([1, 2, 4]) == expected\n"
    "assert add_even([]) == 0\nassert add_even([8, 3]) == 8\n",
)


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(LIMITS) as judge:
        yield judge


def make_problem(checks: str, *functions: str, helpers: str = "") -> Problem:
    return Problem("own", "", functions or ("f",), checks, helpers)


def test_an_honest_solution_passes(judge: Judge) -> None:
    verdict = judge.judge(PROBLEM, HONEST)
    assert verdict.passed
    assert verdict.calls == 3
    assert verdict.cpu > 0
    assert verdict.tier in ("bubblewrap", "landlock")


def judge_all(path: Path, problem: Problem, codes: Mapping[str, str]) -> dict[str, str]:
    """The kinds of verdicts by name. Most of these programs wait for a limit, so four are judged at once."""
    samples = [CodeSample(name, problem, code) for name, code in codes.items()]
    verdicts = judge_solutions(samples, VerdictFile(path), LIMITS, workers=4, on_verdict=lambda _: None)
    return {name: verdict.kind for name, verdict in zip(codes, verdicts, strict=True)}


@pytest.mark.slow
def test_no_cheat_passes_and_the_judge_is_none_the_worse_for_it(tmp_path: Path) -> None:
    assert len(CHEATS) >= 36
    codes: dict[str, str] = {}
    for number, (name, code) in enumerate(CHEATS.items(), 1):
        codes[name] = code
        if number % 4 == 0:  # one for each of the four workers
            codes[f"after: {name}"] = f"{HONEST}\n# after {name}\n"
    kinds = judge_all(tmp_path / "verdicts.jsonl", PROBLEM, codes)
    assert [name for name in CHEATS if kinds[name] in ("passed", "judge_error")] == []
    assert {kinds[name] for name in codes.keys() - CHEATS.keys()} == {"passed"}


FAILURES = {
    "def f(x): return 2": "wrong",
    "def f(x): return [].pop()": "error",
    "def f(x) return 1": "syntax",
    "def g(x): return 1": "missing",
    "   ": "empty",
    "def f(x):\n    while True: pass": "timeout",
    "while True: pass": "timeout",
    "def f(x): return bytes(4 << 30)": "memory",
    "def f(x):\n    while True: print('x' * 100_000)": "output",
    "def f(x):\n    import os\n    os.abort()": "crashed",
    "def f(x): return object()": "unsupported",
    "def f(x): return (n for n in [1])": "unsupported",
    "def f(x): return 1": "passed",
}


@pytest.mark.slow
def test_each_failure_has_its_kind(tmp_path: Path) -> None:
    codes = {code: code for code in FAILURES}
    assert judge_all(tmp_path / "verdicts.jsonl", make_problem("assert f(0) == 1"), codes) == FAILURES


def test_a_check_that_never_asks_the_solution_is_at_fault(judge: Judge) -> None:
    assert judge.judge(make_problem("assert True"), "def f(x): return 1").kind == "judge_error"


def test_a_check_that_cannot_be_run_is_at_fault(judge: Judge) -> None:
    assert judge.judge(make_problem("assert undefined(f)"), "def f(x): return 1").kind == "judge_error"


@pytest.mark.parametrize("end", ["StopIteration", "StopAsyncIteration", "GeneratorExit"])
def test_the_end_of_an_iterator_does_not_end_a_check(judge: Judge, end: str) -> None:
    problem = make_problem("assert all(map(lambda case: f(case[0]) == case[1], [(1, 2), (2, 3)]))")
    assert judge.judge(problem, f"def f(x): raise {end}").kind == "error"
    assert judge.judge(problem, f"class {end}(Exception): pass\ndef f(x): raise {end}").kind == "error"
    assert judge.judge(problem, "def f(x): return x + 1").passed


def test_a_check_that_dies_is_at_fault_and_the_judge_goes_on(judge: Judge) -> None:
    dying = make_problem("f(0)\nimport os\nos._exit(0)")
    assert judge.judge(dying, "def f(x): return 1").kind == "judge_error"
    assert judge.judge(PROBLEM, HONEST).passed


@pytest.mark.slow
def test_a_check_that_hangs_is_at_fault_and_the_judge_goes_on() -> None:
    with Judge(Limits(cpu=1, wall=2), patience=0) as judge:
        hanging = make_problem("f(0)\nimport time\ntime.sleep(600)")
        assert judge.judge(hanging, "def f(x): return 1").kind == "judge_error"
        assert judge.judge(PROBLEM, HONEST).passed


def test_checks_that_swallow_everything_do_not_hide_a_crash(judge: Judge) -> None:
    checks = "try:\n    f(0)\nexcept BaseException:\n    pass"
    assert judge.judge(make_problem(checks), "import os\ndef f(x): os._exit(0)").kind == "crashed"


def test_an_exception_that_the_checks_expect_is_a_pass(judge: Judge) -> None:
    checks = (
        "try:\n    f(0)\nexcept ValueError as error:\n    assert str(error) == 'no'\nelse:\n    assert False"
    )
    assert judge.judge(make_problem(checks), "def f(x): raise ValueError('no')").passed
    assert judge.judge(make_problem(checks), "def f(x): raise KeyError('no')").kind == "error"


def test_plain_values_keep_their_types(judge: Judge) -> None:
    values = "[1, -2.5, True, None, 'ä\\ud800', b'x', 2 + 3j, (1, [2]), {3}, "
    values += "frozenset({4}), {(1, 2): {'a': []}}, 10 ** 5000]"
    checks = f"given = {values}\nback = f(given)\nassert back == given\n"
    checks += "assert [type(each) for each in back] == [type(each) for each in given]"
    assert judge.judge(make_problem(checks), "def f(x): return x").passed


def test_helpers_of_the_checks_are_not_taken_from_the_solution(judge: Judge) -> None:
    problem = make_problem("assert double(f(2)) == 4", helpers="def double(n): return 2 * n")
    assert judge.judge(problem, "def f(x): return x\ndef double(n): return 4").passed
    assert judge.judge(problem, "def f(x): return 0\ndef double(n): return 4").kind == "wrong"


@pytest.mark.slow
def test_a_solution_that_waits_is_stopped() -> None:
    with Judge(Limits(wall=2)) as judge:
        verdict = judge.judge(PROBLEM, "import time\ndef add_even(n): time.sleep(3600)")
    assert verdict.kind == "timeout"
