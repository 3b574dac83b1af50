"""The behaviours of conversations as the side file keeps them: where they show, and the words that show them."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bactrian._version import __version__
from bactrian.analyze.behaviours.catalogue import find_behaviours
from bactrian.analyze.behaviours.own import OwnBehaviour, find_installed
from bactrian.analyze.session_summary import UNFINISHED
from bactrian.errors import BactrianError
from bactrian.records.finding import Finding
from bactrian.records.session import Session
from bactrian.store import RunReader, open_store


@dataclass(frozen=True, slots=True)
class SearchedSession:
    """A conversation that was searched for behaviours."""

    id: str
    shown: tuple[tuple[str, int], ...]
    """Each behaviour with the number of the turn."""
    evidence: bytes
    """The findings and what they were found in, packed; empty for a conversation that cannot be read."""


def search_sessions(source: Path, ids: Sequence[str]) -> list[SearchedSession]:
    """Search the conversations ``ids`` of the run at ``source`` for behaviours."""
    return asyncio.run(_search(source, ids, find_installed()))


async def _search(source: Path, ids: Sequence[str], own: Sequence[OwnBehaviour]) -> list[SearchedSession]:
    async with open_store(source, read_only=True) as store:
        return [await _search_one(store, session, own) for session in ids]


async def _search_one(store: RunReader, session_id: str, own: Sequence[OwnBehaviour]) -> SearchedSession:
    try:
        session = await store.session(session_id)
        if session is None:
            return SearchedSession(session_id, (), b"")
        findings = find_behaviours(session, own=own)
    except BactrianError:
        return SearchedSession(session_id, (), b"")  # A damaged session is shown as such when it is opened.
    shown = dict.fromkeys((one.behaviour, one.turn) for one in findings)
    return SearchedSession(session_id, tuple(shown), pack_evidence(session, findings))


def pack_evidence(session: Session, findings: Sequence[Finding]) -> bytes:
    """Return findings, and the state of the session that they were found in, as the side file keeps them."""
    described = [(one.turn, one.behaviour, one.quote) for one in findings]
    return zlib.compress(json.dumps([*_describe(session), described]).encode(), 1)


def _describe(session: Session) -> list[str | int]:
    """Return what the findings depend on that may still change."""
    return [len(session.turns), session.ending.code if session.ending else UNFINISHED]


def read_evidence(side: sqlite3.Connection, row: int, session: Session) -> tuple[Finding, ...] | None:
    """Return the findings of ``session``; None if the side file does not know them, or knows those of an earlier state.

    Their confidence and reasons are not kept.
    """
    found = side.execute("SELECT packed FROM evidence WHERE row = ?", (row,)).fetchone()
    if found is None or not found[0]:
        return None
    try:
        *state, described = json.loads(zlib.decompress(found[0]))
    except (zlib.error, ValueError):
        return None
    if state != _describe(session):
        return None
    return tuple(Finding(session.id, turn, behaviour, 1.0, quote) for turn, behaviour, quote in described)


def describe_detectors() -> str:
    """Return something that changes with the detectors; the behaviours are then searched for again."""
    return f"{__version__} {' '.join(f'{one.code}:{one.description}' for one in find_installed())}"
