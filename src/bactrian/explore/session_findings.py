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
from bactrian.errors import BactrianError
from bactrian.explore.library_index import read_prices
from bactrian.models.budget import Price
from bactrian.records.run import Finding
from bactrian.records.session import UNFINISHED, Session
from bactrian.store import RunStore, open_store


@dataclass(frozen=True, slots=True)
class SearchedSession:
    """A conversation that was searched for behaviours."""

    id: str
    # Each behaviour with the number of the turn.
    shown: tuple[tuple[str, int], ...]
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
            return SearchedSession(session_id, (), b"")
        findings = find_behaviours(session, custom=installed)
    except BactrianError:
        return SearchedSession(session_id, (), b"")  # A damaged session is shown as such when it is opened.
    shown = dict.fromkeys((finding.behaviour, finding.turn) for finding in findings)
    return SearchedSession(
        session_id, tuple(shown), pack_evidence(session, findings), has_instructor(session)
    )


def pack_evidence(session: Session, findings: Sequence[Finding]) -> bytes:
    """Return findings, and the state of the session that they were found in, as the index keeps them."""
    described = [(finding.turn, finding.behaviour, finding.quote) for finding in findings]
    return zlib.compress(json.dumps([*_describe_state(session), described]).encode(), 1)


def _describe_state(session: Session) -> list[str | int]:
    """Return what the findings depend on that may still change."""
    return [len(session.turns), session.ending.code if session.ending else UNFINISHED]


def read_evidence(index: sqlite3.Connection, row: int, session: Session) -> tuple[Finding, ...] | None:
    """Return the findings of ``session``; None if the index does not know them, or knows those of an earlier state.

    Their confidence and reasons are not kept.
    """
    stored = index.execute("SELECT packed FROM evidence WHERE row = ?", (row,)).fetchone()
    if stored is None or not stored[0]:
        return None
    try:
        content: list[Any] = json.loads(zlib.decompress(stored[0]))
    except (zlib.error, ValueError):
        return None
    *state, described = content
    if state != _describe_state(session):
        return None
    return tuple(Finding(session.id, turn, behaviour, 1.0, quote) for turn, behaviour, quote in described)


def describe_detectors() -> str:
    """Return a text that changes with the detectors, so that behaviours are searched for again."""
    return f"{__version__} {' '.join(f'{custom.code}:{custom.description}' for custom in find_installed())}"


@dataclass(frozen=True, slots=True)
class KnownSession:
    """What the index knows about a conversation."""

    findings: tuple[Finding, ...]
    # Its row in the index; None if it is not there yet.
    row: int | None
    created: float
    # Tokens and US dollars that were paid for it; 0 and -1 while they are not known.
    tokens: int
    cost: float
    # By name of the model.
    prices: Mapping[str, Price]


def read_known(index: sqlite3.Connection, session: Session) -> KnownSession:
    """Return what the index, opened for one run, knows about ``session``.

    Its behaviours are detected now if the index does not know them, as for a conversation that is being written.
    """
    query = "SELECT row, created, tokens, cost FROM heads JOIN facts USING (row) WHERE id = ?"
    row, created, tokens, cost = index.execute(query, (session.id,)).fetchone() or (None, 0.0, 0, -1.0)
    findings = None if row is None else read_evidence(index, row, session)
    prices = read_prices(index)
    found = find_behaviours(session) if findings is None else findings
    return KnownSession(found, row, created, tokens, cost, prices)
