"""Reads the parts of a run with one process per core."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TypeVar

from bactrian.errors import BactrianError

S = TypeVar("S")
T = TypeVar("T")


async def map_parts(
    read: Callable[[S], T], parts: Sequence[S], processes: int | None = None
) -> AsyncIterator[T]:
    """Yield what ``read`` returns for each part, in order; only a few parts are read ahead.

    Args:
        read: Is sent to the processes, so a function of a module, or a ``partial`` of one.
        parts: What to read, such as ranges of rows.
        processes: Their number at most. None for one per core; 1 for a thread of this process.

    Raises:
        BactrianError: one of the processes was killed.
    """
    workers = min(len(parts), processes or os.cpu_count() or 1)
    if workers < 2:
        for part in parts:
            yield await asyncio.to_thread(read, part)
        return
    # Spawned, because a fork would share the open database and the locks of threads.
    with _without_working_folder():
        pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_begin)
    loop = asyncio.get_running_loop()
    waiting: list[asyncio.Future[T]] = []
    try:
        for part in parts:
            with _without_working_folder():
                waiting.append(loop.run_in_executor(pool, read, part))
            if len(waiting) > 2 * workers:
                yield await waiting.pop(0)
        while waiting:
            yield await waiting.pop(0)
    except BrokenProcessPool as error:
        raise BactrianError(
            "A process that read the run was killed, probably for lack of memory. Nothing was written.",
            next="Free some memory, and run the same command.",
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _without_working_folder() -> Generator[None]:
    """Start processes that do not import modules from the working folder, as ``python -c`` does by default."""
    name = "PYTHONSAFEPATH"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _begin() -> None:
    """Ignore Ctrl-C, which the main process handles, and end with it even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
