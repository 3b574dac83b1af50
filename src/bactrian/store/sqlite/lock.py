"""One writing process for each run: two that resume the same sessions would both pay for them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from bactrian.errors import InputError, StoreError


@contextmanager
def lock_run(path: Path) -> Generator[None]:
    """Keep the run at ``path`` from being opened for writing a second time.

    The operating system holds the lock, on a file beside the run, and lets it go when the process ends, however
    it ends. Readers are not concerned.

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
        yield
    finally:
        lock.release()


def _unwritable(path: Path) -> InputError:
    return InputError(
        "The run cannot be written.", where=str(path), next="Check the rights of file and folder."
    )
