"""A reproducible sample of texts, independent of the order of reading."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import nsmallest

LARGEST = 10_000
"""Most texts in a sample."""


@dataclass(slots=True)
class HashSample:
    """The texts whose keys have the smallest hashes: pseudo-random and reproducible."""

    seen: int = 0
    texts: list[tuple[bytes, str]] = field(default_factory=list[tuple[bytes, str]])
    """Texts, each with the hash of its key."""

    def add(self, key: str, text: str) -> None:
        """Add ``text`` if its key is in the sample; ``key`` is its position."""
        self.seen += 1
        self.texts.append((blake2b(key.encode(), digest_size=8).digest(), text))
        self._trim(2 * LARGEST)

    def merge(self, other: HashSample) -> None:
        """Add the texts of ``other``."""
        self.seen += other.seen
        self.texts += other.texts
        self._trim(2 * LARGEST)

    def list_chosen(self) -> list[str]:
        """Return the sample in pseudo-random order."""
        return [text for _, text in nsmallest(LARGEST, self.texts)]

    def _trim(self, above: int) -> None:
        if len(self.texts) > above:
            self.texts = nsmallest(LARGEST, self.texts)
