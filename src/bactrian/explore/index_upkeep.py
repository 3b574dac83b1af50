"""Decides in which process the index of a run is kept up to date, and begins and ends the work.

``python -m bactrian.explore.index_upkeep RUN INDEX NUMBER [SOURCE]`` is the process for a large run: pages stay fast
while it works. Conversations in ``SOURCE`` are imported into the run. It ends with its parent, or when nothing is left
to do; another one begins when the run changes.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from contextlib import closing, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from bactrian.explore.library_index import read_index, read_meta, read_signature
from bactrian.store.locations import name_verdicts

# Seconds without anything to do after which the process ends, and between two looks at the run afterwards.
_PATIENCE, _EVERY = 5.0, 1.0
# How it ends if the run cannot be read.
_UNREADABLE = 3
# Bytes of a run that are indexed in less time than a process takes to start.
_SMALL = 1_000_000


@dataclass(slots=True)
class IndexUpkeep:
    """Keeps the index of a run up to date: in this process while its run is small, and then in a process of its own."""

    run: Path
    index: Path
    # Of the run in the index.
    number: int
    # Conversations that are imported into the run, always by a process of its own.
    source: Path | None = None
    _task: asyncio.Task[None] | None = None
    _process: asyncio.subprocess.Process | None = None

    def start(self) -> None:
        """Begin; needs a running event loop."""
        self._task = asyncio.create_task(self._keep_up())

    @property
    def has_failed(self) -> bool:
        """True if the work ended before its time."""
        if self._process is not None:
            return self._process.returncode not in (None, 0, _UNREADABLE)
        task = self._task
        return task is not None and task.done() and not task.cancelled() and task.exception() is not None

    async def stop(self) -> None:
        """End the work; the next start continues from there."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await end_process(self._process)

    async def _keep_up(self) -> None:
        if self.source is None and self._is_small():
            # Imported in a thread: the first page does not wait for it.
            builder = await asyncio.to_thread(import_module, "bactrian.explore.index_builder")
            if not await builder.follow_run(self.run, self.index, self.number, self._is_small):
                return
        source = [] if self.source is None else [str(self.source)]
        while True:
            self._process = await start_process(
                __name__, str(self.run), str(self.index), str(self.number), *source
            )
            await self._process.wait()
            if self.has_failed:
                return
            is_read = self._process.returncode == 0
            seen = await asyncio.to_thread(self._read_known) if is_read else self._read_signatures()
            while self._read_signatures() == seen:  # noqa: ASYNC110  a file that changes is no event
                await asyncio.sleep(_EVERY)

    def _read_signatures(self) -> tuple[str, str]:
        """Return what changes when the run, or the file of the verdicts on its code, does."""
        return read_signature(self.run), read_signature(name_verdicts(self.run))

    def _read_known(self) -> tuple[str, str]:
        """Return those that the index was brought up to date with."""
        with read_index(self.index, [self.number]) as index:
            known = read_meta(index)
        return known.get("signature", ""), known.get("verdicts") or ""

    def _is_small(self) -> bool:
        log = self.run.with_name(f"{self.run.name}-wal")
        size = sum(path.stat().st_size for path in (self.run, log) if path.exists())
        return size < _SMALL or _count_bytes(self.run, size) < _SMALL


async def start_process(module: str, *arguments: str) -> asyncio.subprocess.Process:
    """Start a Python process that runs a module of the explorer."""
    # -P: no module is taken from the working folder.
    return await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", module, *arguments, stdin=asyncio.subprocess.DEVNULL
    )


async def end_process(process: asyncio.subprocess.Process | None) -> None:
    """End a process, if it runs."""
    if process is not None and process.returncode is None:
        process.terminate()
        await process.wait()


def _count_bytes(run: Path, files: int) -> int:
    """Return the bytes of ``run`` without repetitions: the log of a run that is being written has pages many times.

    It returns ``files``, the size of its files, if the run cannot be opened.
    """
    uri = f"{run.absolute().as_uri()}?mode=ro"
    query = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
    with suppress(sqlite3.Error), closing(sqlite3.connect(uri, uri=True)) as connection:
        return connection.execute(query).fetchone()[0]
    return files


def main() -> None:
    """Run until the parent ends."""
    # Not at the top: the processes that search for behaviours import this module, too, and need less.
    from bactrian.explore.index_builder import follow_run

    os.nice(10)
    parent = os.getppid()
    run, index, number, *source = sys.argv[1:]
    with suppress(KeyboardInterrupt):
        paths = Path(run), Path(index)
        origin = Path(source[0]) if source else None
        following = follow_run(
            *paths, int(number), lambda: os.getppid() == parent, origin, patience=_PATIENCE
        )
        sys.exit(0 if asyncio.run(following) else _UNREADABLE)


if __name__ == "__main__":
    main()
