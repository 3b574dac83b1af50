"""Analyzes a whole run: a small one in a thread, a large one with one process per core."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TypeVar

from bactrian.analyze.aggregate import Aggregate, aggregate_slice
from bactrian.analyze.behaviours import OwnBehaviour, find_installed
from bactrian.errors import BactrianError, InputError
from bactrian.records.run import Finding
from bactrian.store import Rows, RunStore, open_store

S = TypeVar("S")
T = TypeVar("T")
_START = 1.2  # seconds of CPU time that a process takes until it reads: measured, nearly all of it imports


async def map_parts(
    read: Callable[[S], T], parts: Sequence[S], processes: int | None = None
) -> AsyncIterator[T]:
    """Yield what ``read`` returns for each part, in order; only a few parts are read ahead.

    Args:
        read: Is sent to the processes, so a function of a module, or a ``partial`` of one.
        parts: What to read, such as ranges of rows, each about as much work.
        processes: Their number at most; 1 for a thread of this process. None for one per core, once the parts that a
            thread has read show that these would save more time than they take to start.

    Raises:
        BactrianError: one of the processes was killed.
    """
    workers = min(len(parts), processes or os.cpu_count() or 1)
    apart = workers > 1 and processes is not None
    done = 0
    while done < len(parts) and not apart:
        began = time.process_time()
        yield await asyncio.to_thread(read, parts[done])
        done += 1
        apart = _saves_time(time.process_time() - began, len(parts) - done, workers)
    if apart:
        async for result in _read_apart(read, parts[done:], workers):
            yield result


def _saves_time(each: float, left: int, workers: int) -> bool:
    """Return True if processes, with ``left`` parts of ``each`` seconds, save more than their start takes."""
    return each * left * (1 - 1 / max(1, min(workers, left))) > _START


async def _read_apart(read: Callable[[S], T], parts: Sequence[S], workers: int) -> AsyncIterator[T]:
    """Yield what ``read`` returns for each part, in order; ``workers`` processes read."""
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
        for future in waiting:
            # asyncio would report the failure of each that nobody asks for. None is cancelled: the thread of a broken
            # pool sets the failure of each, and would itself fail at one that is.
            future.add_done_callback(lambda ended: ended.cancelled() or ended.exception())


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
    """Ignore Ctrl-C, which the main process handles, and end with it even if it is killed.

    What is imported by now stays: the garbage collector need not look at it for each slice.
    """
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


_SLICE = 250  # sessions in a slice


async def measure(
    store: RunStore,
    on_findings: Callable[[list[Finding]], None] | None = None,
    on_progress: Callable[[int, int | None], None] | None = None,
    custom: Sequence[OwnBehaviour] | None = None,
    *,
    only: frozenset[str] | None = None,
    processes: int | None = None,
) -> Aggregate:
    """Read every session of ``store`` once, whether the run is finished or not.

    Args:
        store: May be written by another process at the same time.
        on_findings: Called with the findings in the order of the sessions; they are not kept.
        on_progress: Called with the number of sessions read, and with their number in the run.
        custom: User-defined behaviours; those of installed packages if None.
        only: Ids of the sessions that count; None for all.
        processes: Number of processes, to which ``custom`` is sent; 1 for this process only. None for one per core if
            the run is so large that they save time.

    Raises:
        InputError: the run has no session, or a behaviour of the user's own fails.
        StoreError: it cannot be read.
    """
    custom = find_installed() if custom is None else tuple(custom)
    keep_findings = on_findings is not None
    whole = Aggregate()
    async with store.snapshot() as run:
        slices = await run.slices(_SLICE)
        size = 0 if on_progress is None else len([None async for _ in run.progress()])
        if on_progress is not None:
            on_progress(0, size)
        # Each process opens its own snapshot; these are equal only if no process writes.
        alone = processes == 1 or await run.is_open()
        read = partial(_read, run if alone else store.source, custom, only, keep_findings=keep_findings)
        async for part in map_parts(read, slices, 1 if alone else processes):
            if on_findings is not None:
                on_findings(part.findings)
                part.findings = []
            whole.merge(part)
            if on_progress is not None:
                on_progress(len(whole.facts), size)
        whole.settle(await run.answers())
    if not whole.facts:
        raise InputError(
            "The run has no session.", where=str(store.path), next="Generate or import some first."
        )
    return whole


def _read(
    source: RunStore | Path,
    custom: Sequence[OwnBehaviour],
    only: frozenset[str] | None,
    rows: Rows,
    *,
    keep_findings: bool,
) -> Aggregate:
    async def read() -> Aggregate:
        opened = nullcontext(source) if isinstance(source, RunStore) else open_store(source, read_only=True)
        async with opened as store:
            counted = (each async for each in store.sessions(rows) if only is None or each.id in only)
            return await aggregate_slice(counted, custom, keep_findings=keep_findings)

    return asyncio.run(read())
