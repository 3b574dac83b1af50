"""Shared runs: reading them where they are, and copies of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bactrian.api.bridge import run_sync
from bactrian.errors import InputError
from bactrian.records.session import UNFINISHED
from bactrian.store import RunAddress, RunStore, find_address, locate_run, open_store

if TYPE_CHECKING:
    from bactrian.shared.reading import WorkerState


@asynccontextmanager
async def open_anywhere(run: Path) -> AsyncGenerator[tuple[RunStore, Sequence[WorkerState]]]:
    """Open a run to read it as it is now: a file, or a shared run in its database, with the processes that make it.

    Raises:
        InputError: the file is not a run, or the database cannot be used.
        StoreError: it cannot be read.
    """
    if (address := find_address(run)) is None:
        async with open_store(run, read_only=True) as opened, opened.snapshot() as store:
            yield store, ()
        return
    from bactrian.shared.reading import open_reader

    async with open_reader(address, run) as shared:
        yield shared


def pull(run: str | Path, file: str | Path) -> int:
    """Copy a shared run to ``file``, or what it lacks of the run; return the number of sessions that were read.

    Raises:
        InputError: ``run`` is no address, the database cannot be used, or the file is another run.
        StoreError: the file cannot be written.
    """
    from bactrian.shared.copies import pull_run

    return pull_run(_need_address(run), Path(file))


def push(run: str | Path, address: str | Path) -> int:
    """Copy a run to a database, where any number of processes continue it; return the number of its sessions.

    Raises:
        InputError: the database cannot be used, or holds such a run already.
        StoreError: the run cannot be read.
    """
    from bactrian.api.facts import read_facts  # which takes long to load
    from bactrian.shared.copies import push_run
    from bactrian.shared.reading import WorkDone

    async def read() -> WorkDone:
        async with open_store(file, read_only=True) as store:
            facts = await read_facts(store)
        endings = Counter({code: share.count for code, share in facts.endings.items() if code != UNFINISHED})
        return WorkDone(facts.spending.usage, facts.spending.usd or 0.0, facts.messages, endings)

    file, there = Path(run), _need_address(address)
    return push_run(file, there, run_sync(read()))


def _need_address(run: str | Path) -> RunAddress:
    address = find_address(locate_run(run))
    if address is None:
        raise InputError(
            "This is not the address of a shared run.",
            where=str(run),
            next="Write it as postgresql://USER@HOST/DATABASE.",
        )
    return address
