"""The data sets of an explorer: runs with the files beside them, and exports or archives in a cache."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sqlite3
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bactrian.errors import InputError, RunInUse
from bactrian.explore.index_upkeep import IndexUpkeep, end_process
from bactrian.explore.library_index import identify_run, prepare_index, read_index, read_meta, register_run
from bactrian.explore.session_lists import ListFilter, Listing
from bactrian.files.atomic import is_same_file, is_sqlite_file
from bactrian.records.session import Session
from bactrian.store import RunStore, is_run, open_store
from bactrian.store.care import is_locked
from bactrian.store.locations import MOST_FILES, name_files_folder
from bactrian.train.training_folder import is_training

if TYPE_CHECKING:
    from bactrian.explore.session_findings import KnownSession

# What a state counts, as sums over the facts.
_COUNTS = {
    "sessions": "count(*)",
    "texts": "sum(text_turns = turns)",
    "seen": "sum(seen_turns = turns)",
    "turns": "sum(turns)",
    # In the run.
    "last": "max(row) & 4294967295",
}

# What it says of the run itself.
_META = ("signature", "import", "size", "status", "problem")

# Seconds between attempts to write a run that another process writes; four in all. They do not grow: where others write
# all the time, long ones miss the moments in which nobody does.
_PAUSES = [0.04] * 100


@dataclass(slots=True)
class DataSet:
    """A run that is shown, or what was imported into one."""

    # Unique; part of addresses.
    name: str
    # The file or folder as it was named.
    source: Path
    # The run: ``source`` itself, or the cache that it is imported into.
    run: Path
    # The index, and the number of the run in it.
    index: Path
    number: int
    store: RunStore
    # Held by the page that writes the run.
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    # What indexes the run.
    upkeep: IndexUpkeep | None = None
    # The process that draws a map.
    drawing: asyncio.subprocess.Process | None = None

    @property
    def is_imported(self) -> bool:
        """True if the source is not a run."""
        return self.source != self.run

    @property
    def is_written(self) -> bool:
        """True if a process writes the run now."""
        return not self.is_imported and is_locked(self.run)

    def read_index(self) -> AbstractContextManager[sqlite3.Connection]:
        """Open the index for reading this run."""
        return read_index(self.index, [self.number])

    def list_ids(self, list_filter: ListFilter, *, red: bool = True) -> list[str]:
        """Return the ids of the sessions of this run that fit; unless ``red``, none that was made to study misuse."""
        return Listing(self.index, {self.number: self.name}, list_filter).list_ids(red=red)

    async def read_known(self, session: Session) -> KnownSession:
        """Return what the index knows about a session of this run, and what readers say of its findings."""
        # Imported here: the first page must not wait for the detectors.
        from bactrian.explore.session_findings import read_known

        answers = await self.store.confirmations(session=session.id)

        def read() -> KnownSession:
            with self.read_index() as index:
                return read_known(index, session, answers)

        return await asyncio.to_thread(read)

    def read_state(self) -> dict[str, Any]:
        """Return the numbers of sessions by stage of the index, and the state of the import."""
        with self.read_index() as index:
            counts = ", ".join(f"coalesce({count}, 0)" for count in _COUNTS.values())
            values = index.execute(f"SELECT {counts} FROM facts").fetchone()  # noqa: S608
            endings = index.execute("SELECT ending, count(*) FROM facts GROUP BY ending").fetchall()
            meta = {name: read_meta(index).get(name) for name in _META}
        return {**dict(zip(_COUNTS, values, strict=True)), "endings": dict(endings), **meta}

    def describe_writing(self) -> dict[str, Any] | None:
        """Return how far the run is, as ``bactrian status`` tells it; None if no process writes it."""
        if not self.is_written:
            return None
        with self.read_index() as index:
            return {"name": self.name, **json.loads(read_meta(index).get("status") or "{}")}

    async def stop_work(self) -> None:
        """End what indexes the run and what draws a map."""
        if self.upkeep is not None:
            await self.upkeep.stop()
        await end_process(self.drawing)


@dataclass(slots=True)
class Library:
    """All data sets, by name, and the index that they share with those of other explorers."""

    index: Path
    sets: dict[str, DataSet] = field(default_factory=dict[str, DataSet])
    # Folders that ``bactrian train`` wrote.
    trainings: dict[str, Path] = field(default_factory=dict[str, Path])

    def choose(self, names: Iterable[str]) -> Mapping[str, DataSet]:
        """Return the data sets with these names; all if none is named.

        Raises:
            InputError: a name is unknown.
        """
        chosen = tuple(names)
        if unknown := [name for name in chosen if name not in self.sets]:
            raise InputError(
                f"There is no data set {unknown[0]!r}.", where="data", next=f"Known: {', '.join(self.sets)}."
            )
        return {name: self.sets[name] for name in self.sets if not chosen or name in chosen}

    def list_writing(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Return how far those of some data sets are that processes write now; of all if none is named."""
        described = (data_set.describe_writing() for data_set in self.choose(names).values())
        return [told for told in described if told is not None]

    def list_sessions(self, list_filter: ListFilter) -> Listing:
        """Return the conversations that fit. Raises InputError if the filter names an unknown data set."""
        names = {data_set.number: name for name, data_set in self.choose(list_filter.data).items()}
        return Listing(self.index, names, list_filter)


@asynccontextmanager
async def open_library(paths: Iterable[Path]) -> AsyncGenerator[Library]:
    """Open the data sets at ``paths`` and start to index them. They are closed, and the work stops, at the end.

    Raises:
        InputError: a path is neither a run nor anything that can be imported.
        StoreError: a run is damaged, or of a newer version.
    """
    distinct = list(_list_distinct(paths))
    library = Library(prepare_index(*distinct[:1]))
    async with AsyncExitStack() as stack:
        for path in distinct:
            if is_training(path):
                library.trainings[_find_name(path, library.trainings)] = path
                continue
            await add_data_set(library, path, stack)
        yield library


@asynccontextmanager
async def open_for_page(run: Path) -> AsyncGenerator[RunStore]:
    """Open a run for what a page writes; wait a moment if another process is just writing such a thing.

    Raises:
        RunInUse: it is still being written.
    """
    async with AsyncExitStack() as stack:
        pauses = iter(_PAUSES)
        store: RunStore | None = None
        while store is None:
            try:
                store = await stack.enter_async_context(open_store(run))
            except RunInUse:
                if (pause := next(pauses, None)) is None:
                    raise
                await asyncio.sleep(pause)
        yield store


async def add_data_set(library: Library, path: Path, stack: AsyncExitStack) -> DataSet:
    """Open the data set at ``path`` until ``stack`` closes. Raises what :func:`open_library` raises."""
    is_database = _is_database(path)
    run = path if is_database else _find_cache(library.index.parent, path)
    if not is_database:
        # Imported here: few need it. It raises InputError if there is no conversation.
        from bactrian.ingest.chats import Origin
        from bactrian.ingest.importer import find_chats

        next(find_chats(path, None, Origin()))
        async with open_store(run):
            pass
    store = await stack.enter_async_context(open_store(run, read_only=True))
    number = await asyncio.to_thread(register_run, library.index, store.path, await identify_run(store))
    data_set = DataSet(_find_name(path, library.sets), path, run, library.index, number, store)
    library.sets[data_set.name] = data_set
    data_set.upkeep = IndexUpkeep(run, library.index, number, path if data_set.is_imported else None)
    data_set.upkeep.start()
    stack.push_async_callback(data_set.stop_work)
    return data_set


def _list_distinct(paths: Iterable[Path]) -> Iterator[Path]:
    seen: list[Path] = []
    for path in paths:
        if not any(is_same_file(path, other) for other in seen):
            seen.append(path)
            yield path


def _is_database(path: Path) -> bool:
    """Return True for an SQLite file, which the store then checks; anything else is imported."""
    if not path.exists():
        raise InputError("There is no such run, file or folder.", where=str(path), next="Check the path.")
    return not path.is_dir() and (is_run(path) or is_sqlite_file(path))


def _find_cache(folder: Path, path: Path) -> Path:
    """Return where the content of ``path`` is cached. A changed file has another place."""
    status = path.stat()
    key = f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"
    digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return folder / f"{_make_slug(path.stem)}-{digest}.db"


def _make_slug(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text).strip(".-")[:60] or "data"


def _find_name(path: Path, taken: Collection[str]) -> str:
    base = _make_slug(path.absolute().name.removesuffix(".db"))
    names = (base, *(f"{base}-{number}" for number in range(2, 1000)))
    return next(name for name in names if name not in taken)


# Files that an embodied agent made, which are kept beside the run.


# Types of pictures that are shown, by the ending of a name. In a picture, a browser runs no script.
PICTURES: Mapping[str, str] = {
    **{f".{kind}": f"image/{kind}" for kind in ("png", "jpeg", "gif", "webp")},
    ".jpg": "image/jpeg",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file of a session."""

    name: str
    path: Path
    # Bytes.
    size: int

    @property
    def picture(self) -> str:
        """The type of a picture that is shown; empty for other files."""
        return PICTURES.get(self.path.suffix.lower(), "")


def list_kept_files(run: Path, session: str) -> list[KeptFile]:
    """Return the files of a session by name. Links and folders are left out."""
    folder = name_files_folder(run, session)
    if folder.is_symlink() or folder.parent.is_symlink() or not folder.is_dir():
        return []
    paths = [path for path in sorted(folder.iterdir()) if path.is_file() and not path.is_symlink()]
    return [
        KeptFile(path.name, path, path.stat().st_size)
        for path in paths[:MOST_FILES]
        if not path.name.startswith(".")
    ]
