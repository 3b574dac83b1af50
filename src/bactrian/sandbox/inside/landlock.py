"""Landlock: which files a sandboxed process may read and write (``linux/landlock.h``)."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence

_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""System calls, with the same numbers on all architectures."""

_EXECUTE, _WRITE, _READ, _LIST = 1, 2, 4, 8
_REMOVE_FOLDER, _REMOVE_FILE, _MAKE_FOLDER, _MAKE_FILE = 1 << 4, 1 << 5, 1 << 7, 1 << 8
_MAKE_FIFO, _MAKE_LINK, _MOVE, _TRUNCATE = 1 << 10, 1 << 12, 1 << 13, 1 << 14
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""Number of file rights by version; 16 from version 5."""
_USE = (
    _WRITE | _READ | _LIST | _REMOVE_FOLDER | _REMOVE_FILE | _MAKE_FOLDER | _MAKE_FILE | _MAKE_FIFO
    | _MAKE_LINK | _MOVE | _TRUNCATE
)  # fmt: skip
"""All that a scratch folder is for: no devices and no sockets."""
NEEDED = 3
"""Earlier versions do not guard truncate(2)."""


def find_version() -> int:
    """Return the version of the kernel's Landlock; 0 if it lacks it."""
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, libc.syscall(_CREATE, None, 0, 1))


def restrict_files(reads: Sequence[str], writes: Sequence[str], *, execute: bool) -> None:
    """Allow this process to read below ``reads`` and to read and write below ``writes``, and nothing else.

    Args:
        reads: Files and folders. Those that do not exist are left out.
        writes: Files and folders.
        execute: True to allow programs below ``reads``.

    Raises:
        OSError: the kernel lacks Landlock, or refuses the rules.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    version = find_version()
    if version == 0:
        raise OSError("The kernel has no Landlock.")
    handled = (1 << _RIGHTS.get(version, 16)) - 1
    # From version 4 on TCP is guarded, from version 6 on signals and abstract sockets of others.
    fields = (handled, 3, 3)[: 1 if version < 4 else 2 if version < 6 else 3]
    attributes = struct.pack(f"{len(fields)}Q", *fields)
    rules = _call(libc, _CREATE, attributes, len(attributes), 0)
    try:
        read = _READ | _LIST | (_EXECUTE if execute else 0)
        for paths, rights in ((reads, read), (writes, _USE)):
            for path in paths:
                _allow(libc, rules, path, rights & handled)
        libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
        _call(libc, _RESTRICT, rules, 0)
    finally:
        os.close(rules)


def _allow(libc: ctypes.CDLL, rules: int, path: str, rights: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not os.path.isdir(path):
            rights &= _EXECUTE | _WRITE | _READ | _TRUNCATE
        _call(libc, _ADD, rules, 1, struct.pack("=Qi", rights, handle), 0)
    finally:
        os.close(handle)


def _call(libc: ctypes.CDLL, number: int, *arguments: object) -> int:
    result = libc.syscall(number, *arguments)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"Landlock refuses: {os.strerror(error)}")
    return result
