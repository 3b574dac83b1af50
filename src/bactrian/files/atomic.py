"""Files that appear whole or not at all.

Everything is written into a folder beside the target, flushed to disk, and moved to its final name at the end. A
process that is killed leaves that folder, ``.NAME.….part``, and nothing under the final name.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bactrian.errors import BactrianError, InputError

MANIFEST = "manifest.json"
_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def write_atomically(
    target: Path, *, overwrite: bool = False, shared: frozenset[str] = frozenset()
) -> Generator[Path]:
    """Give a folder in which to write what will lie beside each other at ``target``, and put it there at the end.

    Files whose names are in ``shared`` may replace what is there in any case: their writer kept its content.

    Raises:
        InputError: something is there already, or the place cannot be written.
        BactrianError: no space is left.
    """
    target = target.absolute()
    _check(target, overwrite=overwrite)
    with _explaining(target):
        stage = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent))
        try:
            stage.chmod(0o777 & ~_umask())
            yield stage
            names = sorted((file.name for file in stage.iterdir()), key=lambda name: _place(name, target))
            for name in names:
                if name not in shared:
                    _check(target.with_name(name), overwrite=overwrite)
            _flush(stage)
            _move(stage, target.parent, names)
        except OSError as error:
            # Some libraries pass the reason on in words only.
            if error.errno in _FULL or "No space left" in str(error):
                raise _no_space(stage, target) from error
            raise
        finally:
            shutil.rmtree(stage, ignore_errors=True)


def companion_path(target: Path, ending: str) -> str:
    """Name of a file that belongs to ``target`` and lies beside it."""
    return f"{target.name}.{ending}"


def _place(name: str, target: Path) -> tuple[bool, bool, str]:
    """The target comes first and the manifest last: where that is, all is there."""
    return (name != target.name, name.endswith(MANIFEST), name)


def _check(path: Path, *, overwrite: bool) -> None:
    where = str(path)
    if not path.parent.is_dir():
        raise InputError(f"There is no folder {path.parent}.", where=where, next="Make it first.")
    if not path.exists() and not path.is_symlink():
        return
    if not overwrite:
        raise InputError("This is there already.", where=where, next="Use --overwrite, or another name.")
    if path.is_symlink() or not (path.is_dir() or path.is_file()):
        raise InputError("This is no ordinary file or folder.", where=where, next="Use another name.")
    if path.is_dir() and not _is_export(path):
        raise InputError(
            "This folder holds something else than an export.", where=where, next="Use another name."
        )


def _is_export(folder: Path) -> bool:
    made = (folder / MANIFEST).exists() or folder.with_name(companion_path(folder, MANIFEST)).exists()
    return made or not any(folder.iterdir())


def _flush(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _move(stage: Path, folder: Path, names: list[str]) -> None:
    old = stage / ".replaced"
    old.mkdir()
    for name in reversed(names):
        # A manifest never stands beside data that it does not describe.
        if (folder / name).exists():
            (folder / name).rename(old / name)
    try:
        for name in names:
            (stage / name).rename(folder / name)
    except OSError:
        for kept in old.iterdir():
            kept.rename(folder / kept.name)
        raise
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _no_space(stage: Path, target: Path) -> BactrianError:
    """What was written until then did fit, and more would not."""
    written = sum(file.stat().st_size for file in stage.rglob("*") if file.is_file())
    disk = os.statvfs(stage)
    free = disk.f_bavail * disk.f_frsize
    return BactrianError(
        f"No space is left on the disk: more than {written + free:,} bytes are needed. Nothing was written.",
        where=str(target),
        next=f"Free some space ({written + free:,} bytes are free now), and run the same command.",
    )


@contextmanager
def _explaining(target: Path) -> Generator[None]:
    """Turn faults of the file system into errors that say what to do."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"This cannot be written: {error.strerror or error}.",
            where=str(target),
            next="Use another name.",
        ) from error
