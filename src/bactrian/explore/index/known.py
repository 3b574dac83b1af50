"""What the side file knows about one conversation: findings, row, prices."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bactrian.explore.index.evidence import read_evidence
from bactrian.explore.index.side import read_meta, read_side_file
from bactrian.models.wrappers.budget import Price
from bactrian.records.finding import Finding
from bactrian.records.session import Session


@dataclass(frozen=True, slots=True)
class KnownSession:
    """A conversation's findings, row and prices."""

    findings: tuple[Finding, ...]
    row: int | None = None
    """Its number in the side file; None if it is not there yet."""
    created: float = 0.0
    prices: Mapping[str, Price] = field(default_factory=dict[str, Price])
    """By name of the model."""


def read_known(path: Path, session: Session) -> KnownSession:
    """Return what the side file at ``path`` knows about ``session``.

    Its behaviours are detected now if the file does not know them, as for a conversation that is being written.
    """
    if not path.exists():  # The data set is new.
        return KnownSession(detect_now(session))
    with read_side_file(path) as side:
        found = side.execute("SELECT row, created FROM heads WHERE id = ?", (session.id,)).fetchone()
        if found is None:
            return KnownSession(detect_now(session))
        row, created = found
        findings = read_evidence(side, row, session)
        prices = _read_prices(side)
    return KnownSession(detect_now(session) if findings is None else findings, row, created, prices)


def read_findings(path: Path, session: Session) -> tuple[Finding, ...]:
    """Return the findings of ``session``, from the side file at ``path`` if it knows them."""
    return read_known(path, session).findings


def detect_now(session: Session) -> tuple[Finding, ...]:
    """Return the findings of ``session``. The detectors are imported at the first use: they take 7 MB."""
    from bactrian.analyze.behaviours.catalogue import find_behaviours

    return find_behaviours(session)


def _read_prices(side: sqlite3.Connection) -> dict[str, Price]:
    """Return the prices that the index looked up: the table of all prices takes 70 MB in memory."""
    stored: Mapping[str, list[float] | None] = json.loads(read_meta(side).get("prices", "{}"))
    return {name: Price(*values) for name, values in stored.items() if values is not None}
