"""A test that hangs fails, wherever it hangs, and the others go on."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.soak
SETTINGS = f"[pytest]\npythonpath = {Path(__file__).parents[1]}\n"
CONFTEST = """
from tests.helpers.time_limit import TimeLimit

def pytest_configure(config):
    config.pluginmanager.register(TimeLimit(limit=15))
"""
TESTS = """
import threading, pytest

@pytest.fixture
def hanging():
    yield
    threading.Event().wait()

def test_that_hangs():
    threading.Event().wait()

def test_that_fails_and_hangs_in_its_fixture(hanging):
    assert False

@pytest.mark.parametrize("number", range(8))
def test_that_ends(number):
    pass
"""
AT_THE_END = """
import threading

def test_that_leaves_a_thread():
    threading.Thread(target=threading.Event().wait).start()
"""


def test_a_test_that_hangs_fails_by_name_and_the_others_go_on(pytester: pytest.Pytester) -> None:
    pytester.makeini(SETTINGS)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS)
    ended = pytester.runpytest_subprocess("-p", "no:asyncio", "-p", "no:playwright", "-n", "2")
    assert ended.ret == pytest.ExitCode.TESTS_FAILED
    ended.assert_outcomes(passed=8, failed=3)  # one of them twice
    ended.stdout.fnmatch_lines(["*crashed while running*::test_that_hangs'", "*crashed*in_its_fixture'"])
    assert ended.stderr.str().count("Timeout") == 2
    ended.stderr.fnmatch_lines(["*_hangs_fails_by_name_and_the_others_go_on.py*in test_that_hangs"])


def test_a_process_that_a_thread_keeps_alive_ends(pytester: pytest.Pytester) -> None:
    pytester.makeini(SETTINGS)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(AT_THE_END)
    ended = pytester.runpytest_subprocess("-p", "no:asyncio", "-p", "no:xdist")
    assert ended.ret == 1
    ended.stderr.fnmatch_lines(["*in wait"])
