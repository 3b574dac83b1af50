"""One writing process for each run: two that resume the same sessions would both pay for them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from bactrian.errors import InputError, StoreError


class RunLock:
    """The right to write a run. It ends when the run, or the file of the lock, is deleted or replaced."""

    def __init__(self, path: Path, lock_file: Path) -> None:
        self._path = path
        self._lock_file = lock_file
        self._identities = {lock_file: _identify(lock_file)}

    def guard_run(self) -> None:
        """From now on notice, too, if the run itself is deleted or replaced."""
        self._identities[self._path] = _identify(self._path)

    def check(self) -> None:
        """Raise StoreError if the right has ended. The operating system's lock is on a file, and not on its name."""
        for file, identity in self._identities.items():
            if identity is None or _identify(file) != identity:
                lost = "its lock" if file == self._lock_file else "the file"
                raise StoreError(
                    f"The run was taken away while it was written: {lost} ({file.name}) was deleted or replaced, so "
                    "another process may write it now.",
                    where=str(self._path),
                    next="What was written before is kept. See that nothing else writes it, and run the same command.",
                )


@contextmanager
def lock_run(path: Path) -> Generator[RunLock]:
    """Keep the run at ``path`` from being opened for writing a second time.

    The operating system holds the lock, on a file beside the run, and lets it go when the process ends, however
    it ends. Readers are not concerned. What is yielded tells, before each commit, whether the lock still holds.

    Raises:
        StoreError: another process, or another part of this one, writes the run.
        InputError: the lock's file cannot be written.
    """
    file = path.with_name(f"{path.name}.lock")
    lock = FileLock(file, blocking=False, is_singleton=False)
    try:
        lock.acquire()
    except Timeout as error:
        if not file.exists():
            raise _unwritable(path) from error
        raise StoreError(
            "The run is being written by another process.",
            where=str(path),
            next="Let it finish or stop it first. Reading works meanwhile.",
        ) from error
    except OSError as error:
        raise _unwritable(path) from error
    try:
        yield RunLock(path, file)
    finally:
        lock.release()


def _identify(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _unwritable(path: Path) -> InputError:
    return InputError(
        "The run cannot be written.", where=str(path), next="Check the rights of file and folder."
    )
