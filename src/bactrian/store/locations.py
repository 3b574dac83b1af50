"""Where runs are: the user's data folder, and runs by name."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from platformdirs import user_data_dir, user_state_dir

from bactrian.records.text import to_file_name
from bactrian.store.database import is_run

PLAYS = "plays"
"""The name of the runs in which ``play`` keeps its sessions: ``plays.db``, ``plays-2.db`` and so on."""
_MOST = 1000
"""Plays at the same time."""
_RECENT = "recent-runs.jsonl"
_RECENT_SIZE = 16 * 1024  # Bytes of the list of recent runs from which it is shortened
_MOST_RECENT = 100
_COMPANIONS = ("-wal", "-shm", "-journal", ".lock", ".explore")


def find_data_folder() -> Path:
    """Return the folder of the runs that are kept without being named: ``BACTRIAN_DATA``, or the user's data folder."""
    return Path(os.environ.get("BACTRIAN_DATA") or user_data_dir("bactrian"))


def find_run(name: str | Path) -> Path:
    """Return the run with this path, or else the one in the data folder with this name; the path if neither exists."""
    path = Path(name).expanduser()
    if path.exists() or len(path.parts) != 1:
        return path
    kept = find_data_folder() / path
    return next((run for run in (kept, kept.with_name(f"{kept.name}.db")) if run.is_file()), path)


def _find_recent_file() -> Path:
    return Path(os.environ.get("BACTRIAN_DATA") or user_state_dir("bactrian")) / _RECENT


def remember_run(path: Path) -> None:
    """Note that the run at ``path`` is used, for :func:`list_recent_runs`: its path, and nothing else.

    A line is appended, which several processes can do at the same time. Where that is impossible, nothing is noted.
    """
    file, path = _find_recent_file(), path.absolute()
    line = _write_line(path)
    with suppress(OSError, ValueError):
        if path.parent == find_data_folder().absolute() or _read_end(file, len(line)) == line:
            return
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if file.is_file() and file.stat().st_size > _RECENT_SIZE:
            _shorten(file)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(file, flags, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)


def list_recent_runs() -> list[Path]:
    """Return the runs that were used last and still exist, the latest first."""
    with suppress(OSError):
        return [path for path in _read_recent(_find_recent_file())[:_MOST_RECENT] if is_run(path)]
    return []


def _read_recent(file: Path) -> list[Path]:
    """Return the paths in the list, the latest first; lines that are none are left out."""
    paths: dict[Path, None] = {}
    for line in reversed(_read_end(file, 2 * _RECENT_SIZE).splitlines()):
        with suppress(ValueError):
            path: object = json.loads(line)
            if isinstance(path, str) and path.isprintable() and Path(path).is_absolute():
                paths[Path(path)] = None
    return list(paths)


def _read_end(file: Path, size: int) -> bytes:
    if not file.is_file():
        return b""
    with file.open("rb") as opened:
        opened.seek(max(0, file.stat().st_size - size))
        return opened.read()


def _shorten(file: Path) -> None:
    """Leave the latest runs in the list."""
    # A file of this kind is readable by its owner only.
    with tempfile.NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}.", delete=False) as new:
        new.writelines(map(_write_line, reversed(_read_recent(file)[:_MOST_RECENT])))
    Path(new.name).replace(file)


def _write_line(path: Path) -> bytes:
    return f"{json.dumps(str(path))}\n".encode()


def name_files_folder(run: Path, session: str) -> Path:
    """Return the folder of the files that a session's agents made."""
    return run.with_name(f"{run.name}.files") / to_file_name(session)


def name_run(run: Path) -> str:
    """Return the run as a command names it: one in the data folder by its name alone, unless a file here has it."""
    kept = run.parent == find_data_folder() and run.suffix == ".db" and not Path(run.stem).exists()
    return run.stem if kept else str(run)


def list_play_files() -> Iterator[Path]:
    """Yield the files in which ``play`` may keep its sessions: one process writes a file, so each tries the next."""
    folder = find_data_folder()
    for number in range(1, _MOST):
        yield folder / (f"{PLAYS}.db" if number == 1 else f"{PLAYS}-{number}.db")


def find_runs(folder: Path) -> list[Path]:
    """Return the runs in ``folder``, by name. Reads the first 100 bytes of each file."""
    try:
        files = sorted(folder.iterdir())
    except OSError:
        return []
    return [path for path in files if is_run(path)]


def list_run_files(path: Path) -> list[Path]:
    """List the files that belong to the run at ``path``, whether they are there or not: itself, log, lock and index.

    A run that is named by a link has files beside the link and beside the file that it leads to.
    """
    names = list(dict.fromkeys((path.absolute(), path.resolve())))
    return [*names, *(name.with_name(name.name + ending) for name in names for ending in _COMPANIONS)]
