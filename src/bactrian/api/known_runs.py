"""The runs that this user knows: here and in databases, of plays without a name, and the nearest to a wrong name."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bactrian.api.bridge import run_sync
from bactrian.errors import BactrianError, BactrianWarning, InputError, RunInUse
from bactrian.files.recent_runs import add_recent_run, list_recent_runs
from bactrian.store import RunStore, find_address, is_run, name_run, open_store
from bactrian.store.locations import RunAddress, find_data_folder, find_runs, locate_run

if TYPE_CHECKING:
    from bactrian.runs.forecast import Forecast
    from bactrian.runs.wiring import RunOrder
    from bactrian.shared.reading import WorkerState


def check_exists(run: Path) -> None:
    """Refuse a run that is not there, with the name of the nearest: beside it, in the data folder, or used lately.

    Raises:
        InputError: there is no such file, and a run with a similar name.
    """
    if find_address(run):
        return
    if run.exists():
        add_recent_run(run)
        return
    near = [*find_runs(find_data_folder()), *find_runs(run.parent)]
    names = {word: path for path in near for word in (path.name, path.stem)}
    # Of other folders without the suffix, which makes all short names similar.
    used = {path.stem: path for path in filter(is_run, list_recent_runs())}
    for word, known in ((run.name, names), (run.stem, used)):
        for found in get_close_matches(word, known, n=1, cutoff=0.75):
            raise InputError(
                f"There is no such run. Did you mean {name_run(known[found])}?",
                where=str(run),
                next="`bactrian runs` lists the runs.",
            )


# The runs in which ``play`` keeps the sessions that name none.


PLAYS = "plays"
"""The name of the runs in which ``play`` keeps its sessions: ``plays.db``, ``plays-2.db`` and so on."""
_MOST = 1000
"""Plays at the same time."""


def list_play_files() -> Iterator[Path]:
    """Yield the files in which ``play`` may keep its sessions: one process writes a file, so each tries the next."""
    folder = find_data_folder()
    for number in range(1, _MOST):
        yield folder / (f"{PLAYS}.db" if number == 1 else f"{PLAYS}-{number}.db")


@asynccontextmanager
async def open_kept_run() -> AsyncGenerator[RunStore | None]:
    """Open the first run of plays that no other process writes; None, with a warning, if none can be written."""
    problem: Exception | None = None
    async with AsyncExitStack() as stack:
        store = None
        for path in list_play_files():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                store = await stack.enter_async_context(open_store(path))
                break
            except (BactrianError, OSError) as error:
                problem = error
                if not isinstance(error, RunInUse):
                    break
        if store is None:
            reason = str(problem).partition("\n")[0]
            warnings.warn(f"The session is not kept: {reason}", BactrianWarning, stacklevel=2)
        yield store


# Shared runs: reading them where they are, and copies of them.


_REFRESH_SECONDS = 10.0
"""Between two refreshes of a copy that a person looks at."""
_LONGEST_WAIT = 60.0
"""Seconds that a command waits for another one that copies the same run."""
_REST = 9
"""Times as long as a refresh takes, it is rested afterwards."""


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


async def forecast_anywhere(order: RunOrder) -> Forecast:
    """Estimate what is left of a run; of a shared run, by what its database contains.

    Raises:
        InputError: the run cannot be read.
    """
    # They take long to load.
    from bactrian.api.endpoints import read_terms
    from bactrian.runs.forecast import forecast_run

    if find_address(order.run) is None or await asyncio.to_thread(read_terms, order.run) is None:
        return await forecast_run(order)
    async with open_anywhere(order.run) as (store, _):
        return await forecast_run(order, store)


def find_copy(run: str | Path) -> Path:
    """Return the file of a run; that of a shared run is copied or brought up to date.

    Raises:
        InputError: the address, the database or the file cannot be used.
        StoreError: the file cannot be written.
    """
    file, began = locate_run(run), time.monotonic()
    while find_address(file):
        try:
            pull(file, file)
            break
        except RunInUse:  # another command brings it up to date
            if time.monotonic() - began > _LONGEST_WAIT:
                raise
            time.sleep(0.2)
    return file


def pull(run: str | Path, file: str | Path) -> int:
    """Copy a shared run to ``file``, or what it lacks of the run; return the number of sessions that were read.

    Raises:
        InputError: ``run`` is no address, the database cannot be used, or the file is another run.
        StoreError: the file cannot be written.
    """
    from bactrian.shared.reading import pull_run

    return pull_run(_need_address(run), Path(file))


def push(run: str | Path, address: str | Path) -> int:
    """Copy a run to a database, where any number of processes continue it; return the number of its sessions.

    Raises:
        InputError: the database cannot be used, or holds such a run already.
        StoreError: the run cannot be read.
    """
    from bactrian.api.status import read_facts  # which takes long to load
    from bactrian.shared.reading import WorkDone, push_run

    async def read() -> WorkDone:
        async with open_store(file, read_only=True) as store:
            facts = await read_facts(store)
        endings = Counter({code: share.count for code, share in facts.endings.items()})
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


async def refresh_during(
    work: Coroutine[Any, Any, int], runs: Iterable[Path], say: Callable[[str], object]
) -> int:
    """Do ``work`` and return its result. Meanwhile the copies of shared ``runs`` are brought up to date.

    ``say`` is told once why that fails; it is tried again.
    """
    shared = [run for run in runs if find_address(run)]

    async def refresh() -> None:
        told = ""
        while shared:
            began = time.monotonic()
            await asyncio.sleep(_REFRESH_SECONDS)
            for run in shared:
                try:
                    await asyncio.to_thread(pull, run, run)
                    told = ""
                except BactrianError as error:
                    if str(error) != told:
                        told = str(error)
                        say(told)
            # A large run, whose reading takes long, is read less often.
            await asyncio.sleep(_REST * (time.monotonic() - began - _REFRESH_SECONDS))

    refreshing = asyncio.create_task(refresh())
    try:
        return await work
    finally:
        refreshing.cancel()
        with suppress(asyncio.CancelledError):
            await refreshing
