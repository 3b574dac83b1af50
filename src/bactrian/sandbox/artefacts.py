"""Collects the files of a scratch folder through its descriptor, without following any path that a program made."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DEPTH = 16
_NAMES = 10_000
"""Most names that are looked at."""


@dataclass(frozen=True, slots=True)
class Artefact:
    """A regular file in a scratch folder."""

    name: str
    """Relative to the folder, with ``/`` between its parts. Not safe as a path of this computer."""
    size: int
    content: bytes | None
    """None if it was not asked for, or is too large."""


def collect_artefacts(folder: int, most: int = 0) -> list[Artefact]:
    """Return the regular files below ``folder``, by name. Links, devices and pipes are left out.

    Args:
        folder: A descriptor of the scratch folder.
        most: Most bytes to read in all. Files that do not fit have no content.
    """
    artefacts: list[Artefact] = []
    _walk(folder, "", artefacts, [most, _NAMES], _DEPTH)
    return sorted(artefacts, key=lambda artefact: artefact.name)


def _walk(folder: int, prefix: str, artefacts: list[Artefact], left: list[int], depth: int) -> None:
    for name in sorted(os.listdir(folder)):
        left[1] -= 1
        if left[1] < 0:
            return
        try:
            handle = os.open(name, _OPEN, dir_fd=folder)
        except OSError:
            continue
        try:
            facts = os.fstat(handle)
            if stat.S_ISDIR(facts.st_mode) and depth:
                _walk(handle, f"{prefix}{name}/", artefacts, left, depth - 1)
            elif stat.S_ISREG(facts.st_mode):
                content = _read(handle, facts.st_size, left)
                artefacts.append(Artefact(prefix + name, facts.st_size, content))
        finally:
            os.close(handle)


def _read(handle: int, size: int, left: list[int]) -> bytes | None:
    """Return the content, or None if it is larger than what is left to read."""
    if size > left[0]:
        return None
    content = bytearray()
    # A sparse or growing file must not give more than its size promised.
    while len(content) < size and (part := os.read(handle, min(size - len(content), 1 << 20))):
        content += part
    left[0] -= len(content)
    return bytes(content)


def remove_folder(path: str) -> None:
    """Remove a scratch folder with all that a program has left in it. What cannot be removed stays.

    Folders may be nested deeper than a path can be long, and may forbid to be listed. So each one is made readable, and
    its folders are moved up to the top before it is removed.
    """
    number, mark = 0, secrets.token_hex(8)
    waiting = [path]
    while waiting:
        folder = waiting.pop()
        try:
            os.chmod(folder, 0o700)  # noqa: PTH101
            names = os.listdir(folder)  # noqa: PTH208
        except OSError:
            continue
        for name in names:
            inner = os.path.join(folder, name)  # noqa: PTH118
            try:
                if not stat.S_ISDIR(os.lstat(inner).st_mode):
                    os.unlink(inner)  # noqa: PTH108
                    continue
                # A folder can only be moved by those who may write in it.
                os.chmod(inner, 0o700)  # noqa: PTH101
                number += 1
                moved = os.path.join(path, f"{mark}-{number}")  # noqa: PTH118
                if folder != path:
                    os.rename(inner, moved)  # noqa: PTH104
                    inner = moved
                waiting.append(inner)
            except OSError:
                continue
        if folder != path:
            with suppress(OSError):
                os.rmdir(folder)  # noqa: PTH106
    with suppress(OSError):
        os.rmdir(path)  # noqa: PTH106
