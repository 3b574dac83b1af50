"""The list of the runs that were used lately, wherever they are: a file of the user with their paths."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from platformdirs import user_state_dir

_NAME = "recent-runs.jsonl"
_SIZE = 16 * 1024  # Bytes of the list from which it is shortened
_MOST = 100


def find_state_folder() -> Path:
    """Return the folder of what this program notes for the user: ``BACTRIAN_DATA``, or the system's own."""
    return Path(os.environ.get("BACTRIAN_DATA") or user_state_dir("bactrian"))


def _find_list() -> Path:
    return find_state_folder() / _NAME


def add_recent_run(path: Path) -> None:
    """Note that the run at ``path`` is used, for :func:`list_recent_runs`: its path, and nothing else.

    A line is appended, which several processes can do at the same time. Where that is impossible, nothing is noted.
    """
    file, path = _find_list(), path.absolute()
    line = _write_line(path)
    with suppress(OSError, ValueError):
        if _read_end(file, len(line)) == line:
            return
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if file.is_file() and file.stat().st_size > _SIZE:
            _shorten(file)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(file, flags, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)


def list_recent_runs() -> list[Path]:
    """Return the paths of the runs that were used last, the latest first; some may be gone."""
    with suppress(OSError):
        return _read_paths(_find_list())[:_MOST]
    return []


def _read_paths(file: Path) -> list[Path]:
    """Return the paths in the list, the latest first; lines that are none are left out."""
    paths: dict[Path, None] = {}
    for line in reversed(_read_end(file, 2 * _SIZE).splitlines()):
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
        new.writelines(map(_write_line, reversed(_read_paths(file)[:_MOST])))
    Path(new.name).replace(file)


def _write_line(path: Path) -> bytes:
    return f"{json.dumps(str(path))}\n".encode()
