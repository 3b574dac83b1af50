"""Storage of runs: the protocols for reading and writing, and :func:`open_store`."""

from bactrian.store.base import Rows, RunReader, RunWriter, Store
from bactrian.store.sqlite.filesystem import list_run_files
from bactrian.store.sqlite.store import open_store

__all__ = ["Rows", "RunReader", "RunWriter", "Store", "list_run_files", "open_store"]
