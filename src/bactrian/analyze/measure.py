"""Analyzes a whole run with one process per core."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bactrian.analyze.aggregate import Aggregate, aggregate_slice
from bactrian.analyze.behaviours.own import OwnBehaviour, find_installed
from bactrian.errors import InputError
from bactrian.records.finding import Finding
from bactrian.store import Rows, RunReader, open_store

_SLICE = 250
"""Sessions in a slice."""


async def measure(
    store: RunReader,
    on_findings: Callable[[list[Finding]], None] | None = None,
    on_progress: Callable[[int, int | None], None] | None = None,
    own: Sequence[OwnBehaviour] | None = None,
    *,
    processes: int | None = None,
) -> Aggregate:
    """Read every session of ``store`` once, whether the run is finished or not.

    Args:
        store: May be written by another process at the same time.
        on_findings: Called with the findings in the order of the sessions; they are not kept.
        on_progress: Called with the number of sessions read, and with their number in the run.
        own: User-defined behaviours; those of installed packages if None.
        processes: Number of processes. None for one per core, to which ``own`` is sent; 1 for this process only.

    Raises:
        InputError: the run holds no session, or a behaviour of the user's own fails.
        StoreError: it cannot be read.
    """
    own = find_installed() if own is None else tuple(own)
    keep_findings = on_findings is not None
    whole = Aggregate()
    async with store.snapshot() as run:
        slices = await run.slices(_SLICE)
        size = 0 if on_progress is None else len([None async for _ in run.progress()])
        if on_progress is not None:
            on_progress(0, size)
        # Each process opens its own snapshot; these are equal only if no process writes.
        alone = processes == 1 or await run.is_open()
        if alone:
            read = partial(_read_snapshot, run, own, keep_findings=keep_findings)
        else:
            read = partial(_read, store.source, own, keep_findings=keep_findings)
        async for part in _parts(read, slices, 1 if alone else processes or os.cpu_count() or 1):
            if on_findings is not None:
                on_findings(part.findings)
                part.findings = []
            whole.merge(part)
            if on_progress is not None:
                on_progress(len(whole.facts), size)
    if not whole.facts:
        raise InputError(
            "The run holds no session.", where=str(store.path), next="Generate or import some first."
        )
    return whole


async def _parts(
    read: Callable[[Rows], Aggregate], slices: list[Rows], processes: int
) -> AsyncIterator[Aggregate]:
    """Yield the slices in order; only a few are read ahead."""
    workers = min(len(slices), processes)
    if workers < 2:
        for rows in slices:
            yield await asyncio.to_thread(read, rows)
        return
    # Spawned, because a fork would share the open database and the locks of threads.
    with _without_working_folder():
        pool = ProcessPoolExecutor(
            workers, multiprocessing.get_context("spawn"), initializer=_ignore_interrupts
        )
    loop = asyncio.get_running_loop()
    waiting: list[asyncio.Future[Aggregate]] = []
    try:
        for rows in slices:
            with _without_working_folder():
                waiting.append(loop.run_in_executor(pool, read, rows))
            if len(waiting) > 2 * workers:
                yield await waiting.pop(0)
        while waiting:
            yield await waiting.pop(0)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _read_snapshot(
    run: RunReader, own: Sequence[OwnBehaviour], rows: Rows, *, keep_findings: bool
) -> Aggregate:
    return asyncio.run(aggregate_slice(run.sessions(rows), own, keep_findings=keep_findings))


def _read(path: Path, own: Sequence[OwnBehaviour], rows: Rows, *, keep_findings: bool) -> Aggregate:
    return asyncio.run(_read_rows(path, own, rows, keep_findings=keep_findings))


async def _read_rows(
    path: Path, own: Sequence[OwnBehaviour], rows: Rows, *, keep_findings: bool
) -> Aggregate:
    async with open_store(path, read_only=True) as store:
        return await aggregate_slice(store.sessions(rows), own, keep_findings=keep_findings)


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


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C, which the main process handles."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
