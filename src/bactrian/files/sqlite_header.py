"""Recognition of SQLite databases by their first bytes."""

from __future__ import annotations

from pathlib import Path

SQLITE_HEADER = b"SQLite format 3\0"


def is_sqlite_file(path: Path) -> bool:
    """Return True if the file at ``path`` is a database of SQLite. Raises OSError if it cannot be read."""
    with path.open("rb") as file:
        return file.read(len(SQLITE_HEADER)) == SQLITE_HEADER
