"""Counts of an export: sessions written and left out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from bactrian.records.session import Session
from bactrian.tables.lineage import list_given, to_compact_json

_MOST = 50
"""Most distinct sampling parameters that are listed."""


@dataclass(slots=True)
class ExportCounts:
    """Numbers of an export."""

    seen: int = 0
    left_out: Counter[str] = field(default_factory=Counter[str])
    """Sessions left out, by reason."""
    rows: Counter[str] = field(default_factory=Counter[str])
    """By part."""
    sessions: int = 0
    """That were written."""
    messages: int = 0
    """Of the sessions that were written."""
    tokens: int = 0
    endings: Counter[str] = field(default_factory=Counter[str])
    pairs: set[int] = field(default_factory=set[int])
    """Hashes of the role pairs."""
    models: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """Agent and model."""
    prompts: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """Name and hash of the packs."""
    sampling: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """Agent, and its parameters as JSON; without the seed."""
    languages: set[str] = field(default_factory=set[str])
    marks: set[str] = field(default_factory=set[str])
    redacted: Counter[str] = field(default_factory=Counter[str])
    """Passages by kind."""

    def count(self, session: Session, part: str, rows: int) -> None:
        """Count a session that was written as ``rows`` rows."""
        self.sessions += 1
        self.rows[part] += rows
        self.messages += len(session.turns)
        self.tokens += session.usage.total
        self.endings[session.ending.code if session.ending else "unfinished"] += 1
        self.pairs.add(hash((session.assistant.name, session.user.name)))
        origin = session.provenance
        self.models.update(origin.models.items())
        self.prompts.add((origin.prompts, origin.prompts_hash))
        self.languages.add(session.values.get("language") or origin.language or "")
        if session.mark:
            self.marks.add(session.mark)
        if len(self.sampling) < _MOST:
            for agent, values in origin.sampling.items():
                chosen = {name: value for name, value in list_given(values).items() if name != "seed"}
                self.sampling.add((agent, to_compact_json(chosen)))
