"""What the local model has computed already: whose slot is whose, and each conversation's exact tokens."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

Key = tuple[str, str]
"""Session and agent."""


_ONE_CALL = ("task_specifier", "task_planner", "lister", "translator")
"""Agents that do not go on with what they were asked: their slot is the first to be given away."""


class Slots:
    """Lends out a server's slots. An agent gets the slot it had before, else the one unused for longest."""

    def __init__(self, count: int) -> None:
        self._free = asyncio.Semaphore(count)
        self._idle: dict[int, Key | None] = dict.fromkeys(range(count))
        """Idle slots and who used them last, the one unused for longest first."""

    @asynccontextmanager
    async def lend(self, key: Key) -> AsyncGenerator[int]:
        """Wait for a slot, and have it for the time of the ``with`` block."""
        async with self._free:
            own = (slot for slot, last in self._idle.items() if last == key)
            slot = next(own, next(iter(self._idle)))
            del self._idle[slot]
            try:
                yield slot
            finally:
                if key[1] in _ONE_CALL:
                    self._idle = {slot: key, **self._idle}
                else:
                    self._idle[slot] = key


@dataclass(frozen=True, slots=True)
class ComputedText:
    """A text and the very tokens it was computed as.

    Tokenising a model's own words again may give other tokens, and then nothing behind them is in the cache.
    """

    text: str
    tokens: array[int]


class PrefixCache:
    """The newest computed texts of each agent, for the ``limit`` agents that spoke last."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._computed: dict[Key, Sequence[ComputedText]] = {}

    def find_longest(self, key: Key, text: str) -> ComputedText:
        """The longest computed text that ``text`` begins with; an empty one if there is none."""
        fitting = [known for known in self._computed.get(key, ()) if text.startswith(known.text)]
        return max(fitting, key=lambda known: len(known.text), default=ComputedText("", array("i")))

    def store(self, key: Key, computed: Sequence[ComputedText]) -> None:
        """Remember what was computed for an agent, in place of what it had before."""
        self._computed.pop(key, None)
        self._computed[key] = computed
        if len(self._computed) > self._limit:
            del self._computed[next(iter(self._computed))]
