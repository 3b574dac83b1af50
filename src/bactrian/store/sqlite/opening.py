"""Opening and creating the file of a run, with migrations and warnings."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from warnings import warn

from sqlalchemy import Connection, Engine

from bactrian.errors import BactrianWarning, InputError, StoreError
from bactrian.store.migrations import MIGRATIONS, migrate, read_version
from bactrian.store.sqlite.database import (
    back_up,
    explain_errors,
    find_log,
    log_is_missing,
    make_engine,
    mark_open,
    open_for_reading,
    open_for_writing,
)
from bactrian.store.sqlite.filesystem import find_network_file_system


def connect(path: Path) -> Connection:
    """Open the writing connection and migrate the schema. The caller must hold the run's lock."""
    _warn_of_data_loss(path)
    with explain_errors(path):
        if not path.exists():
            _create_file(path)
        engine = open_for_writing(path)
        connection = engine.connect()
        try:
            have = _check_known(read_version(connection), path)
            connection.rollback()
            if 0 < have < len(MIGRATIONS):
                back_up(path, have)
            with connection.begin():
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
    engine = make_engine(new)
    try:
        with engine.begin() as connection:
            migrate(connection, time.time())
        new.rename(path)
    finally:
        engine.dispose()
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


def is_older(path: Path) -> bool:
    """Return True if the run lacks a migration."""
    reading = open_for_reading(path)
    try:
        with explain_errors(path), reading.connect() as connection:
            return 0 < read_version(connection) < len(MIGRATIONS)
    finally:
        reading.dispose()


@contextmanager
def open_migrated(path: Path) -> Generator[Engine]:
    """Open the run for reading; one of an older version as a migrated temporary copy, so that ``path`` stays as it is.

    Raises:
        StoreError: the run is damaged, or from a newer version.
    """
    reading = open_for_reading(path)
    try:
        with explain_errors(path), reading.connect() as connection:
            have = _check_known(read_version(connection), path)
        if have == len(MIGRATIONS):
            yield reading
            return
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / path.name
            with (
                explain_errors(path),
                closing(sqlite3.connect(copy)) as target,
                reading.connect() as connection,
            ):
                source = connection.connection.driver_connection
                assert isinstance(source, sqlite3.Connection)
                source.backup(target)
            writing = open_for_writing(copy)
            try:
                with explain_errors(path), writing.begin() as connection:
                    migrate(connection, time.time())
                yield writing
            finally:
                writing.dispose()
    finally:
        reading.dispose()


def check_version(reading: Engine, path: Path) -> None:
    """Check that the run has the current schema. Raises InputError or StoreError if not."""
    with explain_errors(path), reading.connect() as connection:
        have = _check_known(read_version(connection), path)
    if have < len(MIGRATIONS):
        raise InputError(
            f"The run has schema {have}; this program reads {len(MIGRATIONS)}.",
            where=str(path),
            next="Make it writable and run the same command: it is then migrated, after a backup.",
        )


def _check_known(have: int, path: Path) -> int:
    if have > len(MIGRATIONS):
        raise StoreError(
            f"The run has schema {have}; this version of bactrian knows schemas up to {len(MIGRATIONS)}.",
            where=str(path),
            next="Install a newer bactrian.",
        )
    return have
