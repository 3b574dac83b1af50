"""Atomic writes: the files of an export appear complete or not at all.

Everything is written into a folder beside the target, ``.NAME.….bactrian-part``, and flushed to disk. One rename to
``.NAME.….bactrian-ready`` commits it; then each file moves to its final name. A process that is killed leaves either
the first, which the next writer of the same target removes, or the second, which the next writer finishes. It does
so only with a folder that the user's state folder notes: its path and, once complete, the SHA-256 of each file.

What is replaced was written here before: of an export, only files that its manifest lists, with the same content.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import resource
import shutil
import tempfile
import warnings
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bactrian.errors import BactrianError, BactrianWarning, InputError, explain_os_errors
from bactrian.files.json_text import parse_json
from bactrian.files.recent_runs import find_state_folder
from bactrian.files.replacement import (
    MANIFEST,
    check_export,
    delete_export,
    list_files,
    name_companion,
    note_manifests,
)

SQLITE_HEADER = b"SQLite format 3\0"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_PART, _READY = ".bactrian-part", ".bactrian-ready"
_REPLACED = ".replaced"  # Folder inside the ready one that contains the folders that were replaced


@contextmanager
def write_atomically(
    target: Path,
    *,
    overwrite: bool = False,
    listed: bool = False,
    shared: frozenset[str] = frozenset(),
    protect: Iterable[Path] = (),
) -> Generator[Path]:
    """Provide a temporary folder and, on success, move its files beside ``target``.

    Args:
        target: The file or folder that is written.
        overwrite: True to replace an existing file or export, which is never a run. A folder is replaced only if it
            contains what its manifest lists and nothing else.
        listed: True if a manifest lists the new files; then an existing file has to be listed, too.
        shared: Names of files that are always replaced: their writer has kept the existing content.
        protect: Files that are never replaced, whatever name ``target`` uses for them.

    Raises:
        InputError: the target exists already or cannot be written.
        BactrianError: the disk is full.
    """
    target = target.absolute()
    protected = tuple(protect)

    def check(path: Path) -> None:
        check_replaceable(path, protected)
        is_shared = path.name in shared
        check_target(path, overwrite=overwrite or is_shared, listed=listed and not is_shared)

    with explain_os_errors("This cannot be written", target, "Use another name."):
        _sweep(target, listed=listed, shared=shared)
        check(target)
    with (
        explain_os_errors("This cannot be written", target, "Use another name."),
        _open_stage(target) as stage,
    ):
        try:
            yield stage
            _flush(stage)
            note_manifests(stage)
            _note_stage(stage, list_files(stage))
            # As late as possible, because a file that is edited after it would be lost.
            for file in stage.iterdir():
                check(target.with_name(file.name))
            _finish(_commit(stage), target)
        except OSError as error:
            # Some libraries pass on the message without the error number.
            if error.errno in _FULL or "No space left" in str(error):
                raise _make_space_error(stage, target) from error
            raise


@contextmanager
def _open_stage(target: Path) -> Generator[Path]:
    """Create the folder to write in and lock it, so that no other process removes it as a leftover."""
    stage = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=_PART, dir=target.parent))
    handle = _lock_folder(stage)
    try:
        _note_stage(stage, [])
        stage.chmod(0o777 & ~_umask())
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        if not stage.with_suffix(
            _READY
        ).exists():  # what could not be finished is finished by the next writer
            _forget_stage(stage)
        if handle is not None:
            os.close(handle)


def _lock_folder(folder: Path) -> int | None:
    """Lock ``folder`` until the handle is closed or the process ends; None if another process locks it."""
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def _commit(stage: Path) -> Path:
    """Mark the written files as complete. From here on this process, or the next one, finishes the write."""
    ready = stage.with_suffix(_READY)
    stage.rename(ready)
    _flush_folder(ready.parent)
    return ready


def _find_note(stage: Path) -> Path:
    """Return the note of the user's state folder that this folder, or its part of before, was made here."""
    path = stage.parent.resolve() / stage.stem
    return find_state_folder() / "writes" / f"{hashlib.sha256(os.fsencode(path)).hexdigest()}.json"


def _note_stage(stage: Path, files: list[dict[str, Any]]) -> None:
    # Without a note, a leftover of this writer stays, which harms nothing.
    with suppress(OSError):
        note = _find_note(stage)
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = note.with_suffix(".new")
        new.write_text(json.dumps({"inode": stage.stat().st_ino, "files": files}))
        new.replace(note)


def _forget_stage(stage: Path) -> None:
    with suppress(OSError):
        _find_note(stage).unlink(missing_ok=True)


def _is_own_leftover(leftover: Path) -> bool:
    """Return True if this program made the folder here, and, once complete, nothing but the replaced has changed."""
    try:
        note = parse_json(_find_note(leftover).read_bytes())
        if note["inode"] != leftover.stat().st_ino:
            return False
        if leftover.suffix == _PART:
            return True
        strange = [
            path for path in leftover.rglob("*") if path.is_symlink() or not (path.is_dir() or path.is_file())
        ]
        files = [file for file in list_files(leftover) if not file["path"].startswith(f"{_REPLACED}/")]
        return not strange and all(file in note["files"] for file in files)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _finish(ready: Path, target: Path) -> None:
    """Move each file of ``ready`` to its final name, the target first and its manifest last."""
    folder, replaced = target.parent, ready / _REPLACED
    staged = [file.name for file in ready.iterdir() if file.name != _REPLACED]
    for name in sorted(staged, key=lambda name: _rank(name, target)):
        new, final = ready / name, folder / name
        if final.exists() and (final.is_dir() or new.is_dir()):
            # Only a file can replace a file in one step.
            replaced.mkdir(exist_ok=True)
            listing = final.with_name(name_companion(final))
            if listing.exists():  # it may be replaced before the old files are deleted
                keep = shutil.copyfile if listing.name in staged else shutil.move
                keep(listing, replaced / listing.name)
            final.rename(replaced / name)
        new.replace(final)
    _flush_folder(folder)
    if replaced.exists():
        for old in sorted(replaced.iterdir(), key=lambda old: _rank(old.name, target)):
            delete_export(old)
        with suppress(OSError):  # what came into the old folder in between stays
            replaced.rmdir()
        if replaced.exists():
            _forget_stage(ready)
            raise BactrianError(
                "The new files are complete, but the old ones were changed while they were replaced.",
                where=str(target),
                next=f"Look at what was kept in {replaced}, and delete it.",
            )
    with suppress(OSError):
        ready.rmdir()
    _forget_stage(ready)


def _sweep(target: Path, *, listed: bool, shared: frozenset[str]) -> None:
    """Finish or remove leftovers of processes that were killed while writing ``target``."""
    leftover = re.compile(rf"\.{re.escape(target.name)}\.[a-z0-9_]{{8}}({_PART}|{_READY})")
    try:
        leftovers = [path for path in target.parent.iterdir() if leftover.fullmatch(path.name)]
    except OSError:
        return
    for path in leftovers:
        # An InputError: something else has come to the target since, and stays there.
        with suppress(OSError, BactrianError):
            handle = None if path.is_symlink() or not path.is_dir() else _lock_folder(path)
            if handle is None:
                continue
            try:
                if not _is_own_leftover(path):
                    if any(path.iterdir()):
                        text = f"{path} is not what an export of yours left, so it stays. Delete it if nobody needs it."
                        warnings.warn(text, BactrianWarning, stacklevel=2)
                    else:
                        path.rmdir()
                    continue
                if path.suffix == _PART:
                    shutil.rmtree(path, ignore_errors=True)
                    _forget_stage(path)
                    continue
                for name in {file.name for file in path.iterdir()} - {_REPLACED}:
                    check_target(target.with_name(name), overwrite=True, listed=listed and name not in shared)
                _finish(path, target)
            finally:
                os.close(handle)


def _rank(name: str, target: Path) -> tuple[bool, bool, str]:
    """Return a sort key: the target first and the manifest last, so that a new manifest implies new files."""
    return (name != target.name, name.endswith(MANIFEST), name)


def check_target(path: Path, *, overwrite: bool = False, listed: bool = False, is_file: bool = False) -> None:
    """Check that ``path`` can be written as :func:`write_atomically` does it; with ``is_file``, as one file.

    Raises:
        InputError: it cannot, or what is there would be lost.
    """
    where = str(path)
    if path.name in ("", ".", ".."):
        raise InputError("This is no name of a file or folder.", where=where, next="Write its name.")
    if not path.parent.is_dir():
        raise InputError(f"There is no folder {path.parent}.", where=where, next="Create it first.")
    if not path.exists() and not path.is_symlink():
        return
    if not overwrite:
        raise InputError("This exists already.", where=where, next="Use overwrite=True, or another name.")
    if path.is_symlink() or not (path.is_file() or (path.is_dir() and not is_file)):
        raise InputError("This is not a regular file or folder.", where=where, next="Use another name.")
    if path.is_file() and is_sqlite_file(path):
        raise InputError("This is a database, such as a run.", where=where, next="Use another name.")
    if path.is_dir():
        for kind, folder in (("working", Path.cwd()), ("home", Path.home())):
            if any(is_same_file(path, inner) for inner in (folder, *folder.parents)):
                what = f"The {kind} folder is this folder or lies in it."
                raise InputError(what, where=where, next="Use another name.")
    if listed or path.is_dir():
        check_export(path)


def _flush(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        _flush_folder(path)


def _flush_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _make_space_error(stage: Path, target: Path) -> BactrianError:
    """Return the error for a full disk; the bytes written so far, plus the free bytes, were not enough."""
    written = sum(file.stat().st_size for file in stage.rglob("*") if file.is_file())
    disk = os.statvfs(target.parent)
    free = disk.f_bavail * disk.f_frsize
    return BactrianError(
        f"No space is left on the disk: more than {written + free:,} bytes are needed. Nothing was written.",
        where=str(target),
        next=f"Free some space ({written + free:,} bytes are free now), and run the same command.",
    )


# Comparison of paths by the file they lead to (device and inode), never by their text.


def is_same_file(path: Path, other: Path) -> bool:
    """Return True if both paths lead to the same file, also through links, ``..`` and hard links.

    Two paths that do not exist are the same if they would create the same file.
    """
    if path.exists() and other.exists():
        return path.samefile(other)
    first, second = _resolve(path), _resolve(other)
    if first == second:
        return True
    if first.name != second.name or not (first.parent.exists() and second.parent.exists()):
        return False
    return first.parent.samefile(second.parent)


def check_replaceable(target: Path, protected: Iterable[Path]) -> None:
    """Check that writing ``target`` replaces neither a ``protected`` file nor a folder that contains such a file.

    Raises:
        InputError: it would replace such a file.
    """
    for path in protected:
        if is_same_file(target, path):
            what = "This is the input file" if path.exists() else f"This name belongs to {path.name}"
            raise InputError(
                f"{what}, and would be replaced.", where=str(target), next="Choose another output file."
            )
        if target.is_dir() and any(is_same_file(target, folder) for folder in _resolve(path).parents):
            raise InputError(
                f"This folder contains the input file {path.name}.",
                where=str(target),
                next="Choose another output folder.",
            )


def _resolve(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a loop of links
        return path.absolute()


def is_sqlite_file(path: Path) -> bool:
    """Return True if the file at ``path`` is a database of SQLite. Raises OSError if it cannot be read."""
    with path.open("rb") as file:
        return file.read(len(SQLITE_HEADER)) == SQLITE_HEADER


def raise_file_limit(needed: int) -> int:
    """Let this process open ``needed`` files, or as many as it may have; return that number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return needed
    most = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most
