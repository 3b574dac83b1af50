"""Where a run is kept: the protocols of its two sides, and :func:`open_store`, which opens one."""

from bactrian.store.base import Rows, RunReader, RunWriter, Store
from bactrian.store.sqlite.store import open_store

__all__ = ["Rows", "RunReader", "RunWriter", "Store", "open_store"]
