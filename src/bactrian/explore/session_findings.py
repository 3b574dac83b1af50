"""The behaviours of conversations as the index keeps them: where they show, and the words that show them."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bactrian._version import __version__
from bactrian.analyze.behaviours import OwnBehaviour, find_behaviours, find_installed
from bactrian.analyze.learned import has_instructor
from bactrian.detect.detector import LIKELY, POSSIBLE
from bactrian.errors import BactrianError
from bactrian.records.run import Confirmation, Finding, FindingKey, merge_answers
from bactrian.records.session import UNFINISHED, Session
from bactrian.store import RunStore, open_store


@dataclass(frozen=True, slots=True)
class SearchedSession:
    """A conversation that was searched for behaviours."""

    id: str
    # The findings and what they were found in, packed; empty for a conversation that cannot be read.
    evidence: bytes
    # As in a report: False if nobody's part is to instruct.
    has_instructor: bool = True


def search_sessions(source: Path, ids: Sequence[str]) -> list[SearchedSession]:
    """Search the conversations ``ids`` of the run at ``source`` for behaviours."""

    async def search() -> list[SearchedSession]:
        installed = find_installed()
        async with open_store(source, read_only=True) as store:
            return [await _search_session(store, session, installed) for session in ids]

    return asyncio.run(search())


async def _search_session(
    store: RunStore, session_id: str, installed: Sequence[OwnBehaviour]
) -> SearchedSession:
    try:
        session = await store.session(session_id)
        if session is None:
            return SearchedSession(session_id, b"")
        findings = find_behaviours(session, least=POSSIBLE, custom=installed)
    except BactrianError:
        return SearchedSession(session_id, b"")  # A damaged session is shown as such when it is opened.
    return SearchedSession(session_id, pack_evidence(session, findings), has_instructor(session))


def pack_evidence(session: Session, findings: Sequence[Finding]) -> bytes:
    """Return findings, and the state of the session that they were found in, as the index keeps them."""
    described = [(finding.turn, finding.behaviour, finding.confidence, finding.quote) for finding in findings]
    return zlib.compress(json.dumps([*_describe_state(session), described]).encode(), 1)


def unpack_evidence(session: str, packed: bytes) -> tuple[list[str | int], tuple[Finding, ...]]:
    """Return the state and the findings of a session as they were packed; neither if they cannot be read.

    The reasons of findings are not kept.
    """
    try:
        content: list[Any] = json.loads(zlib.decompress(packed))
    except (zlib.error, ValueError):
        return [], ()
    *state, described = content
    return state, tuple(Finding(session, *stored) for stored in described)


def _describe_state(session: Session) -> list[str | int]:
    """Return what the findings depend on that may still change."""
    return [len(session.turns), session.ending.code if session.ending else UNFINISHED]


def read_evidence(index: sqlite3.Connection, row: int, session: Session) -> tuple[Finding, ...] | None:
    """Return the findings of ``session``; None if the index does not know them, or knows those of an earlier state."""
    stored = index.execute("SELECT packed FROM evidence WHERE row = ?", (row,)).fetchone()
    state, findings = unpack_evidence(session.id, stored[0] if stored else b"")
    return findings if state == _describe_state(session) else None


def describe_detectors() -> str:
    """Return a text that changes with the detectors, so that behaviours are searched for again."""
    return f"{__version__} {' '.join(f'{custom.code}:{custom.description}' for custom in find_installed())}"


@dataclass(frozen=True, slots=True)
class KnownSession:
    """What is known about a conversation beside its texts."""

    # What detectors found, with the candidates, and also what readers rejected.
    findings: tuple[Finding, ...]
    # What readers say of findings.
    confirmations: tuple[Confirmation, ...]
    # Its row in the index; None if it is not there yet.
    row: int | None
    created: float
    # Tokens and US dollars that were paid for it; 0 and -1 while they are not known.
    tokens: int
    cost: float

    @property
    def answers(self) -> Mapping[FindingKey, bool]:
        """What readers say of findings, if they say anything."""
        return merge_answers(self.confirmations)

    @property
    def counted(self) -> int:
        """Findings that count: those that nobody rejected, and the candidates that a reader confirmed."""
        answers = self.answers
        return sum(is_counted(finding, answers) for finding in self.findings)


def is_counted(finding: Finding, answers: Mapping[FindingKey, bool]) -> bool:
    """Return whether a finding counts: as readers say, and as its detector says where they say nothing."""
    return answers.get(finding.key, finding.confidence >= LIKELY)


def read_known(
    index: sqlite3.Connection, session: Session, confirmations: Sequence[Confirmation] = ()
) -> KnownSession:
    """Return what the index, opened for one run, knows about ``session``.

    Its behaviours are detected now if the index does not know them, as for a conversation that is being written.
    """
    query = "SELECT row, created, tokens, cost FROM heads JOIN facts USING (row) WHERE id = ?"
    row, created, tokens, cost = index.execute(query, (session.id,)).fetchone() or (None, 0.0, 0, -1.0)
    findings = None if row is None else read_evidence(index, row, session)
    found = find_behaviours(session, least=POSSIBLE) if findings is None else findings
    return KnownSession(found, tuple(confirmations), row, created, tokens, cost)
