"""The index of the explorer: one file for all runs that a user looks at, from which lists, filters and searches read.

The runs themselves stay as they are. A row of a table is the number of the run, times 2**32, plus the row of the
session in its run: so a page of a list over several runs is one query, whatever the file knows of other runs.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from filelock import FileLock
from platformdirs import user_cache_path

from bactrian.errors import InputError
from bactrian.store import RunStore

# How the state of a complete import begins.
IMPORT_DONE = "Imported"
# Part of the name of the file: another version of this program has a file of its own, so that the two can run at once.
_VERSION = 12
SEVERAL = " × "  # Between the roles of a conversation
# Restricts a row to the runs for which the index is open, and those between them.
WITHIN = "BETWEEN (SELECT low FROM bounds) AND (SELECT high FROM bounds)"
_TABLES = ("meta", "facts", "heads", "shown", "evidence", "answers", "marks", "traits", "points")


class TooSlow(Exception):
    """A query took longer than its limit."""


def prepare_index(beside: Path = Path("library")) -> Path:
    """Return the index, with its tables: in the user's cache, or else beside the run ``beside``.

    Raises:
        InputError: neither folder can be written.
    """
    folder, name = user_cache_path("bactrian") / "explore", f"index-{_VERSION}.db"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        folder, name = beside.absolute().parent, f"{beside.name}.explore"
    path = folder / name
    with _explain_failure(path), FileLock(f"{path}.lock"):
        try:
            _create_tables(path)
        except sqlite3.OperationalError:
            raise  # The disk is full, or something else that is no fault of the file.
        except sqlite3.DatabaseError:
            # It is damaged. Everything in it can be made again.
            for suffix in ("", "-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            _create_tables(path)
    return path


@contextmanager
def _explain_failure(path: Path) -> Generator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise InputError(
            f"The index of the explorer cannot be written: {error}.",
            where=str(path),
            next="Make room on its disk, or set XDG_CACHE_HOME to a folder that can be written.",
        ) from error


def _create_tables(path: Path) -> None:
    # For its user alone: runs of folders that nobody else may read are in it, too.
    path.touch(0o600)
    with closing(sqlite3.connect(path, timeout=30)) as connection:
        connection.executescript(files("bactrian.explore").joinpath("index.sql").read_text("utf-8"))


async def identify_run(store: RunStore) -> str:
    """Return something that differs between runs: the file, and its first session."""
    first = await store.outlines(limit=1)
    return f"{store.path.name} {first[0].id} {first[0].created}" if first else ""


def register_run(index: Path, run: Path, identity: str) -> int:
    """Return the number of ``run`` in the index; a new one if it was not there, or another run was in its place.

    Runs whose files are gone are forgotten.

    Args:
        index: The index.
        run: The run.
        identity: What :func:`identify_run` returns.

    Raises:
        InputError: the index cannot be written.
    """
    name = os.fsencode(run.resolve())
    query = (
        "SELECT number, path, value FROM runs LEFT JOIN main.meta ON row = number << 32 AND key = 'identity'"
    )
    with _explain_failure(index), write_index(index, ()) as connection, connection:
        connection.execute("BEGIN IMMEDIATE")
        runs: list[tuple[int, bytes, str]] = connection.execute(query).fetchall()
        known = next((number for number, *stored in runs if stored == [name, identity]), None)
        gone = [
            (number,)
            for number, path, _ in runs
            if number != known and (path == name or not Path(os.fsdecode(path)).exists())
        ]
        if gone:
            connection.executemany("DELETE FROM runs WHERE number = ?", gone)
            _forget_runs(connection)
        connection.execute("DELETE FROM main.meta WHERE key = 'problem' AND row >> 32 = ?", (known,))
        if known is None:
            known = connection.execute("INSERT INTO runs (path) VALUES (?)", (name,)).lastrowid or 0
            connection.execute("INSERT INTO main.meta VALUES (?, 'identity', ?)", (known << 32, identity))
    return known


def _forget_runs(connection: sqlite3.Connection) -> None:
    for table in _TABLES:
        connection.execute(f"DELETE FROM main.{table} WHERE row >> 32 NOT IN (SELECT number FROM runs)")  # noqa: S608
    connection.execute("DELETE FROM tasks WHERE no NOT IN (SELECT task FROM main.facts)")
    # An index without content forgets a text only if it is told the text, which is gone with the run. What is left is
    # not found, as its rows are in no run; once it is most of the index, the texts of all runs are read again.
    query = (
        "SELECT (SELECT count(*) FROM words_docsize), (SELECT count(*) FROM main.facts WHERE text_turns > 0)"
    )
    stored, used = connection.execute(query).fetchone()
    if stored > 2 * used:
        connection.execute("INSERT INTO words (words) VALUES ('delete-all')")
        connection.execute("UPDATE main.facts SET text_turns = -1")


@contextmanager
def read_index(path: Path, runs: Iterable[int], *, seconds: float = 5.0) -> Generator[sqlite3.Connection]:
    """Open the index for reading, as if it knew ``runs`` only. A query longer than ``seconds`` is stopped.

    Raises:
        TooSlow: a query ran too long.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro"
    deadline = time.monotonic() + seconds
    with closing(sqlite3.connect(uri, uri=True, timeout=5, check_same_thread=False)) as connection:
        connection.execute("PRAGMA cache_size = -8000")
        _hide_other_runs(connection, runs)
        connection.create_function("inside", 3, is_inside, deterministic=True)
        connection.set_progress_handler(lambda: time.monotonic() > deadline, 20_000)
        try:
            yield connection
        except sqlite3.OperationalError as error:
            if "interrupted" in str(error):
                raise TooSlow from error
            raise


@contextmanager
def write_index(path: Path, runs: Iterable[int]) -> Generator[sqlite3.Connection]:
    """Open the index for writing. Its tables, without ``main.``, are read as if it knew ``runs`` only."""
    # Another process may write for seconds: a large run is being forgotten.
    with closing(sqlite3.connect(path, timeout=60)) as connection:
        connection.execute("PRAGMA synchronous = NORMAL")
        _hide_other_runs(connection, runs)
        yield connection


def _hide_other_runs(connection: sqlite3.Connection, runs: Iterable[int]) -> None:
    """Put views before the tables, under their names, so that no query has to think of other runs."""
    numbers = sorted(runs)
    listed = ", ".join(map(str, numbers))
    for table in _TABLES:
        connection.execute(
            f"CREATE TEMP VIEW {table} AS SELECT * FROM main.{table} WHERE row >> 32 IN ({listed})"  # noqa: S608
        )
    # For the full-text index, before which no view can be put, and for lists by row: where the runs begin and end.
    low, high = (numbers[0] << 32, (numbers[-1] + 1 << 32) - 1) if numbers else (0, -1)
    connection.execute(f"CREATE TEMP VIEW bounds AS SELECT {low} AS low, {high} AS high")


def read_meta(connection: sqlite3.Connection) -> dict[str, Any]:
    """Return what the index says about the run that it was opened for."""
    return dict(connection.execute("SELECT key, value FROM meta").fetchall())


def write_meta(connection: sqlite3.Connection, run: int, values: Mapping[str, Any]) -> None:
    """Store ``values`` about a run, where they differ from what is stored."""
    have = read_meta(connection)
    if changed := [(run << 32, key, value) for key, value in values.items() if have.get(key) != value]:
        with connection:
            connection.executemany("INSERT OR REPLACE INTO main.meta VALUES (?, ?, ?)", changed)


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
