"""Storage of runs: the protocols for reading and writing, and :func:`open_store`."""

from bactrian.store.base import Rows, RunReader, RunWriter, Store
from bactrian.store.locations import find_data_folder, find_run, find_runs, list_play_files, name_run
from bactrian.store.open import is_locked, open_kept_run, open_store
from bactrian.store.sqlite.filesystem import list_run_files
from bactrian.store.sqlite.header import is_run

__all__ = [
    "Rows",
    "RunReader",
    "RunWriter",
    "Store",
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
]
