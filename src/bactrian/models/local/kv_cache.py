"""The key-value cache of the local model: assignment of slots, and the exact tokens of each conversation."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

Key = tuple[str, str]
"""Session and agent."""


_ONE_CALL = ("task_specifier", "task_planner", "lister", "translator")
"""Agents that do not continue a conversation: their slots are reused first."""


class Slots:
    """Assigns a server's slots. An agent gets its previous slot, otherwise the least recently used one."""

    def __init__(self, count: int) -> None:
        self._free = asyncio.Semaphore(count)
        self._idle: dict[int, Key | None] = dict.fromkeys(range(count))
        """Idle slots with their last user, least recently used first."""

    @asynccontextmanager
    async def lend(self, key: Key) -> AsyncGenerator[int]:
        """Wait for a slot and hold it for the ``with`` block."""
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
    """A text and the tokens it was computed as.

    Tokenising a model's reply again may give different tokens, and everything after them would miss the cache.
    """

    text: str
    tokens: array[int]


class PrefixCache:
    """The latest computed texts of the ``limit`` most recent agents."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._computed: dict[Key, Sequence[ComputedText]] = {}

    def find_longest(self, key: Key, text: str) -> ComputedText:
        """Return the longest computed text that is a prefix of ``text``; an empty one if not found."""
        fitting = [known for known in self._computed.get(key, ()) if text.startswith(known.text)]
        return max(fitting, key=lambda known: len(known.text), default=ComputedText("", array("i")))

    def store(self, key: Key, computed: Sequence[ComputedText]) -> None:
        """Replace the computed texts of an agent."""
        self._computed.pop(key, None)
        self._computed[key] = computed
        if len(self._computed) > self._limit:
            del self._computed[next(iter(self._computed))]
