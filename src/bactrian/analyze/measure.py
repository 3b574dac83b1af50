"""Analyzes a whole run: a small one in a thread, a large one with one process per core."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bactrian.analyze.aggregate import Aggregate, aggregate_slice
from bactrian.analyze.behaviours.own import OwnBehaviour, find_installed
from bactrian.analyze.processes import map_parts
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
        processes: Number of processes, to which ``own`` is sent; 1 for this process only. None for one per core if
            the run is so large that they save time.

    Raises:
        InputError: the run has no session, or a behaviour of the user's own fails.
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
        async for part in map_parts(read, slices, 1 if alone else processes):
            if on_findings is not None:
                on_findings(part.findings)
                part.findings = []
            whole.merge(part)
            if on_progress is not None:
                on_progress(len(whole.facts), size)
    if not whole.facts:
        raise InputError(
            "The run has no session.", where=str(store.path), next="Generate or import some first."
        )
    return whole


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
