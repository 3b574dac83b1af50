"""The lock of a run, which one process writes at a time, and the file system around it."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Generator
from contextlib import contextmanager, suppress
from errno import ELOOP
from pathlib import Path

from bactrian.errors import InputError, RunInUse, StoreError

# The file system around a run: links, free space, lock holders and network mounts.


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


def find_log(path: Path) -> Path:
    """Return the write-ahead log of the database at ``path``."""
    return path.with_name(f"{path.name}-wal")


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


# The lock of a run: one process writes it at a time.


# For the file of a lock may just be deleted by the previous writer. Short, since the event loop waits, too.
_PATIENCE_SECONDS = 0.006


class RunLock:
    """The lock for writing a run. It is lost if the run is deleted or replaced, but not with the lock's file."""

    def __init__(self, path: Path, lock_file: Path) -> None:
        self._path = path
        self._lock_file = lock_file
        self._identity = _identify(lock_file)
        self._run: tuple[int, int] | None = None
        self._handle = -1

    def guard_run(self) -> None:
        """Lock the open run's log, too, so that a process that finds no lock beside the run does not write it.

        Not the run: closing any handle of it drops the locks of this process's readers. SQLite does not lock the log.

        Raises:
            RunInUse: another process writes the run, whose lock was deleted.
        """
        self._run = _identify(self._path)
        if find_network_file_system(self._path):
            return  # There, this lock and those of SQLite would be the same.
        self._handle = os.open(find_log(self._path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _explain_in_use(self._path) from error

    def close(self) -> None:
        """Unlock the log."""
        if self._handle >= 0:
            os.close(self._handle)

    def remove_file(self) -> None:
        """Delete the lock's file while the lock is held, so that nothing is left beside a run at rest.

        A process that opened the file before, and locks it after, finds that its name is gone: `filelock` then opens
        it again, and otherwise :meth:`check` stops that process before it writes.
        """
        with suppress(OSError):
            if _identify(self._lock_file) == self._identity:
                self._lock_file.unlink()

    def check(self) -> None:
        """Raise StoreError if the lock is lost. The operating system locks a file, not its name."""
        if self._run is None or _identify(self._path) != self._run:
            raise StoreError(
                "The run was deleted or replaced while it was written, so another process may write it now.",
                where=str(self._path),
                next="Data written before is safe. Stop other writers, then run the same command.",
            )


def _explain_in_use(path: Path) -> RunInUse:
    return RunInUse(
        "The run is being written by another process, or by another call in this one.",
        where=str(path),
        next="Wait for it or stop it, or write to a file of its own. Reading works meanwhile.",
    )


@contextmanager
def lock_run(path: Path) -> Generator[RunLock]:
    """Lock the run at ``path`` against a second writer.

    The operating system holds the lock on a file beside the run and releases it when the process ends, even after a
    crash. Readers are not affected. The yielded lock checks before each commit that it is still held.

    Raises:
        StoreError: another process, or another part of this one, writes the run.
        InputError: the lock's file cannot be written, or the run has a hard link.
    """
    if path.exists() and path.stat().st_nlink > 1:
        raise InputError(
            "The run has a second name (a hard link), under which another process could write it.",
            where=str(path),
            next="Delete one of the names, or write a copy of the run.",
        )
    # The package takes long to import, and a play that is not stored needs no lock.
    from filelock import FileLock, Timeout

    file = path.with_name(f"{path.name}.lock")
    lock = FileLock(file, timeout=_PATIENCE_SECONDS, is_singleton=False)
    try:
        lock.acquire(poll_interval=_PATIENCE_SECONDS / 5)
    except OSError as error:
        if isinstance(error, Timeout) and file.exists():
            raise _explain_in_use(path) from error
        raise InputError(
            "The run cannot be written.", where=str(path), next="Check the permissions of file and folder."
        ) from error
    run_lock = RunLock(path, file)
    try:
        yield run_lock
    finally:
        run_lock.close()
        run_lock.remove_file()
        lock.release()


def _identify(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
