"""A limit on how often a named action is allowed."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

_MOST_NAMES = 10_000


@dataclass(slots=True)
class VisitLimit:
    """At most ``count`` actions of one name within ``seconds``."""

    count: int
    seconds: float
    _seen: dict[str, deque[float]] = field(default_factory=dict[str, "deque[float]"])

    def take(self, name: str) -> float:
        """Count an action and return 0, or return the seconds until one is allowed again."""
        now = time.monotonic()
        if len(self._seen) > _MOST_NAMES:
            self._seen = {one: times for one, times in self._seen.items() if now - times[-1] < self.seconds}
        times = self._seen.setdefault(name, deque(maxlen=self.count))
        if len(times) == self.count and now - times[0] < self.seconds:
            return self.seconds - (now - times[0])
        times.append(now)
        return 0.0
