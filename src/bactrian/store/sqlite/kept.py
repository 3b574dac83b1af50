"""The run in the user's data folder that keeps the sessions of ``play``."""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from bactrian.errors import BactrianError, BactrianWarning, RunInUse
from bactrian.store.base import Store
from bactrian.store.locations import list_play_files
from bactrian.store.sqlite.store import open_sqlite_store


@asynccontextmanager
async def open_first_run() -> AsyncGenerator[Store | None]:
    """Open the first run of plays that no other process writes; None, with a warning, if none can be written."""
    async with AsyncExitStack() as stack:
        yield await _open_first(stack)


async def _open_first(stack: AsyncExitStack) -> Store | None:
    problem: Exception | None = None
    try:
        for path in list_play_files():
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                return await stack.enter_async_context(open_sqlite_store(path))
            except RunInUse as error:
                problem = error
    except (BactrianError, OSError) as error:
        problem = error
    reason = str(problem).partition("\n")[0]
    warnings.warn(f"The session is not kept: {reason}", BactrianWarning, stacklevel=2)
    return None
