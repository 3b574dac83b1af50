"""A sample of texts that is the same however a run is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import nsmallest

LARGEST = 10_000
"""Texts that a sample holds at most."""


@dataclass(slots=True)
class HashSample:
    """The texts whose keys have the smallest hashes: as random as a hash is, and fixed."""

    seen: int = 0
    texts: list[tuple[bytes, str]] = field(default_factory=list[tuple[bytes, str]])
    """Each with the hash of its key."""

    def add(self, key: str, text: str) -> None:
        """Offer ``text``; ``key`` says where it stands."""
        self.seen += 1
        self.texts.append((blake2b(key.encode(), digest_size=8).digest(), text))
        self._trim(2 * LARGEST)

    def merge(self, other: HashSample) -> None:
        """Offer all of ``other``."""
        self.seen += other.seen
        self.texts += other.texts
        self._trim(2 * LARGEST)

    def list_chosen(self) -> list[str]:
        """The sample, in an order that says nothing of where its texts stood."""
        return [text for _, text in nsmallest(LARGEST, self.texts)]

    def _trim(self, above: int) -> None:
        if len(self.texts) > above:
            self.texts = nsmallest(LARGEST, self.texts)
