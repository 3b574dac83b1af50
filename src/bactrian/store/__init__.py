"""Where a run is kept: the protocols of its two sides, and :func:`open_store`, which opens one."""

from bactrian.store.base import Rows, RunReader, RunWriter, Store
from bactrian.store.sqlite.filesystem import list_run_files
from bactrian.store.sqlite.store import open_store

__all__ = ["Rows", "RunReader", "RunWriter", "Store", "list_run_files", "open_store"]
