"""The data sets of an explorer: runs, and exports or archives that are imported into a cache beside them."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import sqlite3
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from bactrian.errors import InputError
from bactrian.explore.index_upkeep import IndexUpkeep, end_process
from bactrian.explore.side_file import find_side_file, read_meta, read_side_file
from bactrian.files.atomic import is_same_file, is_sqlite_file
from bactrian.roleplay.embodied import MOST_FILES
from bactrian.store import RunStore, is_run, open_store
from bactrian.store.locations import name_files_folder
from bactrian.train.training_folder import is_training

# What a state counts, as sums over the facts.
_COUNTS = {
    "sessions": "count(*)",
    "texts": "sum(text_turns = turns)",
    "seen": "sum(seen_turns = turns)",
    "turns": "sum(turns)",
    "tokens": "sum(tokens)",
    "last": "max(row)",
}


@dataclass(slots=True)
class DataSet:
    """A run that is shown, or what was imported into one."""

    # Unique; part of addresses.
    name: str
    # The file or folder as it was named.
    source: Path
    # The run: ``source`` itself, or the cache that it is imported into.
    run: Path
    side: Path
    store: RunStore
    # Held by the page that writes the run.
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    # What builds the side file.
    upkeep: IndexUpkeep | None = None
    # The process that draws a map.
    drawing: asyncio.subprocess.Process | None = None

    @property
    def is_imported(self) -> bool:
        """True if the source is not a run."""
        return self.source != self.run

    def read_state(self) -> dict[str, Any]:
        """Return the numbers of sessions by stage of the index, and the state of the import."""
        state: dict[str, Any] = {**dict.fromkeys(_COUNTS, 0), "endings": {}, "cost": None}
        with suppress(sqlite3.OperationalError), read_side_file(self.side) as side:
            counts = ", ".join(f"coalesce({count}, 0)" for count in _COUNTS.values())
            values = side.execute(f"SELECT {counts} FROM facts").fetchone()  # noqa: S608
            cost = side.execute("SELECT sum(cost) FROM facts WHERE cost >= 0").fetchone()[0]
            endings = side.execute("SELECT ending, count(*) FROM facts GROUP BY ending").fetchall()
            meta = {name: read_meta(side).get(name) for name in ("signature", "import")}
            state = {
                **dict(zip(_COUNTS, values, strict=True)),
                "endings": dict(endings),
                "cost": cost,
                **meta,
            }
        return state

    async def stop_work(self) -> None:
        """End what builds the side file and what draws a map."""
        if self.upkeep is not None:
            await self.upkeep.stop()
        await end_process(self.drawing)


@dataclass(slots=True)
class Library:
    """All data sets, by name."""

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

    def list_sides(self, names: Iterable[str] = ()) -> dict[str, Path]:
        """Return the side files that exist, by name of the data set."""
        sides = {name: data_set.side for name, data_set in self.choose(names).items()}
        return {name: side for name, side in sides.items() if side.exists()}


@asynccontextmanager
async def open_library(paths: Iterable[Path]) -> AsyncGenerator[Library]:
    """Open the data sets at ``paths`` and start to index them. They are closed, and the work stops, at the end.

    Raises:
        InputError: a path is neither a run nor anything that can be imported.
        StoreError: a run is damaged, or of a newer version.
    """
    library = Library()
    async with AsyncExitStack() as stack:
        for path in _list_distinct(paths):
            if is_training(path):
                library.trainings[_find_name(path, library.trainings)] = path
                continue
            await add_data_set(library, path, stack)
        yield library


async def add_data_set(library: Library, path: Path, stack: AsyncExitStack) -> DataSet:
    """Open the data set at ``path`` until ``stack`` closes. Raises what :func:`open_library` raises."""
    is_database = _is_database(path)
    run = path if is_database else _find_cache(path)
    if not is_database:
        # Imported here: few need it. It raises InputError if there is no conversation.
        from bactrian.ingest.importer import find_chats
        from bactrian.ingest.parsed import Origin

        next(find_chats(path, None, Origin()))
        run.parent.mkdir(parents=True, exist_ok=True)
        async with open_store(run):
            pass
    store = await stack.enter_async_context(open_store(run, read_only=True))
    side = find_side_file(store.path)
    if not os.access(side.parent, os.W_OK):
        side = find_side_file(_find_cache(store.path))
        side.parent.mkdir(parents=True, exist_ok=True)
    data_set = DataSet(_find_name(path, library.sets), path, run, side, store)
    library.sets[data_set.name] = data_set
    data_set.upkeep = IndexUpkeep(run, side, path if data_set.is_imported else None)
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


def _find_cache(path: Path) -> Path:
    """Return where the content of ``path`` is cached. A changed file has another place."""
    status = path.stat()
    key = f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"
    digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return user_cache_path("bactrian") / "explore" / f"{_make_slug(path.stem)}-{digest}.db"


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
