"""Where a run lies: SQLite's log needs memory that all who open it share, and that ends with the computer."""

from __future__ import annotations

import re
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb2",
        "smb3",
        "smbfs",
        "9p",
        "afs",
        "ceph",
        "lustre",
        "gpfs",
        "beegfs",
        "glusterfs",
    }
)
_ESCAPED = re.compile(r"\\([0-7]{3})")


def network_file_system(path: Path) -> str | None:
    """The kind of network file system that ``path`` lies on; None if it lies on none, or that cannot be told."""
    try:
        mounts = _MOUNTS.read_text("utf-8", "surrogateescape")
    except OSError:  # not Linux
        return None
    return network_kind(path.absolute(), mounts)


def network_kind(path: Path, mounts: str) -> str | None:
    """The same, by ``mounts`` in the form of ``/proc/self/mountinfo`` (man 5 proc)."""
    nearest, kind = -1, ""
    for line in mounts.splitlines():
        before, dash, after = line.partition(" - ")
        fields = before.split(" ")
        if not dash or len(fields) < 5:
            continue
        folder = Path(_ESCAPED.sub(lambda found: chr(int(found[1], 8)), fields[4]))
        # Of two mounts at one place, the later one hides the earlier one.
        if path.is_relative_to(folder) and len(folder.parts) >= nearest:
            nearest, kind = len(folder.parts), after.split(" ")[0]
    name = kind.removeprefix("fuse.")
    return kind if name in _NETWORK or name == "sshfs" else None
