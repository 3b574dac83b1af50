"""Which jobs need not be done: one bit for each, and none where nothing is done."""

from __future__ import annotations

_CHUNK = 4096


class DoneJobs:
    """A set of job numbers."""

    def __init__(self) -> None:
        self._chunks: dict[int, int] = {}

    def add(self, number: int) -> None:
        """Mark the job with this number."""
        chunk, bit = divmod(number, _CHUNK)
        self._chunks[chunk] = self._chunks.get(chunk, 0) | 1 << bit

    def __contains__(self, number: int) -> bool:
        chunk, bit = divmod(number, _CHUNK)
        return bool(self._chunks.get(chunk, 0) >> bit & 1)

    def covers(self, start: int, stop: int) -> bool:
        """True if all jobs from ``start`` up to, not including, ``stop`` are done."""
        while start < stop:
            chunk, bit = divmod(start, _CHUNK)
            here = min(stop - start, _CHUNK - bit)
            mask = (1 << here) - 1 << bit
            if self._chunks.get(chunk, 0) & mask != mask:
                return False
            start += here
        return True
