"""An event loop whose time passes only while everything waits, and then at once: an hour takes a moment."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class _Jumping(selectors.SelectSelector):
    """Never waits: adds to ``now`` the seconds that it was to wait."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += timeout or 0.0
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop; :meth:`time` is the clock for what measures time itself."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run_virtually(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run ``coroutine`` in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)
