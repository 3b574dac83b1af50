"""Opens runs. What reads and writes them is imported with the first one: a play that is not stored does not need it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from bactrian.store.base import Store

if TYPE_CHECKING:
    from bactrian.store.sqlite.store import SqliteStore


def open_store(path: Path, *, read_only: bool = False) -> AbstractAsyncContextManager[SqliteStore]:
    """Open the run at ``path``; unless ``read_only``, create it if missing.

    A run of an older version is migrated after a backup; if ``read_only``, a temporary copy of it is migrated instead.

    Raises:
        InputError: the file is not a run, or cannot be written.
        StoreError: the run is damaged, in use, or from a newer version.
    """
    from bactrian.store.sqlite.store import open_sqlite_store

    return open_sqlite_store(path, read_only=read_only)


def open_kept_run() -> AbstractAsyncContextManager[Store | None]:
    """Open the first run of plays that no other process writes; None, with a warning, if none can be written."""
    from bactrian.store.sqlite.kept import open_first_run

    return open_first_run()


def is_locked(path: Path) -> bool:
    """Return True if a process writes the run at ``path``. Takes no lock itself where the system lists them."""
    from bactrian.store.sqlite.lock import is_run_locked

    return is_run_locked(path)
