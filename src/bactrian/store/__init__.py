"""Storage of runs: :class:`RunStore`, :func:`open_store`, and where runs are."""

from bactrian.store.database import is_run
from bactrian.store.locations import (
    find_data_folder,
    find_run,
    find_runs,
    list_play_files,
    list_run_files,
    name_run,
)
from bactrian.store.lock import is_locked
from bactrian.store.store import Rows, RunStore, open_kept_run, open_store, read_making

__all__ = [
    "Rows",
    "RunStore",
    "find_data_folder",
    "find_run",
    "find_runs",
    "is_locked",
    "is_run",
    "list_play_files",
    "list_run_files",
    "name_run",
    "open_kept_run",
    "open_store",
    "read_making",
]
