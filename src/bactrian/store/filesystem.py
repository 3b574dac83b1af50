"""The file system around a run: links, free space, lock holders and network mounts."""

from __future__ import annotations

import os
import re
from errno import ELOOP
from pathlib import Path

from bactrian.errors import InputError

# SQLite's log needs shared memory between all processes that open it, so it does not work over a network.
_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = frozenset("nfs nfs4 cifs smb2 smb3 smbfs sshfs 9p afs ceph lustre gpfs beegfs glusterfs".split())
_ESCAPED = re.compile(r"\\([0-7]{3})")


def follow_link(path: Path) -> Path:
    """Return the file that ``path`` links to; ``path`` itself if it is not a link.

    A run has its log and its lock beside it. Beside a link they would be others.

    Raises:
        InputError: the link leads to itself.
    """
    try:
        return path.resolve() if path.is_symlink() else path
    except (OSError, RuntimeError) as error:
        if isinstance(error, OSError) and error.errno != ELOOP:
            raise
        raise InputError("The link leads to itself.", where=str(path), next="Check the path.") from error


def count_free_bytes(path: Path) -> int:
    """Return the free bytes of the file system of ``path``."""
    disk = os.statvfs(path.absolute().parent)
    return disk.f_bavail * disk.f_frsize


def is_writable(folder: Path) -> bool:
    """Return True if files can be created in ``folder``."""
    return os.access(folder, os.W_OK) and not os.statvfs(folder).f_flag & os.ST_RDONLY


def find_holder(path: Path) -> str | None:
    """Return name and id of another process that locks the database at ``path``; None if not found."""
    try:
        files = {file.stat().st_ino for file in (path, path.with_name(f"{path.name}-shm")) if file.exists()}
        locks = Path("/proc/locks").read_text()
    except OSError:  # not Linux
        return None
    for line in locks.splitlines():
        # 1: POSIX  ADVISORY  WRITE 4711 08:01:123456 120 120 (man 5 proc)
        match = re.search(r"WRITE (\d+) [0-9a-f]+:[0-9a-f]+:(\d+) ", line)
        if match and int(match[2]) in files and int(match[1]) != os.getpid():
            try:
                name = Path(f"/proc/{match[1]}/comm").read_text().strip()
            except OSError:
                name = "a program"
            return f"{name} (process {match[1]})"
    return None


def find_network_file_system(path: Path) -> str | None:
    """Return the kind of network file system that contains ``path``; None for a local one, or if unknown."""
    try:
        mounts = _MOUNTS.read_text("utf-8", "surrogateescape")
    except OSError:  # not Linux
        return None
    return find_network_kind(path.absolute(), mounts)


def find_network_kind(path: Path, mounts: str) -> str | None:
    """Return the same, by ``mounts`` in the form of ``/proc/self/mountinfo`` (man 5 proc)."""
    nearest, kind = -1, ""
    for line in mounts.splitlines():
        before, dash, after = line.partition(" - ")
        fields = before.split(" ")
        if not dash or len(fields) < 5:
            continue
        folder = Path(_ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[4]))
        # Of two mounts at the same folder, the later one hides the earlier one.
        if path.is_relative_to(folder) and len(folder.parts) >= nearest:
            nearest, kind = len(folder.parts), after.split(" ")[0]
    return kind if kind.removeprefix("fuse.") in _NETWORK else None
