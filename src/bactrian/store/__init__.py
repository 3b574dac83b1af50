"""Storage of runs: :class:`RunStore`, :func:`open_store`, and where runs are."""

from bactrian.store.database import SCHEMA, is_run, read_schema_text
from bactrian.store.locations import (
    RunAddress,
    find_address,
    find_data_folder,
    find_run,
    find_runs,
    list_run_files,
    locate_file,
    locate_run,
    name_run,
    read_address,
)
from bactrian.store.lock import is_locked
from bactrian.store.record_tables import Statement
from bactrian.store.store import (
    STATEMENTS,
    Rows,
    RunStore,
    explain_values,
    open_beside,
    open_kept_run,
    open_store,
    read_making,
    read_recipe,
)
from bactrian.store.write import GroupCommit, RowWriter

__all__ = [
    "SCHEMA",
    "STATEMENTS",
    "GroupCommit",
    "RowWriter",
    "Rows",
    "RunAddress",
    "RunStore",
    "Statement",
    "explain_values",
    "find_address",
    "find_data_folder",
    "find_run",
    "find_runs",
    "is_locked",
    "is_run",
    "list_run_files",
    "locate_file",
    "locate_run",
    "name_run",
    "open_beside",
    "open_kept_run",
    "open_store",
    "read_address",
    "read_making",
    "read_recipe",
    "read_schema_text",
]
