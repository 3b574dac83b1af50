"""A test that takes long fails, unless it is marked."""

from __future__ import annotations

import pytest

from tests.helpers.cpu_limit import CpuLimit

BURN = """
import time, pytest

def burn(seconds):
    begin = time.process_time()
    while time.process_time() - begin < seconds:
        pass

def test_long():
    burn(0.3)

@pytest.mark.system
def test_marked():
    burn(0.3)

def test_waiting():
    time.sleep(0.3)
"""


@pytest.mark.slow
def test_a_test_over_the_limit_fails_unless_it_is_marked_or_waits(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(BURN)
    pytester.makeini("[pytest]\nmarkers = system: real processes")
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    ended = pytester.inline_run("-p", "no:xdist", "-p", "no:asyncio", plugins=[CpuLimit(limit=0.1)])
    passed, _, failed = ended.listoutcomes()
    assert [report.nodeid.split("::")[1] for report in failed] == ["test_long"]
    assert len(passed) == 2
    assert "s of CPU time" in str(failed[0].longrepr)


@pytest.mark.system
def test_what_took_longer_by_the_clock_is_named_unless_it_is_slow(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import time, pytest\n"
        "def test_waiting(): time.sleep(0.15)\n"
        "def test_short(): pass\n"
        "@pytest.mark.slow\ndef test_marked(): time.sleep(0.15)\n"
    )
    pytester.makeini("[pytest]\nmarkers = slow: long")
    ended = pytester.inline_run("-p", "no:xdist", "-p", "no:asyncio", plugins=[limit := CpuLimit(limit=0.1)])
    ended.assertoutcome(passed=3)
    assert [name.split("::")[1] for _, name in limit.long] == ["test_waiting"]
