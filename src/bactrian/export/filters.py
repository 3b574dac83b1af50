"""Filters of the sessions to export."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bactrian.export.decontaminate import Benchmark
from bactrian.records.session import Session

Predicate = Callable[[Session], bool]


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions on the sessions to export."""

    endings: frozenset[str] = frozenset()
    """Codes of endings; empty for all."""
    reject: Mapping[str, Predicate] = field(default_factory=dict[str, Predicate])
    """Predicates by name; a session that matches one is left out and counted under the name."""
    min_rounds: int = 0
    """Minimum rounds (an instruction and its solution) of a session."""
    unfinished: bool = False
    """True to include unfinished sessions."""
    dedup: bool = False
    """True to keep only the first of identical sessions."""
    require: Mapping[str, Predicate] = field(default_factory=dict[str, Predicate])
    """Predicates by name; only sessions that match all of them are exported."""
    benchmark: Benchmark | None = None
    """Sessions that quote this are left out."""

    def describe(self) -> dict[str, object]:
        """Return the active filters, for the manifest."""
        made: dict[str, object] = {
            "only_endings": sorted(self.endings),
            "rejected": sorted(self.reject),
            "required": sorted(self.require),
            "min_rounds": self.min_rounds,
            "unfinished": self.unfinished,
            "dedup": self.dedup,
            "decontaminated": self.benchmark.describe() if self.benchmark else None,
        }
        return {name: value for name, value in made.items() if value}


class SessionFilter:
    """Applies filters to the sessions of a run, in sequence."""

    def __init__(self, filters: Filters) -> None:
        self._filters = filters
        self._seen: set[bytes] = set()

    def find_reason(self, session: Session) -> str | None:
        """Return the reason to leave ``session`` out; None to export it."""
        filters = self._filters
        code = session.ending.code if session.ending else "none"
        for name, predicate in filters.require.items():
            if not predicate(session):
                return f"not {name}"
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
    """Return a hash of the session's texts, ignoring case and white space."""
    digest = hashlib.blake2b(digest_size=16)
    for turn in session.turns:
        digest.update(" ".join(turn.text.casefold().split()).encode() + b"\0")
    return digest.digest()
