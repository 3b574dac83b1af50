"""Which sessions are handed over."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bactrian.export.decontaminate import Benchmark
from bactrian.records.session import Session

Predicate = Callable[[Session], bool]


@dataclass(frozen=True, slots=True)
class Filters:
    """What a session must be, and must not be."""

    endings: frozenset[str] = frozenset()
    """Codes of endings; empty for all."""
    reject: Mapping[str, Predicate] = field(default_factory=dict[str, Predicate])
    """Sessions for which one of these is true are left out, under its name."""
    min_rounds: int = 0
    """Rounds, an instruction and its solution, that a session has at least."""
    unfinished: bool = False
    """True to take sessions that have not ended, too."""
    dedup: bool = False
    """True to take only the first of sessions that say the same."""
    benchmark: Benchmark | None = None
    """Sessions that quote this are left out."""

    def describe(self) -> dict[str, object]:
        """The filters that are set, for the manifest."""
        made: dict[str, object] = {
            "only_endings": sorted(self.endings),
            "rejected": sorted(self.reject),
            "min_rounds": self.min_rounds,
            "unfinished": self.unfinished,
            "dedup": self.dedup,
            "decontaminated": self.benchmark.describe() if self.benchmark else None,
        }
        return {name: value for name, value in made.items() if value}


class SessionFilter:
    """Applies filters to the sessions of a run, one after another."""

    def __init__(self, filters: Filters) -> None:
        self._filters = filters
        self._seen: set[bytes] = set()

    def find_reason(self, session: Session) -> str | None:
        """Why ``session`` is left out; None if it is taken."""
        filters = self._filters
        code = session.ending.code if session.ending else "none"
        if session.ending is None and not filters.unfinished:
            return "unfinished"
        if filters.endings and code not in filters.endings:
            return f"ending {code}"
        if len(session.turns) // 2 < filters.min_rounds:
            return "too few rounds"
        if filters.dedup:
            key = _content(session)
            if key in self._seen:
                return "duplicate"
            self._seen.add(key)
        if filters.benchmark and filters.benchmark.is_quoted_in(session):
            return f"quotes {filters.benchmark.name}"
        return next((name for name, predicate in filters.reject.items() if predicate(session)), None)


def _content(session: Session) -> bytes:
    """A hash of what is said: the same for two sessions that differ in case or white space only."""
    digest = hashlib.blake2b(digest_size=16)
    for turn in session.turns:
        digest.update(" ".join(turn.text.casefold().split()).encode() + b"\0")
    return digest.digest()
