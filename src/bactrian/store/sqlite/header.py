"""The header of a run's file: whether a file is a run, without SQLAlchemy, which takes long to import."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from bactrian.files.sqlite_header import SQLITE_HEADER

APPLICATION_ID = 0x42616374
"""Identifies our files in the header: the letters ``Bact``."""


def is_run(path: Path) -> bool:
    """Return True if the file at ``path`` is a run, as far as its first 100 bytes tell."""
    try:
        return path.is_file() and read_number(path, "application_id", 68) == APPLICATION_ID
    except OSError:
        return False


def read_number(path: Path, name: str, offset: int) -> int:
    """Return a number of the header, without the log: that at ``offset``, which is called ``name``. 0 if not found.

    It is read by SQLite where possible. Where a file is closed that was not opened by SQLite, the process loses its
    locks on it, and other connections of the process would not see what other processes write.
    """
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(make_uri(path, immutable=True), uri=True)) as header,
    ):
        return header.execute(f"PRAGMA {name}").fetchone()[0]
    with path.open("rb") as file:
        content = file.read(100)
    return int.from_bytes(content[offset : offset + 4], "big") if content.startswith(SQLITE_HEADER) else 0


def make_uri(path: Path, *, immutable: bool) -> str:
    """Return the address of the file at ``path`` for reading; ``immutable`` if no log is to be looked for."""
    return f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if immutable else ''}"
