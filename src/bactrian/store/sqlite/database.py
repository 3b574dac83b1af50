"""SQLite connections: settings, file header, write-ahead log and errors."""

from __future__ import annotations

import errno
import sqlite3
import tempfile
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import Engine, QueuePool, create_engine, event
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from bactrian.errors import BactrianError, InputError, StoreError
from bactrian.files.sqlite_header import SQLITE_HEADER
from bactrian.store.sqlite.filesystem import count_free_bytes, find_holder, is_writable
from bactrian.store.sqlite.header import APPLICATION_ID, make_uri, read_number

IS_OPEN = 1
"""User version in the header while the run is open: the latest data may be only in the log."""
_BUSY_SECONDS = 30.0
_FOREVER = 86_400.0
_PAGE = 16_384
"""Page size: minimum growth of the file and its log, in bytes."""
_LOG_INDEX = 32 * 1024
"""Size in bytes of the smallest index of a log, the ``-shm``, which a reader creates if it is missing."""


def check_file(path: Path, *, create: bool) -> None:
    """Check the file before it is opened.

    Raises:
        InputError: the file is not a run, or no run can be created there.
    """
    where = str(path)
    try:
        path.stat()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        if not isinstance(error, (FileNotFoundError, NotADirectoryError, PermissionError)):
            reason = error.strerror if isinstance(error, OSError) else error
            raise InputError(
                f"This path cannot be a run: {reason}.", where=where, next="Check the path."
            ) from error
    if path.is_dir():
        raise InputError(
            "This is a folder.", where=where, next="Give the path of a file, such as run.db in it."
        )
    if not path.exists():
        _check_folder(path, create=create)
        return
    try:
        if read_number(path, "application_id", 68) == APPLICATION_ID:
            return
        with path.open("rb") as file:
            header = file.read(100)
    except OSError as error:
        raise InputError(f"The run cannot be read: {error.strerror}.", where=where) from error
    if len(header) < 100 or not header.startswith(SQLITE_HEADER):
        raise InputError(
            "This file is not a run.",
            where=where,
            next="Give another file; this one is as it was. Chats that others made: `bactrian import`.",
        )
    raise InputError(
        "This is a database of another program.",
        where=where,
        next="Give another file; this one is as it was. Chats that others made: `bactrian import`.",
    )


def _check_folder(path: Path, *, create: bool) -> None:
    folder = path.absolute().parent
    if not create:
        raise InputError(
            "There is no such run.", where=str(path), next="Check the path; `bactrian runs` lists the runs."
        )
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}.", where=str(path), next="Create it first.")
    if not is_writable(folder):
        raise InputError(
            "The folder cannot be written.", where=str(folder), next="Choose another place for --run."
        )


def open_new(path: Path) -> sqlite3.Connection:
    """Open a new file that is renamed when complete, and so needs neither log nor rollback."""
    with _close_on_failure(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {_PAGE}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = FULL")
        return connection


def open_for_writing(path: Path, *, wait: float = _BUSY_SECONDS) -> sqlite3.Connection:
    """Open the writing connection. It waits up to ``wait`` seconds for locks of other processes."""
    opened = sqlite3.connect(path, timeout=wait, check_same_thread=False, isolation_level=None)
    with _close_on_failure(opened) as connection:
        connection.execute(f"PRAGMA page_size = {_PAGE}")
        if not connection.execute("PRAGMA application_id").fetchone()[0]:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        return connection


@contextmanager
def _close_on_failure(connection: sqlite3.Connection) -> Generator[sqlite3.Connection]:
    try:
        yield connection
    except BaseException:
        connection.close()
        raise


@contextmanager
def begin_transaction(connection: sqlite3.Connection) -> Generator[None]:
    """Make one transaction of the writing connection: all of it is written, or nothing."""
    with connection:
        # A deferred transaction that reads first may fail on its first write; an immediate one waits.
        connection.execute("BEGIN IMMEDIATE")
        yield


def connect_for_reading(path: Path) -> sqlite3.Connection:
    """Open a read-only connection."""
    return sqlite3.connect(_make_reading_uri(path), uri=True, timeout=_BUSY_SECONDS, check_same_thread=False)


def open_for_reading(path: Path) -> Engine:
    """Create an engine for read-only connections, each with a consistent state of the run."""
    # SQLAlchemy's default pool for a URL without a file closes connections that other threads still use.
    return create_engine(
        "sqlite://", creator=lambda: connect_for_reading(path), poolclass=QueuePool, max_overflow=-1
    )


def close_engine(engine: Engine) -> None:
    """Close the connections of ``engine``: idle ones now, and those of cancelled reads when their threads end."""
    # SQLAlchemy would keep the latter in a pool that nobody uses, open until they are collected.
    event.listen(engine.pool, "checkin", _close_connection)
    engine.dispose()


def _close_connection(connection: object, record: ConnectionPoolEntry) -> None:  # noqa: ARG001
    record.close()


def _make_reading_uri(path: Path) -> str:
    """Return the address of the run for reading.

    SQLite creates a file beside a run with a write-ahead log, unless it is told that nobody can write there.
    """
    return make_uri(path, immutable=not (has_log(path) or can_read_log(path)))


class _Snapshot(sqlite3.Connection):
    def rollback(self) -> None:
        """Do nothing: SQLAlchemy would end the transaction after each query; closing ends it."""


def open_snapshot(path: Path) -> Engine:
    """Create an engine that reads the run as of the first connection, which all threads share."""

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            _make_reading_uri(path),
            uri=True,
            timeout=_BUSY_SECONDS,
            check_same_thread=False,
            isolation_level=None,
            factory=_Snapshot,
        )
        connection.execute("BEGIN")
        connection.execute(
            "SELECT count(*) FROM sqlite_master"
        ).fetchone()  # the first read fixes the snapshot
        return connection

    return create_engine(
        "sqlite://", creator=connect, poolclass=QueuePool, pool_size=1, max_overflow=0, pool_timeout=_FOREVER
    )


def mark_open(connection: sqlite3.Connection) -> None:
    """Mark the run as open in the file itself, not only in its log."""
    _mark(connection, IS_OPEN, "PRAGMA wal_checkpoint")


def mark_closed(connection: sqlite3.Connection) -> None:
    """Mark the run as closed."""
    if not _mark(connection, 0):  # the disk is full: an empty log has room for it
        _mark(connection, 0, before="PRAGMA wal_checkpoint(TRUNCATE)")


def _mark(connection: sqlite3.Connection, mark: int, then: str = "", *, before: str = "") -> bool:
    """Set the mark; return False on failure, with mark and log unchanged."""
    try:
        connection.execute(before)
        connection.execute(f"PRAGMA user_version = {mark}")
        connection.execute(then)
    except sqlite3.Error:
        return False
    return True


def find_log(path: Path) -> Path:
    """Return the write-ahead log of the database at ``path``."""
    return path.with_name(f"{path.name}-wal")


def find_journal(path: Path) -> Path:
    """Return the rollback journal of the database at ``path``, which is there only after a kill."""
    return path.with_name(f"{path.name}-journal")


def has_journal(path: Path) -> bool:
    """Return True if a transaction was not finished and has to be rolled back."""
    return _measure(find_journal(path)) > 0


def has_log(path: Path) -> bool:
    """Return True if there is data in the write-ahead log; readers create an empty one."""
    return _measure(find_log(path)) > 0


def can_read_log(path: Path) -> bool:
    """Return True if a reader finds the index of the log beside the run, or has the room to create it there."""
    folder = path.absolute().parent
    if not is_writable(folder):
        return False
    has_index = _measure(path.with_name(f"{path.name}-shm")) >= _LOG_INDEX
    return has_index or count_free_bytes(path) >= _LOG_INDEX


def _measure(file: Path) -> int:
    """Return the bytes of ``file``; 0 if it is missing. A process that closes the run may delete it at any moment."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def log_is_missing(path: Path) -> bool:
    """Return True if the run was not closed and its log, with the latest data, is missing.

    This happens if the log was deleted, or the run was copied without it.
    """
    return read_number(path, "user_version", 60) == IS_OPEN and not has_log(path)


def back_up(path: Path, version: int) -> Path:
    """Copy the run to a file beside it before the migration; return the path of the copy."""
    copy = path.with_name(f"{path.name}.v{version}.backup")
    if not copy.exists():
        part = copy.with_name(f".{copy.name}.part")
        part.unlink(missing_ok=True)
        try:
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("VACUUM INTO ?", (str(part),))
            part.rename(copy)
        finally:
            part.unlink(missing_ok=True)
    return copy


def explain_error(error: BaseException, path: Path, *, needed: int = 0) -> BactrianError:
    """Convert an error of the database to one of ours. ``needed`` is the number of bytes to write."""
    cause = getattr(error, "orig", None) or error
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
        code = sqlite3.SQLITE_FULL
    if code == sqlite3.SQLITE_IOERR and count_free_bytes(path) < 2 * _PAGE:
        code = sqlite3.SQLITE_FULL  # SQLite's code if it cannot create its log
    where = str(path)
    kept = "Data written before is safe."
    match code:
        case sqlite3.SQLITE_FULL:
            return _make_disk_full_error(path, needed, kept)
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreError(
                f"The run is locked by {find_holder(path) or 'another process'}, and was not released in time.",
                where=where,
                next=f"{kept} Wait for that process or stop it, then run the same command.",
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return InputError(
                "The run cannot be written.", where=where, next="Check the permissions of file and folder."
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return StoreError(
                "The run's file is damaged.",
                where=where,
                next=f"Recover the readable data: bactrian recover {where} --out NEW.db",
            )
        case _:
            return StoreError(f"The run cannot be used: {cause}.", where=where, next=kept)


def _make_disk_full_error(path: Path, needed: int, kept: str) -> StoreError:
    free = count_free_bytes(path)
    temporary = Path(tempfile.gettempdir())
    if count_free_bytes(temporary / "any") < _PAGE and needed + _PAGE < free:
        return StoreError(
            "The disk of temporary files is full.",
            where=str(temporary),
            next=f"{kept} Free some space there, or set TMPDIR to another folder, and run the same command.",
        )
    pages = max(2 * (needed // _PAGE + 1), free // _PAGE + 1)  # once in the log, and later in the file
    return StoreError(
        f"The disk is full: {pages * _PAGE:,} bytes or more are needed, {free:,} are free.",
        where=str(path),
        next=f"{kept} Free some space and run the same command.",
    )


@contextmanager
def explain_errors(path: Path) -> Generator[None]:
    """Convert errors of the database to errors that name the next action."""
    try:
        yield
    except BactrianError as error:
        error.where = error.where or str(path)
        raise
    except (SQLAlchemyError, sqlite3.Error, OSError) as error:
        raise explain_error(error, path) from error
