"""The end of what hangs: a test, its fixtures or the end of a process writes all threads' stacks, and its process ends.

pytest-xdist then reports the test as failed and goes on in a new process. pytest's own ``faulthandler_timeout`` lets
go after a failure, so that the fixtures of a failed test may hang, and knows neither marks nor the end of a session.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Generator

import pytest

LIMIT = 240
"""Seconds of waiting and working together for a test with its fixtures: five times what any took on a busy computer."""
SOAK_LIMIT = 1_200
"""The same for a test that is marked as ``soak``."""
_SECONDS = "TEST_SECONDS"
"""The environment variable that has the limit of the test that runs."""


def read_limit() -> float:
    """Return the limit of the test that runs, in seconds."""
    return float(os.environ.get(_SECONDS, LIMIT))


class TimeLimit:
    """A plugin that ends this process where it hangs."""

    def __init__(self, limit: float = LIMIT) -> None:
        self.limit = limit
        self._errors = os.dup(2)  # what a test writes there is captured

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._begin(item)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Begin again, because pytest has let go if the test has failed."""
        self._begin(item)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        """Limit the end of the session, and that of a process which no other one ends: threads may hold it up."""
        self._begin()
        yield
        if hasattr(session.config, "workerinput"):  # pytest-xdist ends it
            faulthandler.cancel_dump_traceback_later()

    def _begin(self, item: pytest.Item | None = None) -> None:
        limit = SOAK_LIMIT if item and item.get_closest_marker("soak") else self.limit
        os.environ[_SECONDS] = str(limit)
        faulthandler.dump_traceback_later(limit, file=self._errors, exit=True)
