"""Where runs are: the user's data folder, and runs by name."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from platformdirs import user_data_dir

from bactrian.errors import InputError
from bactrian.records.text import to_file_name
from bactrian.store.address import SharedRun, find_address, is_address, read_address
from bactrian.store.database import is_run

PLAYS = "plays"
"""The name of the runs in which ``play`` keeps its sessions: ``plays.db``, ``plays-2.db`` and so on."""
_MOST = 1000
"""Plays at the same time."""
_COMPANIONS = ("-wal", "-shm", "-journal", ".lock", ".explore")


def find_data_folder() -> Path:
    """Return the folder of the runs that are kept without being named: ``BACTRIAN_DATA``, or the user's data folder."""
    return Path(os.environ.get("BACTRIAN_DATA") or user_data_dir("bactrian"))


def locate_run(run: str | Path) -> Path:
    """Return the file of a run: its path, or for an address that of its copy in the data folder.

    Raises:
        InputError: the address cannot be used, or contains a password.
    """
    if isinstance(run, Path) or not is_address(run):
        return Path(run) if isinstance(run, str) else run
    address = read_address(run)
    parts = urlsplit(address.text)
    name = to_file_name(f"{parts.hostname or 'local'} {parts.path.strip('/')} {address.run}".strip())
    key = hashlib.sha256(f"{address.connection} {address.run}".encode()).hexdigest()[:8]
    file = SharedRun(find_data_folder() / "shared" / f"{name}-{key}.db")
    file.address = address
    return file


def locate_file(run: str | Path) -> Path:
    """Return the path of a run that another command than ``generate`` writes.

    Raises:
        InputError: it is the address of a shared run, whose copy would differ from it then.
    """
    if find_address(path := locate_run(run)):
        raise InputError(
            "`generate` makes a shared run, and no other command.",
            option="run",
            next="Give it a file; `bactrian push RUN.db ADDRESS` makes that a shared run.",
        )
    return path


def find_run(name: str | Path) -> Path:
    """Return the run with this path, or else the one in the data folder with this name; the path if neither exists."""
    if find_address(name := locate_run(name)):
        return name
    path = Path(name).expanduser()
    if path.exists() or len(path.parts) != 1:
        return path
    kept = find_data_folder() / path
    return next((run for run in (kept, kept.with_name(f"{kept.name}.db")) if run.is_file()), path)


def name_files_folder(run: Path, session: str) -> Path:
    """Return the folder of the files that a session's agents made."""
    return run.with_name(f"{run.name}.files") / to_file_name(session)


def name_verdicts(run: Path) -> Path:
    """Return the file of the verdicts on the code of a run, unless another one was named."""
    return run.with_name(f"{run.name}.verdicts.jsonl")


def name_run(run: Path) -> str:
    """Return the run as a command names it: one in the data folder by its name alone, unless a file here has it."""
    if address := find_address(run):
        return str(address)
    kept = run.parent == find_data_folder() and run.suffix == ".db" and not Path(run.stem).exists()
    return run.stem if kept else str(run)


def list_play_files() -> Iterator[Path]:
    """Yield the files in which ``play`` may keep its sessions: one process writes a file, so each tries the next."""
    folder = find_data_folder()
    for number in range(1, _MOST):
        yield folder / (f"{PLAYS}.db" if number == 1 else f"{PLAYS}-{number}.db")


def find_runs(folder: Path) -> list[Path]:
    """Return the runs in ``folder``, by name, without hidden files. Reads the first 100 bytes of each other file."""
    try:
        files = sorted(folder.iterdir())
    except OSError:
        return []
    return [path for path in files if not path.name.startswith(".") and is_run(path)]


def list_run_files(path: Path) -> list[Path]:
    """List the files that belong to the run at ``path``, whether they are there or not: itself, log, lock and index.

    A run that is named by a link has files beside the link and beside the file that it leads to.
    """
    names = list(dict.fromkeys((path.absolute(), path.resolve())))
    return [*names, *(name.with_name(name.name + ending) for name in names for ending in _COMPANIONS)]
