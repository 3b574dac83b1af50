"""The runs that this user knows: those of plays without a name, and the nearest to a name that is wrong."""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from difflib import get_close_matches
from pathlib import Path

from bactrian.errors import BactrianError, BactrianWarning, InputError, RunInUse
from bactrian.files.recent_runs import add_recent_run, list_recent_runs
from bactrian.store import RunStore, find_address, is_run, name_run, open_store
from bactrian.store.locations import find_data_folder, find_runs


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
