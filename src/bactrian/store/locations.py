"""Where runs are: the user's data folder, runs by name, and addresses of runs in PostgreSQL."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PosixPath
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from platformdirs import user_data_dir

from bactrian.errors import InputError
from bactrian.files.recent_runs import list_recent_runs
from bactrian.records.text import to_file_name
from bactrian.store.database import is_run

# The address of a run that is in a PostgreSQL database, and the file that holds a copy of it.


_SCHEMES = ("postgresql://", "postgres://")
_SECRET = re.compile(r"pass(?!file)|pwd|secret", re.IGNORECASE)
"""What libpq's names for a password are like, and what a person may take for one."""
LEASES = 1.0, 3600.0
"""The shortest and the longest lease, in seconds."""
KEEP_ELSEWHERE = (
    "Keep it in ~/.pgpass (or the file of PGPASSFILE), in a service file (?service=NAME) or in PGPASSWORD, and leave "
    "it out of the address."
)


@dataclass(frozen=True, slots=True)
class RunAddress:
    """Where a shared run is. It never contains a password."""

    text: str
    """As a person gives it again."""
    connection: str
    """For libpq: without the name of the run and the lease."""
    run: str
    """The name of the run in its database; empty for the only one."""
    lease: float | None
    """Seconds without a sign of life after which others take over the jobs of a worker; None for the run's own."""

    @property
    def schema(self) -> str:
        """The schema of the database that holds the tables of the run."""
        return f"bactrian_{self.run}" if self.run else "bactrian"

    def __str__(self) -> str:
        return self.text


class SharedRun(PosixPath):
    """The file that holds the copy of a shared run on this computer; it may be missing."""

    address: RunAddress | None = None
    """None for a path that was derived from this one."""


def is_address(text: object) -> bool:
    """Return True if ``text`` is an address and not a path."""
    return isinstance(text, str) and text.lower().startswith(_SCHEMES)


def find_address(path: object) -> RunAddress | None:
    """Return the address of the run that ``path`` is a copy of; None if it is a file of its own."""
    return path.address if isinstance(path, SharedRun) else None


def read_address(text: str) -> RunAddress:
    """Read the address of a shared run.

    Raises:
        InputError: it cannot be used, or contains a password.
    """
    try:
        parts = urlsplit(text)
        query = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError as error:
        raise InputError("The address of the run cannot be read.", next=_EXAMPLE) from error
    user, _, host = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    if "@" in f"{parts.path}{parts.query}{parts.fragment}" or ";" in parts.path:
        # The end of a password with such a sign would be shown as what follows the host.
        raise InputError(
            "The address contains / ? # ; or @ where none belongs.", next=f"{_EXAMPLE} {KEEP_ELSEWHERE}"
        )
    hidden = [key for key, _ in query if _SECRET.search(key)]
    options = _write_query((key, value) for key, value in query if key not in hidden)
    shown = f"postgresql://{f'{name}@' * bool(name)}{host}{parts.path}{'?' * bool(options)}{options}"
    if password or hidden:
        raise InputError("The address contains a password.", where=shown, next=KEEP_ELSEWHERE)
    given = dict(query)
    run, lease = given.pop("run", ""), given.pop("lease", None)
    if not re.fullmatch(r"[a-z0-9_]{0,40}", run):
        raise InputError(
            f"{run!r} cannot be the name of a run in a database.",
            where=shown,
            next="Write it in small letters, digits and _, as in ?run=society.",
        )
    if lease is not None and not (
        re.fullmatch(r"\d+(\.\d+)?", lease) and LEASES[0] <= float(lease) <= LEASES[1]
    ):
        raise InputError(
            f"{lease!r} cannot be a lease.", where=shown, next="Write its seconds, from 1 to 3600: ?lease=60"
        )
    connection = shown.partition("?")[0] + ("?" + _write_query(given.items()) if given else "")
    return RunAddress(shown, connection, run, None if lease is None else float(lease))


_EXAMPLE = "Write it as postgresql://USER@HOST/DATABASE."


def _write_query(pairs: Iterable[tuple[str, str]]) -> str:
    return urlencode(list(pairs), quote_via=quote, safe="/,")


# Where runs are: the user's data folder, and runs by name.


_COMPANIONS = ("-wal", "-shm", "-journal", ".lock", ".explore")


def find_data_folder() -> Path:
    """Return the folder of the runs that are kept without being named: ``BACTRIAN_DATA``, or the user's data folder."""
    return Path(os.environ.get("BACTRIAN_DATA") or user_data_dir("bactrian"))


def locate_run(run: str | Path) -> Path:
    """Return the file of a run: its path, or for an address that of its copy in the data folder.

    Raises:
        InputError: the address cannot be used, or contains a password.
    """
    if isinstance(run, Path) or not is_address(run):
        return Path(run) if isinstance(run, str) else run
    address = read_address(run)
    parts = urlsplit(address.text)
    name = to_file_name(f"{parts.hostname or 'local'} {parts.path.strip('/')} {address.run}".strip())
    key = hashlib.sha256(f"{address.connection} {address.run}".encode()).hexdigest()[:8]
    file = SharedRun(find_data_folder() / "shared" / f"{name}-{key}.db")
    file.address = address
    return file


def locate_file(run: str | Path) -> Path:
    """Return the path of a run that another command than ``generate`` writes.

    Raises:
        InputError: it is the address of a shared run, whose copy would differ from it then.
    """
    if find_address(path := locate_run(run)):
        raise InputError(
            "`generate` makes a shared run, and no other command.",
            option="run",
            next="Give it a file; `bactrian push RUN.db ADDRESS` makes that a shared run.",
        )
    return path


def find_run(name: str | Path) -> Path:
    """Return the run with this path, or else the one in the data folder with this name; the path if neither exists."""
    if find_address(name := locate_run(name)):
        return name
    path = Path(name).expanduser()
    if path.exists() or len(path.parts) != 1:
        return path
    kept = find_data_folder() / path
    return next((run for run in (kept, kept.with_name(f"{kept.name}.db")) if run.is_file()), path)


# Files of a session that are kept.
MOST_FILES = 200


def name_files_folder(run: Path, session: str) -> Path:
    """Return the folder of the files that a session's agents made."""
    return run.with_name(f"{run.name}.files") / to_file_name(session)


def find_known_runs(folders: Iterable[Path] = ()) -> list[Path]:
    """Return the runs in ``folders``; by default those used lately, the latest first, and then the others that are in
    the data folder and here."""
    folders = tuple(folders)
    recent = () if folders else filter(is_run, list_recent_runs())
    listed = [run for folder in folders or (find_data_folder(), Path()) for run in find_runs(folder)]
    return [*{path.resolve(): path for path in (*recent, *listed)}.values()]


def name_verdicts(run: Path) -> Path:
    """Return the file of the verdicts on the code of a run, unless another one was named."""
    return run.with_name(f"{run.name}.verdicts.jsonl")


def name_run(run: Path) -> str:
    """Return the run as a command names it: one in the data folder by its name alone, unless a file here has it."""
    if address := find_address(run):
        return str(address)
    kept = run.parent == find_data_folder() and run.suffix == ".db" and not Path(run.stem).exists()
    return run.stem if kept else str(run)


def find_runs(folder: Path) -> list[Path]:
    """Return the runs in ``folder``, by name, without hidden files. Reads the first 100 bytes of each other file."""
    try:
        files = sorted(folder.iterdir())
    except OSError:
        return []
    return [path for path in files if not path.name.startswith(".") and is_run(path)]


def list_run_files(path: Path) -> list[Path]:
    """List the files that belong to the run at ``path``, whether they are there or not: itself, log, lock and index.

    A run that is named by a link has files beside the link and beside the file that it leads to.
    """
    names = list(dict.fromkeys((path.absolute(), path.resolve())))
    return [*names, *(name.with_name(name.name + ending) for name in names for ending in _COMPANIONS)]
