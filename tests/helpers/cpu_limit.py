"""The limit of what a test may cost: half a second of CPU time, unless it is marked as ``system`` or ``slow``.

``over_cpu_limit.txt`` lists the tests that took longer when the limit was set; it only ever gets shorter.

Half a second is also the most that a test which ``pytest`` runs by default takes by itself, with all that it waits
for. Time on a busy computer says little, so tests that took longer are named at the end, and do not fail.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

LIMIT = 0.5
"""Seconds of this process's CPU time. What a test waits for does not count, nor do other processes."""
_SHARED = 3.0
"""How much more a test may take beside other tests: processes that share a core and its caches slow each other down by
half, and a check that sometimes fails says nothing. ``pytest -n 0`` holds a test to the limit itself."""
_IMPORTED = 20
"""The test that happens to import a library for all later ones does not fail: a library is more modules than this."""
_OFFENDERS = Path(__file__).with_name("over_cpu_limit.txt")


class CpuLimit:
    """A plugin that fails a test over the limit, and names those that took longer by the clock."""

    def __init__(self, limit: float = LIMIT) -> None:
        self.limit = limit
        self.known = (
            frozenset(_OFFENDERS.read_text("utf-8").splitlines()) if _OFFENDERS.exists() else frozenset()
        )
        self.long: list[tuple[float, str]] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        """Measure the test itself, without its fixtures, which others share."""
        modules, begin = len(sys.modules), time.process_time()
        yield
        seconds = time.process_time() - begin
        is_free = any(item.get_closest_marker(name) for name in ("system", "slow"))
        if is_free or len(sys.modules) - modules > _IMPORTED or self._is_known(item):
            return
        limit = self.limit * (_SHARED if "PYTEST_XDIST_WORKER" in os.environ else 1)
        if seconds > limit:
            pytest.fail(
                f"{seconds:.2f} s of CPU time, and a test may take {self.limit} s. Make it quicker, or mark it: "
                "@pytest.mark.slow for what takes longer by itself, @pytest.mark.soak for what not every change needs."
            )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the time of a test that is not marked, as the process that reports to the terminal hears of it."""
        limit = self.limit * (_SHARED if hasattr(report, "node") else 1)
        if report.when == "call" and report.duration > limit and "slow" not in report.keywords:
            self.long.append((report.duration, report.nodeid))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the tests that took longer, the longest first."""
        if self.long:
            terminalreporter.section(f"longer than {self.limit} s by itself, and not marked as slow")
            for seconds, name in sorted(self.long, reverse=True):
                terminalreporter.write_line(f"{seconds:.2f} s  {name}")

    def _is_known(self, item: pytest.Item) -> bool:
        return item.nodeid.partition("[")[0] in self.known
