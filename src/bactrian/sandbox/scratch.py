"""Scratch folders as programs leave them: listed, measured and removed. Runs around a sandbox, without the package."""

from __future__ import annotations

import os
import stat

from bactrian.sandbox.inside.values import pack_bytes

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DEPTH = 16
# Most names of a scratch folder that are looked at, each as a hundred characters, and all their characters.
_NAMES = 1_000_000


def collect_files(folder: int, most: int) -> list[dict[str, object]]:
    """Return the files below the folder behind a descriptor, by name; links, devices and pipes have size 0.

    No path that a program made is followed. What is no regular file has no content, and neither have files that do not
    fit into ``most`` bytes in all.
    """
    files: list[dict[str, object]] = []
    if folder >= 0:
        _walk_folder(folder, "", files, [most, _NAMES], _DEPTH)
    return sorted(files, key=lambda file: str(file["name"]))


def _walk_folder(
    folder: int, prefix: str, files: list[dict[str, object]], left: list[int], depth: int
) -> None:
    for name in sorted(os.listdir(folder)):
        left[1] -= 100 + len(prefix) + len(name)
        if left[1] < 0:
            return
        try:
            handle = os.open(name, _FILE, dir_fd=folder)
        except OSError:
            files.append({"name": prefix + name, "size": 0, "content": None})
            continue
        try:
            facts = os.fstat(handle)
            if stat.S_ISDIR(facts.st_mode) and depth:
                _walk_folder(handle, f"{prefix}{name}/", files, left, depth - 1)
            elif stat.S_ISREG(facts.st_mode):
                content = _read_file(handle, facts.st_size, left)
                files.append({"name": prefix + name, "size": facts.st_size, "content": content})
            elif not stat.S_ISDIR(facts.st_mode):
                files.append({"name": prefix + name, "size": 0, "content": None})
        finally:
            os.close(handle)


def _read_file(handle: int, size: int, left: list[int]) -> str | None:
    """Return the content, or None if it is larger than what is left to read."""
    if size > left[0]:
        return None
    content = bytearray()
    # A sparse or growing file must not give more than its size promised.
    while len(content) < size and (part := os.read(handle, min(size - len(content), 1 << 20))):
        content += part
    left[0] -= len(content)
    return pack_bytes(content)


def measure_folder(path: str) -> float:
    """Return the bytes of all files below ``path``, and 4 KiB for each name; infinity if a folder cannot be read.

    A program can make a folder that nobody may list, and one whose path is too long: either would hide its files.
    """
    total = 0
    folders = [path]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    total += 4096
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return float("inf")
    return total


def remove_folder(path: str) -> None:
    """Remove a scratch folder with all that a program has left in it. What cannot be removed stays.

    Folders may be nested deeper than a path can be long, and may forbid to be listed. So each one is made readable, and
    its folders are moved up to the top before it is removed.
    """
    number, mark = 0, os.urandom(8).hex()
    waiting = [path]
    while waiting:
        folder = waiting.pop()
        try:
            os.chmod(folder, 0o700)
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            inner = os.path.join(folder, name)
            try:
                if not stat.S_ISDIR(os.lstat(inner).st_mode):
                    os.unlink(inner)
                    continue
                # A folder can only be moved by those who may write in it.
                os.chmod(inner, 0o700)
                number += 1
                moved = os.path.join(path, f"{mark}-{number}")
                if folder != path:
                    os.rename(inner, moved)
                    inner = moved
                waiting.append(inner)
            except OSError:
                continue
        if folder != path:
            _remove_empty(folder)
    _remove_empty(path)


def _remove_empty(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:
        return
