"""Opening and creating the file of a run, with migrations and warnings."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from warnings import warn

from bactrian.errors import BactrianWarning, StoreError
from bactrian.store.migrations import MIGRATIONS, migrate, read_version
from bactrian.store.sqlite.database import (
    back_up,
    begin_transaction,
    can_read_log,
    connect_for_reading,
    explain_errors,
    find_journal,
    find_log,
    has_journal,
    has_log,
    log_is_missing,
    mark_open,
    open_for_writing,
    open_new,
)
from bactrian.store.sqlite.filesystem import find_network_file_system


def connect(path: Path) -> sqlite3.Connection:
    """Open the writing connection and migrate the schema. The caller must hold the run's lock."""
    _warn_of_data_loss(path)
    with explain_errors(path):
        if not path.exists():
            _create_file(path)
        connection = open_for_writing(path)
        try:
            have = _check_known(read_version(connection), path)
            if 0 < have < len(MIGRATIONS):
                back_up(path, have)
            with begin_transaction(connection):
                migrate(connection, time.time())
            mark_open(connection)
        except BaseException:
            connection.close()
            raise
        return connection


def _create_file(path: Path) -> None:
    """Create an empty run atomically, even if the disk is full or the process is killed."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)  # leftover of a killed process
    try:
        with closing(open_new(new)) as connection:
            with begin_transaction(connection):
                migrate(connection, time.time())
            # Before it has its name: the change is a transaction, and a killed one would have to be rolled back.
            connection.execute("PRAGMA journal_mode = WAL")
        new.rename(path)
    finally:
        new.unlink(missing_ok=True)


def _warn_of_data_loss(path: Path) -> None:
    if kind := find_network_file_system(path):
        warn(
            f"{path} is on a network file system ({kind}), where a run is damaged if two computers open it: "
            "keep it on a disk of this one.",
            BactrianWarning,
            stacklevel=2,
        )
    if path.exists() and log_is_missing(path):
        warn(
            f"{path} was not closed, and its log {find_log(path).name} is not beside it: the latest data is "
            "missing. `bactrian verify` shows details.",
            BactrianWarning,
            stacklevel=2,
        )


@contextmanager
def find_readable(path: Path) -> Generator[Path]:
    """Provide the file to read the run at ``path`` from: itself, or a temporary copy if it must not or cannot be used.

    A run of an older version is read from a migrated copy, so that reading changes nothing. What a killed process left
    behind needs a copy, too: a log in a folder that cannot be written or has no room, or a transaction to roll back.

    Raises:
        StoreError: the run is damaged, or from a newer version.
    """
    with ExitStack() as stack:
        stack.callback(_tidy_up, path)
        source = path
        if has_journal(path) or (has_log(path) and not can_read_log(path)):
            source = Path(stack.enter_context(tempfile.TemporaryDirectory())) / path.name
            with explain_errors(path):
                for find in (Path, find_log, find_journal):
                    if find(path).exists():
                        shutil.copyfile(find(path), find(source))
                _roll_back(source)
        with explain_errors(path), closing(connect_for_reading(source)) as connection:
            have = _check_known(read_version(connection), path)
            if have < len(MIGRATIONS):
                source = Path(stack.enter_context(tempfile.TemporaryDirectory())) / path.name
                _copy_migrated(connection, source)
        yield source


def _tidy_up(path: Path) -> None:
    """Let SQLite delete the empty log that reading a run leaves beside it, unless another process uses it.

    A read-only connection makes a log and cannot delete it; the last connection with write access does so when it
    closes. A log with content is left alone: it is a writer's, or what a killed one left.
    """
    log = find_log(path)
    with suppress(OSError, sqlite3.Error):
        if log.stat().st_size == 0:
            address = f"{path.absolute().as_uri()}?mode=rw"
            with closing(sqlite3.connect(address, uri=True, timeout=0)) as connection:
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()


def _roll_back(path: Path) -> None:
    """Let SQLite undo the transaction that was not finished; only a writing connection does so."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()


def _copy_migrated(connection: sqlite3.Connection, path: Path) -> None:
    """Copy the run of ``connection`` to ``path`` and migrate the copy."""
    with closing(sqlite3.connect(path)) as target:
        connection.backup(target)
    with closing(open_for_writing(path)) as migrated, begin_transaction(migrated):
        migrate(migrated, time.time())


def _check_known(have: int, path: Path) -> int:
    if have > len(MIGRATIONS):
        raise StoreError(
            f"The run has schema {have}; this version of bactrian knows schemas up to {len(MIGRATIONS)}.",
            where=str(path),
            next="Install a newer bactrian.",
        )
    return have
