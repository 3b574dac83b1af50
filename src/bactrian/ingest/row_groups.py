"""Groups of rows in a temporary file, so that a file of any size is read with little memory."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from types import TracebackType

from bactrian.errors import StoreError
from bactrian.ingest.parsed import Row

_CACHE_KIB = 16 * 1024
Key = tuple[str, ...]


class RowGroups:
    """Collects rows by a key. Iterating yields each key and its rows, in the order in which the keys came first.

    A key has at most ``most`` rows at a time; further ones are a group of their own.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._database: sqlite3.Connection | None = None

    def __enter__(self) -> RowGroups:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._database is not None:
            self._database.close()

    def add(self, key: Key, row: Row) -> None:
        """Add a row to the group of ``key``.

        Raises:
            StoreError: there is no room for temporary files.
        """
        text = json.dumps(key)
        try:
            database = self._database or self._open()
            database.execute("INSERT OR IGNORE INTO keys (text) VALUES (?)", (text,))
            database.execute(
                "INSERT INTO rows (key, name, content, folders)"
                " VALUES ((SELECT id FROM keys WHERE text = ?), ?, ?, ?)",
                (text, json.dumps(row.name), json.dumps(row.content), json.dumps(row.folders)),
            )
        except sqlite3.Error as error:
            raise StoreError(
                f"The rows do not fit into the folder for temporary files: {error}.",
                next="Free some space, or set TMPDIR to a folder with more, then import again.",
            ) from error

    def __iter__(self) -> Iterator[tuple[Key, list[Row]]]:
        if self._database is None:
            return
        rows = self._database.execute(
            "SELECT keys.id, text, name, content, folders FROM rows JOIN keys ON keys.id = rows.key"
            " ORDER BY keys.id, rows.id"
        )
        group: list[Row] = []
        last, text = 0, ""
        for number, key, name, content, folders in rows:
            if group and (number != last or len(group) == self._most):
                yield tuple(json.loads(text)), group
                group = []
            last, text = number, key
            group.append(Row(json.loads(name), json.loads(content), tuple(json.loads(folders))))
        if group:
            yield tuple(json.loads(text)), group

    def _open(self) -> sqlite3.Connection:
        # An empty name is a database in a temporary file, which SQLite deletes when it is closed.
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute("CREATE TABLE keys (id INTEGER PRIMARY KEY, text TEXT UNIQUE)")
        self._database.execute(
            "CREATE TABLE rows (id INTEGER PRIMARY KEY, key INTEGER, name TEXT, content TEXT, folders TEXT)"
        )
        self._database.execute("CREATE INDEX by_key ON rows (key, id)")
        self._database.execute("BEGIN")
        return self._database
