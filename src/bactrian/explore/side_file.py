"""The side file ``RUN.explore``: what lists, filters and searches read, so that the run itself stays as it is."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from bactrian.models.budget import Price

# A side file of another version is built again.
VERSION = 3
SUFFIX = ".explore"
# How the state of a complete import begins.
IMPORT_DONE = "Imported"
# Coordinates of points are whole numbers from 0 to this.
MAP_WIDTH = 10_000
_PAGE = 16_384
_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE tasks (no INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
-- Narrow, so that a count over all sessions reads little. text_turns and seen_turns: how many turns are in the
-- full-text index, and were searched for behaviours. In these, and in cost and findings, -1 means not known yet.
CREATE TABLE facts (
    row INTEGER PRIMARY KEY, assistant TEXT NOT NULL, user TEXT NOT NULL, task INTEGER NOT NULL, language TEXT,
    kind TEXT NOT NULL, ending TEXT NOT NULL, turns INTEGER NOT NULL, tokens INTEGER NOT NULL DEFAULT 0,
    cost REAL NOT NULL DEFAULT -1, findings INTEGER NOT NULL DEFAULT -1, mark TEXT, final INTEGER NOT NULL,
    text_turns INTEGER NOT NULL DEFAULT -1, seen_turns INTEGER NOT NULL DEFAULT -1
);
CREATE TABLE heads (row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, task TEXT NOT NULL, created REAL NOT NULL);
CREATE TABLE shown (behaviour TEXT, row INTEGER, turn INTEGER, PRIMARY KEY (behaviour, row, turn)) WITHOUT ROWID;
CREATE INDEX shown_row ON shown (row);
CREATE TABLE evidence (row INTEGER PRIMARY KEY, packed BLOB NOT NULL);
CREATE TABLE marks (mark TEXT, row INTEGER, note TEXT, PRIMARY KEY (mark, row)) WITHOUT ROWID;
CREATE TABLE maps (what TEXT PRIMARY KEY, progress TEXT NOT NULL, topics TEXT) WITHOUT ROWID;
CREATE TABLE points (
    what TEXT, row INTEGER, x INTEGER NOT NULL, y INTEGER NOT NULL, topic INTEGER NOT NULL, PRIMARY KEY (what, row)
) WITHOUT ROWID;
CREATE INDEX facts_ending ON facts (ending);
CREATE INDEX facts_roles ON facts (assistant, user, ending);
CREATE INDEX facts_user ON facts (user);
CREATE INDEX facts_task ON facts (task);
CREATE INDEX facts_language ON facts (language);
CREATE INDEX facts_turns ON facts (turns);
CREATE INDEX facts_findings ON facts (findings);
CREATE INDEX facts_cost ON facts (cost);
CREATE INDEX facts_open ON facts (row) WHERE final = 0;
CREATE INDEX facts_unread ON facts (row) WHERE text_turns <> turns;
CREATE INDEX facts_unseen ON facts (row) WHERE seen_turns <> turns;
CREATE VIRTUAL TABLE words USING fts5(task, talk, content='', tokenize='unicode61 remove_diacritics 2');
"""


class TooSlow(Exception):
    """A query took longer than its limit."""


def find_side_file(run: Path) -> Path:
    """Return the path of the side file of ``run``."""
    return run.with_name(run.name + SUFFIX)


def open_for_building(path: Path, identity: str) -> sqlite3.Connection:
    """Open the side file for writing; build its tables if it is new, of another version or of another run.

    Args:
        path: The side file.
        identity: Something that differs between runs.
    """
    if not _fits(path, identity):
        _create(path, identity)
    connection = sqlite3.connect(path, timeout=30)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def _fits(path: Path, identity: str) -> bool:
    try:
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=30)
        ) as connection:
            meta = read_meta(connection)
    except sqlite3.DatabaseError:  # It does not exist, or is damaged.
        return False
    return (meta.get("version"), meta.get("identity")) == (VERSION, identity)


def _create(path: Path, identity: str) -> None:
    """Create an empty side file, which appears whole."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with closing(sqlite3.connect(new)) as connection, connection:
        connection.execute(f"PRAGMA page_size = {_PAGE}")
        connection.executescript(f"BEGIN; {_SCHEMA}")
        connection.executemany(
            "INSERT INTO meta VALUES (?, ?)", [("version", VERSION), ("identity", identity)]
        )
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    new.rename(path)


def read_meta(connection: sqlite3.Connection) -> dict[str, Any]:
    """Return what the side file says about itself; nothing if it is new."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone() is None:
        return {}
    return dict(connection.execute("SELECT key, value FROM meta").fetchall())


def write_meta(connection: sqlite3.Connection, values: Mapping[str, Any]) -> None:
    """Store ``values``, where they differ from what is stored."""
    have = read_meta(connection)
    if changed := [(key, value) for key, value in values.items() if have.get(key) != value]:
        with connection:
            connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", changed)


def read_prices(connection: sqlite3.Connection) -> dict[str, Price]:
    """Return the prices that the index looked up, by model: the table of all prices takes 70 MB in memory."""
    stored: Mapping[str, list[float] | None] = json.loads(read_meta(connection).get("prices", "{}"))
    return {name: Price(*values) for name, values in stored.items() if values is not None}


def write_prices(connection: sqlite3.Connection, prices: Mapping[str, Price | None]) -> None:
    """Store the prices that were looked up; None for a model without one."""
    values = {
        name: price and [price.prompt, price.completion, price.cached] for name, price in prices.items()
    }
    write_meta(connection, {"prices": json.dumps(values)})


def is_inside(x: int, y: int, corners: str) -> bool:
    """Return True if a point lies in the polygon ``x,y;x,y;…`` (even-odd rule)."""
    inside = False
    polygon = read_polygon(corners)
    for (ax, ay), (bx, by) in zip(polygon, (*polygon[1:], polygon[0]), strict=True):
        if (ay > y) != (by > y) and x < (bx - ax) * (y - ay) / (by - ay) + ax:
            inside = not inside
    return inside


@lru_cache(maxsize=16)
def read_polygon(corners: str) -> tuple[tuple[float, float], ...]:
    """Return the corners of a polygon; raise ValueError if there are fewer than three."""
    points = tuple((float(x), float(y)) for x, y in (corner.split(",") for corner in corners.split(";")))
    if len(points) < 3 or not all(abs(value) < 1e6 for point in points for value in point):
        raise ValueError(corners)
    return points


@contextmanager
def read_side_file(path: Path, *, seconds: float = 5.0) -> Generator[sqlite3.Connection]:
    """Open the side file for reading. A query that runs longer than ``seconds`` is stopped.

    Raises:
        TooSlow: a query ran too long.
        sqlite3.OperationalError: the file does not exist yet.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro"
    deadline = time.monotonic() + seconds
    with closing(sqlite3.connect(uri, uri=True, timeout=5, check_same_thread=False)) as connection:
        connection.execute("PRAGMA cache_size = -8000")
        connection.create_function("inside", 3, is_inside, deterministic=True)
        connection.set_progress_handler(lambda: time.monotonic() > deadline, 20_000)
        try:
            yield connection
        except sqlite3.OperationalError as error:
            if "interrupted" in str(error):
                raise TooSlow from error
            raise


def read_signature(run: Path) -> str:
    """Return something that differs after each write to ``run``; the index keeps that of the run it was made from."""
    parts: list[str] = []
    for name in (run, run.with_name(run.name + "-wal")):
        try:
            status = name.stat()
        except OSError:
            continue
        parts.append(f"{status.st_mtime_ns} {status.st_size} {status.st_ino}")
    return " ".join(parts)
