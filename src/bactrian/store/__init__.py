"""Storage of runs: :class:`RunStore`, :func:`open_store`, and where runs are."""

from bactrian.store.database import is_run
from bactrian.store.locations import find_address, find_run, name_run
from bactrian.store.store import RunStore, open_store

__all__ = ["RunStore", "find_address", "find_run", "is_run", "name_run", "open_store"]
