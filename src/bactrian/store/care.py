"""Care of a run: the lock of its writer, the check whether it is intact, and the recovery of a damaged one."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from bactrian.errors import InputError, RunInUse, StoreError
from bactrian.files.atomic import check_replaceable
from bactrian.records.session import IMPORTED, Session
from bactrian.records.turn import Instruction, Solution
from bactrian.store.database import (
    begin_transaction,
    check_file,
    create_run,
    explain_errors,
    find_log,
    find_readable,
    log_is_missing,
    open_for_reading,
    open_for_writing,
)
from bactrian.store.filesystem import follow_link
from bactrian.store.locations import list_run_files
from bactrian.store.queries import read_session
from bactrian.store.record_tables import compute_checksum, quote_names

_PATIENCE = 0.006
"""Seconds for which the lock is requested, since its file may just be deleted by the previous writer.

Short, since the event loop waits, too.
"""
_MOST_FAULTS = 100
"""Maximum number of faults that SQLite reports."""
_JSON = {"provenance", "preparation", "axis_values", "said", "recipe", "items", "usage", "kept", "options"}
_ROWS_OF_A_PAGE = 300
"""Upper bound on the rows of a 4 KB page."""
_FARTHEST = 1 << 40
"""Maximum step: if nothing is readable after it, the search ends."""
_AFTER_A_GAP = """
DELETE FROM turns WHERE row IN (
    SELECT row FROM (
        SELECT row, number, row_number() OVER (PARTITION BY session ORDER BY number) AS place FROM turns
        WHERE session NOT IN (SELECT id FROM sessions WHERE json_extract(provenance, '$.prompts') LIKE ?)
    ) WHERE number != place
)
"""
_OPEN_AGAIN = """
UPDATE sessions
SET ending = NULL, ending_turn = NULL, ending_speaker = NULL, ending_evidence = NULL,
    prompt_tokens = NULL, completion_tokens = NULL, cached_tokens = NULL
WHERE ending_turn > (SELECT coalesce(max(number), 0) FROM turns WHERE session = sessions.id)
"""
_ABOUT_LOST_TURNS = (
    """
    DELETE FROM proposals
    WHERE number > (SELECT coalesce(max(number), 0) FROM turns WHERE session = proposals.session)
    """,
    """
    DELETE FROM verdicts
    WHERE number > (SELECT coalesce(max(number), 0) FROM turns WHERE session = verdicts.session)
    """,
    """
    DELETE FROM confirmations
    WHERE turn > (SELECT coalesce(max(number), 0) FROM turns WHERE session = confirmations.session)
    """,
)
"""Rows about a lost turn would otherwise apply to the turn that replaces it."""


class RunLock:
    """The lock for writing a run. It is lost if the run or the lock's file is deleted or replaced."""

    def __init__(self, path: Path, lock_file: Path) -> None:
        self._path = path
        self._lock_file = lock_file
        self._identities = {lock_file: _identify(lock_file)}

    def guard_run(self) -> None:
        """Check from now on, too, that the run itself is not deleted or replaced."""
        self._identities[self._path] = _identify(self._path)

    def remove_file(self) -> None:
        """Delete the lock's file while the lock is held, so that nothing is left beside a run at rest.

        A process that opened the file before, and locks it after, finds that its name is gone: `filelock` then opens
        it again, and otherwise :meth:`check` stops that process before it writes.
        """
        with suppress(OSError):
            if _identify(self._lock_file) == self._identities[self._lock_file]:
                self._lock_file.unlink()

    def check(self) -> None:
        """Raise StoreError if the lock is lost. The operating system locks a file, not its name."""
        for file, identity in self._identities.items():
            if identity is None or _identify(file) != identity:
                lost = "its lock" if file == self._lock_file else "the file"
                raise StoreError(
                    f"The run was replaced while it was written: {lost} ({file.name}) was deleted or replaced, so "
                    "another process may write it now.",
                    where=str(self._path),
                    next="Data written before is safe. Stop other writers, then run the same command.",
                )


@contextmanager
def lock_run(path: Path) -> Generator[RunLock]:
    """Lock the run at ``path`` against a second writer.

    The operating system holds the lock on a file beside the run and releases it when the process ends, even after a
    crash. Readers are not affected. The yielded lock checks before each commit that it is still held.

    Raises:
        StoreError: another process, or another part of this one, writes the run.
        InputError: the lock's file cannot be written, or the run has a hard link.
    """
    if path.exists() and path.stat().st_nlink > 1:
        raise InputError(
            "The run has a second name (a hard link), under which another process could write it.",
            where=str(path),
            next="Delete one of the names, or write a copy of the run.",
        )
    # The package takes long to import, and a play that is not stored needs no lock.
    from filelock import FileLock, Timeout

    file = path.with_name(f"{path.name}.lock")
    lock = FileLock(file, timeout=_PATIENCE, is_singleton=False)
    try:
        lock.acquire(poll_interval=_PATIENCE / 5)
    except Timeout as error:
        if not file.exists():
            raise _make_write_error(path) from error
        raise RunInUse(
            "The run is being written by another process.",
            where=str(path),
            next="Wait for it or stop it first. Reading works meanwhile.",
        ) from error
    except OSError as error:
        raise _make_write_error(path) from error
    held = RunLock(path, file)
    try:
        yield held
    finally:
        held.remove_file()
        lock.release()


def is_locked(path: Path) -> bool:
    """Return True if a process writes the run at ``path``. Takes no lock itself where the system lists them."""
    file = path.with_name(f"{path.name}.lock")
    if not file.exists():
        return False
    try:
        locks = Path("/proc/locks").read_text()
    except OSError:  # not Linux
        from filelock import FileLock, Timeout

        lock = FileLock(file, blocking=False, is_singleton=False)
        try:
            lock.acquire()
        except (Timeout, OSError):
            return True
        lock.release()
        return False
    return f":{file.stat().st_ino} " in locks


def _identify(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _make_write_error(path: Path) -> InputError:
    return InputError(
        "The run cannot be written.", where=str(path), next="Check the permissions of file and folder."
    )


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a verification."""

    sessions: int
    turns: int
    faults: tuple[str, ...]
    """One sentence each; empty if the run is intact."""


def verify(path: Path, on_progress: Callable[[int, int | None], None] | None = None) -> Verification:
    """Verify the run at ``path`` without changing it.

    ``on_progress`` is called with the number of sessions checked, and of those in the run.

    Checks SQLite's structure, the checksum of each turn and its parts, that the turns of each session have no gap and
    match its ending, and the log of a run that was not closed.

    Raises:
        InputError: the run does not exist.
        StoreError: no data is readable.
    """
    path = follow_link(path)
    check_file(path, create=False)
    faults: list[str] = []
    if log_is_missing(path):
        faults.append(
            "The run was not closed, and its log (-wal) is not beside it: what was written last is missing."
        )
    turns = 0
    with (
        find_readable(path) as source,
        explain_errors(path),
        closing(open_for_reading(source)) as connection,
    ):
        structure = connection.execute(f"PRAGMA integrity_check({_MOST_FAULTS})")
        faults += [f"SQLite: {fault}" for (fault,) in structure if fault != "ok"]
        ids = [session for (session,) in connection.execute('SELECT id FROM sessions ORDER BY "row"')]
        for done, session_id in enumerate(ids):
            if on_progress is not None:
                on_progress(done, len(ids))
            count = connection.execute("SELECT count(*) FROM turns WHERE session = ?", (session_id,))
            turns += count.fetchone()[0]
            faults += _find_faults(connection, session_id)
    return Verification(len(ids), turns, tuple(faults))


def _find_faults(connection: sqlite3.Connection, session_id: str) -> list[str]:
    try:
        session = read_session(connection, session_id)
        assert session is not None
    except StoreError as error:
        return [error.what]
    except (ValueError, TypeError, KeyError, sqlite3.Error):
        return [f"Session {session_id} is damaged: its row cannot be read."]
    return _find_gaps(session) + _find_other_parts(session)


def _find_other_parts(session: Session) -> list[str]:
    """Return the turns whose instruction or solution, stored beside the text without a checksum, is not in the text."""
    return [
        f"Turn {turn.number} of session {session.id} is damaged: its parts do not match its text."
        for turn in session.turns
        if turn.said is not None and not all(_is_part(part, turn.text) for part in _list_parts(turn.said))
    ]


def _is_part(part: str, text: str) -> bool:
    """Return whether ``part`` is in ``text``, whatever white space either has."""
    return part in text or "".join(part.split()) in "".join(text.split())


def _list_parts(said: Instruction | Solution) -> tuple[str, ...]:
    if isinstance(said, Instruction):
        return said.preface, said.instruction, said.input or ""
    return said.preface, said.solution


def _find_gaps(session: Session) -> list[str]:
    have = [turn.number for turn in session.turns]
    counted = session.ending.turn if session.ending else len(have)
    if session.provenance.is_imported:
        # Imported sessions may have gaps: only the last turn must be present.
        if counted > max(have, default=0):
            return [f"Session {session.id} lacks turns: it ends at {max(have, default=0)} of {counted}."]
        return []
    if have != list(range(1, len(have) + 1)) or counted > len(have):
        return [f"Session {session.id} lacks turns: it has {len(have)} of {max([counted, *have])}."]
    return []


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """The result of a recovery."""

    sessions: int
    turns: int
    opened: int
    """Number of ended sessions that lack turns now; the command that made the run finishes them."""


def recover(path: Path, out: Path) -> RecoveryReport:
    """Write the readable data of the run at ``path`` to ``out``; ``path`` stays unchanged.

    Rows on damaged pages are left out, as are turns with a wrong checksum and all turns after them: a recovered session
    is in an earlier state. An imported session may have had gaps before, so it keeps all turns that are readable.

    Raises:
        InputError: the file does not exist, or ``out`` exists.
        StoreError: no data is readable.
    """
    path = follow_link(path)
    _check_paths(path, out)
    with (
        explain_errors(out),
        tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.absolute().parent) as folder,
    ):
        copy, new = Path(folder) / "damaged.db", Path(folder) / "new.db"
        shutil.copyfile(path, copy)
        if find_log(path).exists():
            shutil.copyfile(find_log(path), find_log(copy))
        with closing(_open_damaged(copy)) as damaged:
            report = _copy_tables(damaged, new, path)
        new.rename(out)
    return report


def _check_paths(path: Path, out: Path) -> None:
    if not path.is_file():
        raise InputError("There is no such run.", where=str(path), next="Check the path.")
    with suppress(FileNotFoundError):
        out.stat()  # Path.exists() would take a path that cannot be a file, such as one that is too long, for a new one
        raise InputError("This file exists.", where=str(out), next="Give a new file for --out.")
    check_replaceable(out, list_run_files(path))
    if not out.absolute().parent.is_dir():
        raise InputError(
            f"There is no folder {out.absolute().parent}.", where=str(out), next="Create it first."
        )


def _open_damaged(copy: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(copy, isolation_level=None)
    # With this setting, SQLite opens truncated files and files with broken indexes.
    connection.execute("PRAGMA writable_schema = ON")
    connection.text_factory = _decode
    return connection


def _decode(content: bytes) -> str:
    return content.decode(errors="replace")


def _copy_tables(damaged: sqlite3.Connection, new: Path, path: Path) -> RecoveryReport:
    create_run(new)
    with closing(open_for_writing(new)) as target, begin_transaction(target):
        # In the order of their creation, since what refers to a session comes after it.
        tables = target.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid")
        copied = {name: _copy(damaged, target, name) for (name,) in tables.fetchall() if name != "migrations"}
        if not copied["sessions"] and not copied["lists"] and not copied["run"]:
            raise StoreError(
                "This file contains no readable data of a run.",
                where=str(path),
                next="Use an older copy; this file is unchanged.",
            )
        target.execute(_AFTER_A_GAP, (f"{IMPORTED}%",))
        for statement in _ABOUT_LOST_TURNS:
            target.execute(statement)
        opened = target.execute(_OPEN_AGAIN).rowcount
        (sessions,) = target.execute("SELECT count(*) FROM sessions").fetchone()
        (turns,) = target.execute("SELECT count(*) FROM turns").fetchone()
    return RecoveryReport(sessions, turns, opened)


def _copy(damaged: sqlite3.Connection, target: sqlite3.Connection, table: str) -> int:
    """Copy the intact rows of ``table``; return their number."""
    pragma = f"PRAGMA table_info({table})"
    try:
        present = {name for _, name, *_ in damaged.execute(pragma)}
    except sqlite3.DatabaseError:
        return 0
    # Only those present, since SQLite takes the quoted name of a missing column for a text. The row is the first.
    columns = [name for _, name, *_ in target.execute(pragma) if name in present]
    if columns[:1] != ["row"]:
        return 0
    names, holes = quote_names(columns), ", ".join("?" * len(columns))
    insert = f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({holes})"  # noqa: S608
    select = f'SELECT {names} FROM {table} WHERE "row" >= ? ORDER BY "row"'  # noqa: S608
    copied = 0
    for row in _read_rows(damaged, select):
        if _is_whole(dict(zip(columns, row, strict=True))):
            try:
                copied += target.execute(insert, row).rowcount
            except sqlite3.IntegrityError:  # a turn without its session, or a lost value
                continue
    return copied


def _is_whole(row: Mapping[str, Any]) -> bool:
    try:
        if "checksum" in row and compute_checksum(row["text"]) != row["checksum"]:
            return False
        for name in row.keys() & _JSON:
            if row[name] is not None:
                from_json(row[name])
    except (ValueError, TypeError, AttributeError):
        return False
    return True


def _read_rows(damaged: sqlite3.Connection, select: str) -> Generator[tuple[Any, ...]]:
    """Yield every row that can be read."""
    first = 0
    while True:
        try:
            for row in damaged.execute(select, (first,)):
                if row[0] < first:  # a damaged tree can lead back in an endless loop
                    raise sqlite3.DatabaseError("out of order")
                yield row
                first = row[0] + 1
            return
        except sqlite3.DatabaseError:
            following = _find_next_readable(damaged, select, first)
            if following is None:
                return
            first = following


def _find_next_readable(damaged: sqlite3.Connection, select: str, lost: int) -> int | None:
    """Return the first number after ``lost`` from which rows are readable again; None if not found.

    A lost leaf page has few rows, so each number is tried. A lost page of the tree above hides many more: there the
    steps double until a row is readable, followed by a binary search.
    """

    def readable(number: int) -> bool:
        try:
            row = damaged.execute(select, (number,)).fetchone()
        except sqlite3.DatabaseError:
            return False
        return row is None or row[0] >= number

    for number in range(lost + 1, lost + _ROWS_OF_A_PAGE):
        if readable(number):
            return number
    hidden, step = lost + _ROWS_OF_A_PAGE - 1, 1
    while not readable(hidden + step):
        hidden, step = hidden + step, 2 * step
        if step > _FARTHEST:
            return None
    seen = hidden + step
    while seen - hidden > 1:
        middle = (seen + hidden) // 2
        hidden, seen = (hidden, middle) if readable(middle) else (middle, seen)
    return seen
