"""The file of a run: its header, schema, connections and write-ahead log, and the errors that they raise."""

from __future__ import annotations

import errno
import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from importlib import resources
from pathlib import Path
from warnings import warn

from bactrian.errors import BactrianError, BactrianWarning, InputError, StoreError, explain_os_errors
from bactrian.files.atomic import SQLITE_HEADER
from bactrian.store.lock import count_free_bytes, find_holder, find_log, find_network_file_system, is_writable
from bactrian.store.record_tables import SEALED, compute_seal

APPLICATION_ID = 0x42616374
"""Identifies our files in the header: the letters ``Bact``."""
IS_OPEN = 1
"""User version in the header while the run is open: the latest data may be only in the log."""
PRIME = 4_294_967_291
"""A row adds a remainder modulo this prime to the sum of its table, so that a sum stays a whole number of SQLite."""


STEPS: tuple[Callable[[sqlite3.Connection], None], ...] = ()
"""Changes of the schema since the first release: step n takes a run from schema n to n + 1.

A step spells out its SQL and uses nothing that changes later, so that every older run gets the same schema.
"""
SCHEMA = 1 + len(STEPS)
"""The schema of runs that are written now."""
_BUSY_SECONDS = 30.0
_PAGE = 16_384
"""Page size: minimum growth of the file and its log, in bytes."""
_LOG_INDEX = 32 * 1024
"""Size in bytes of the smallest index of a log, the ``-shm``, which a reader creates if it is missing."""


def is_run(path: Path) -> bool:
    """Return True if the file at ``path`` is a run, as far as its first 100 bytes tell."""
    with suppress(OSError):
        return path.is_file() and _read_number(path, "application_id", 68) == APPLICATION_ID
    return False


def log_is_missing(path: Path) -> bool:
    """Return True if the run was not closed and its log, with the latest data, is missing.

    This happens if the log was deleted, or the run was copied without it.
    """
    return _read_number(path, "user_version", 60) == IS_OPEN and not has_log(path)


def warn_of_missing_log(path: Path) -> None:
    """Warn if the latest data is missing."""
    if path.exists() and log_is_missing(path):
        missing = f"its log {find_log(path).name} is not beside it: the latest data is missing."
        warn(f"{path} was not closed, and {missing} `bactrian verify` shows details.", BactrianWarning, 3)


def _read_number(path: Path, name: str, offset: int) -> int:
    """Return a number of the header, without the log: that at ``offset``, which is called ``name``. 0 if not found.

    It is read by SQLite where possible. Where a file is closed that was not opened by SQLite, the process loses its
    locks on it, and other connections of the process would not see what other processes write.
    """
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(_make_uri(path, immutable=True), uri=True)) as header,
    ):
        return header.execute(f"PRAGMA {name}").fetchone()[0]
    with path.open("rb") as file:
        content = file.read(100)
    return int.from_bytes(content[offset : offset + 4], "big") if content.startswith(SQLITE_HEADER) else 0


def _make_uri(path: Path, *, immutable: bool) -> str:
    """Return the address of the file at ``path`` for reading; ``immutable`` if no log is to be looked for."""
    return f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if immutable else ''}"


def check_file(path: Path, *, create: bool) -> None:
    """Check the file before it is opened.

    Raises:
        InputError: the file is not a run, or no run can be created there.
    """
    where = str(path)
    try:
        path.stat()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        if not isinstance(error, (FileNotFoundError, NotADirectoryError, PermissionError)):
            reason = error.strerror if isinstance(error, OSError) else error
            raise InputError(
                f"This path cannot be a run: {reason}.", where=where, next="Check the path."
            ) from error
    if path.is_dir():
        raise InputError(
            "This is a folder.", where=where, next="Give the path of a file, such as run.db in it."
        )
    if not path.exists():
        folder = path.absolute().parent
        if not create:
            raise InputError(
                "There is no such run.", where=where, next="Check the path; `bactrian runs` lists the runs."
            )
        if not folder.is_dir():
            raise InputError(f"There is no folder {folder}.", where=where, next="Create it first.")
        if not is_writable(folder):
            raise InputError(
                "The folder cannot be written.", where=str(folder), next="Choose another place: run=PATH"
            )
        return
    header = b""
    if path.is_file():  # a pipe may have no end
        with explain_os_errors("The run cannot be read", path, "Check its permissions and the disk."):
            if _read_number(path, "application_id", 68) == APPLICATION_ID:
                return
            with path.open("rb") as file:
                header = file.read(100)
    is_database = len(header) == 100 and header.startswith(SQLITE_HEADER)
    raise InputError(
        "This is a database of another program." if is_database else "This file is not a run.",
        where=where,
        next="Give another file; this one is as it was. Chats that others made: `bactrian import`.",
    )


def create_run(path: Path) -> None:
    """Create an empty run atomically, even if the disk is full or the process is killed."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)  # leftover of a killed process
    try:
        # The file has its name only when it is complete, and so needs neither log nor rollback.
        with closing(open_for_writing(new, journal="OFF")) as connection:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.executescript(f"BEGIN; {read_schema_text()} COMMIT;")
            connection.execute("INSERT INTO migrations (number, applied) VALUES (1, ?)", (time.time(),))
            migrate(connection)
            # Before it has its name: the change is a transaction, and a killed one would have to be rolled back.
            connection.execute("PRAGMA journal_mode = WAL")
        new.rename(path)
    finally:
        new.unlink(missing_ok=True)


def migrate(
    connection: sqlite3.Connection, steps: Sequence[Callable[[sqlite3.Connection], None]] = STEPS
) -> None:
    """Convert a run of an older schema to that of the last of ``steps``: in one transaction, all of it or nothing."""
    with begin_transaction(connection):
        have = read_schema(connection)
        for step in steps[have - 1 :]:
            step(connection)
        begin_sealing(connection)
        rows = [(schema, time.time()) for schema in range(have + 1, len(steps) + 2)]
        connection.executemany("INSERT INTO migrations (number, applied) VALUES (?, ?)", rows)
        connection.execute("UPDATE migrations SET seal = row_seal(number, applied) WHERE seal IS NULL")
        count_rows(connection)


def begin_sealing(connection: sqlite3.Connection) -> None:
    """Provide the function ``row_seal``, and keep the totals right when this connection changes or removes rows."""
    connection.create_function("row_seal", -1, lambda *row: compute_seal(row), deterministic=True)
    # Triggers of this connection, and not of the file: nobody who edits the file changes the totals by it.
    for table in SEALED:
        for event, signs in (("DELETE", {"old": "-"}), ("UPDATE", {"new": "+", "old": "-"})):
            parts = {
                "rows": "".join(f" {sign} 1" for sign in signs.values()),
                "sum": "".join(f" {sign} {_weigh(f'{row}.')}" for row, sign in signs.items()),
                "unsealed": "".join(f" {sign} ({row}.seal IS NULL)" for row, sign in signs.items()),
            }
            changes = ", ".join(f"{name} = {name}{part}" for name, part in parts.items())
            # The number of the last row is given again if that row is deleted.
            last = f"last = min(last, coalesce((SELECT max(rowid) FROM {table}), 0))"  # noqa: S608
            update = f"UPDATE totals SET {changes}, {last} WHERE name = '{table}' AND old.rowid <= last"  # noqa: S608
            trigger = f"CREATE TEMP TRIGGER IF NOT EXISTS {table}_{event} AFTER {event} ON main.{table}"
            connection.execute(f"{trigger} BEGIN {update}; END")


def _weigh(row: str = "") -> str:
    """Return what a row adds to the sum of its table, in SQL; so rows that change their places change the sum."""
    return f"coalesce({row}seal, 1) * {row}rowid % {PRIME}"


def count_rows(connection: sqlite3.Connection) -> None:
    """Add to the totals the rows that were written since."""
    for table in SEALED:
        last, count, total, unsealed = connection.execute(
            f"SELECT max(rowid), count(*), sum({_weigh()}), sum(seal IS NULL) FROM {table}"  # noqa: S608
            " WHERE rowid > (SELECT last FROM totals WHERE name = ?)",
            (table,),
        ).fetchone()
        if count:
            connection.execute(
                "UPDATE totals SET last = ?, rows = rows + ?, sum = sum + ?, unsealed = unsealed + ? WHERE name = ?",
                (last, count, total, unsealed, table),
            )


def read_schema(connection: sqlite3.Connection) -> int:
    """Return the schema of the run; 0 if it has none."""
    if not connection.execute("PRAGMA table_info(migrations)").fetchone():
        return 0
    return connection.execute("SELECT max(number) FROM migrations").fetchone()[0] or 0


# The schema that a file declares is another person's SQL. Before it is matched, each quoted name becomes a word and
# each comment a space. What matches declares columns and their plain lists: no expression, nothing that could run.
_QUOTED = re.compile(r"""("[^"]*"|'[^']*'|`[^`]*`|\[[^]]*])|--[^\n]*|/\*.*?\*/""", re.DOTALL)
_PLAIN = re.compile(
    r"CREATE\s+(TABLE\s+\w+\s*\(([\w\s,.+-]|\([\w\s,]*\))*\)[\w\s,]*"
    r"|(UNIQUE\s+)?INDEX\s+\w+\s+ON\s+\w+\s*\([\w\s,]*\)\s*)",
    re.IGNORECASE,
)
_PROGRAM = re.compile(r"CREATE\s+(?:TEMP\s+)?(view|trigger|virtual table)\b", re.IGNORECASE)


def refuse_programs(connection: sqlite3.Connection) -> None:
    """Raise StoreError if the file contains SQL that reading or writing it would run, perhaps without an end."""
    # What a row says of its type is not believed: SQLite goes by the SQL.
    rows = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"
    for name, sql in connection.execute(rows):
        words = _QUOTED.sub(lambda match: "name" if match[1] else " ", str(sql))
        if not _PLAIN.fullmatch(words):
            program = _PROGRAM.match(words)
            kind = program[1].lower() if program else "table or index with an expression"
            raise StoreError(
                f"The file contains a {kind}, which no version of bactrian writes: {name!r}.",
                next="It may do harm: use another copy of the run.",
            )


def list_columns(connection: sqlite3.Connection, table: str) -> list[str]:
    """Return the columns of a table as the file has them."""
    return [name for _, name, *_ in connection.execute(f"PRAGMA main.table_info({table})")]


def read_schema_text() -> str:
    """Return the SQL of schema 1."""
    return resources.files("bactrian.store").joinpath("schema.sql").read_text("utf-8")


def _check_schema(connection: sqlite3.Connection, path: Path) -> None:
    refuse_programs(connection)
    have = read_schema(connection)
    if not 1 <= have <= SCHEMA:
        raise StoreError(
            f"The run has schema {have}; this version of bactrian reads those up to {SCHEMA}.",
            where=str(path),
            next="A later version made it, or one before the first release. Try: pip install --upgrade bactrian.",
        )


def connect(path: Path) -> sqlite3.Connection:
    """Open the writing connection; create the run if missing. The caller must hold the run's lock.

    Raises:
        StoreError: the run is damaged, or has another schema.
    """
    if kind := find_network_file_system(path):
        danger = "where a run is damaged if two computers open it: keep it on a disk of this one."
        warn(f"{path} is on a network file system ({kind}), {danger}", BactrianWarning, stacklevel=2)
    warn_of_missing_log(path)
    with explain_errors(path):
        if not path.exists():
            create_run(path)
        connection = open_for_writing(path)
        try:
            _check_schema(connection, path)
            if read_schema(connection) < SCHEMA:
                migrate(connection)
            begin_sealing(connection)
            # In the file itself, not only in its log.
            set_mark(connection, IS_OPEN, "PRAGMA wal_checkpoint")
        except BaseException:
            connection.close()
            raise
        return connection


def open_for_writing(path: Path, *, wait: float = _BUSY_SECONDS, journal: str = "WAL") -> sqlite3.Connection:
    """Open a writing connection. It waits up to ``wait`` seconds for locks of other processes."""
    connection = sqlite3.connect(path, timeout=wait, check_same_thread=False, isolation_level=None)
    try:
        connection.execute(f"PRAGMA page_size = {_PAGE}")
        connection.execute(f"PRAGMA journal_mode = {journal}")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def begin_transaction(connection: sqlite3.Connection) -> Generator[None]:
    """Make one transaction of the writing connection: all of it is written, or nothing."""
    with connection:
        # A deferred transaction that reads first may fail on its first write; an immediate one waits.
        connection.execute("BEGIN IMMEDIATE")
        yield


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open a read-only connection, which any thread may use.

    SQLite creates a file beside a run with a write-ahead log, unless it is told that nobody can write there.
    """
    uri = _make_uri(path, immutable=not (has_log(path) or can_read_log(path)))
    return sqlite3.connect(
        uri, uri=True, timeout=_BUSY_SECONDS, check_same_thread=False, isolation_level=None
    )


@contextmanager
def find_readable(path: Path) -> Generator[Path]:
    """Provide the file to read the run at ``path`` from: itself, or a temporary copy if it cannot be used.

    What a killed process left behind needs a copy: a log in a folder that cannot be written or has no room, or a
    transaction to roll back.

    Raises:
        StoreError: the run is damaged, or has another schema.
    """
    with ExitStack() as stack:
        stack.callback(_tidy_up, path)
        source = path
        if has_journal(path) or (has_log(path) and not can_read_log(path)):
            source = Path(stack.enter_context(tempfile.TemporaryDirectory())) / path.name
            with explain_errors(path):
                for find in (Path, find_log, _find_journal):
                    if find(path).exists():
                        shutil.copyfile(find(path), find(source))
                _look(sqlite3.connect(source))  # only a writing connection rolls back what was not finished
        with explain_errors(path), closing(open_for_reading(source)) as connection:
            _check_schema(connection, path)
        yield source


def _tidy_up(path: Path) -> None:
    """Let SQLite delete the log that reading a run leaves beside it, unless another process uses it.

    A read-only connection makes an empty log, or keeps that of a run which was closed meanwhile, and cannot delete it;
    the last connection with write access does so when it closes. The log of a writer, or of a killed one, is left.
    """
    with suppress(OSError, sqlite3.Error):
        if not find_log(path).stat().st_size or _read_number(path, "user_version", 60) != IS_OPEN:
            _look(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=0))


def _look(connection: sqlite3.Connection) -> None:
    """Read the file once, so that SQLite does what it does on opening, and close it."""
    with closing(connection):
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()


def mark_closed(connection: sqlite3.Connection) -> None:
    """Mark the run as closed: its file has all of it then, though readers keep its log."""
    if not set_mark(connection, 0, "PRAGMA wal_checkpoint"):  # the disk is full: an empty log has room for it
        set_mark(connection, 0, before="PRAGMA wal_checkpoint(TRUNCATE)")


def set_mark(connection: sqlite3.Connection, mark: int, then: str = "", *, before: str = "") -> bool:
    """Mark the run as open or closed; return False on failure, with mark and log unchanged."""
    try:
        connection.execute(before)
        if mark != IS_OPEN:
            with begin_transaction(connection):
                count_rows(connection)
        connection.execute(f"PRAGMA user_version = {mark}")
        connection.execute(then)
    except sqlite3.Error:
        return False
    return True


def _find_journal(path: Path) -> Path:
    return path.with_name(f"{path.name}-journal")


def has_journal(path: Path) -> bool:
    """Return True if a transaction was not finished, because of a kill, and has to be rolled back."""
    return _measure(_find_journal(path)) > 0


def has_log(path: Path) -> bool:
    """Return True if there is data in the write-ahead log; readers create an empty one."""
    return _measure(find_log(path)) > 0


def can_read_log(path: Path) -> bool:
    """Return True if a reader finds the index of the log beside the run, or has the room to create it there."""
    if not is_writable(path.absolute().parent):
        return False
    has_index = _measure(path.with_name(f"{path.name}-shm")) >= _LOG_INDEX
    return has_index or count_free_bytes(path) >= _LOG_INDEX


def _measure(file: Path) -> int:
    """Return the bytes of ``file``; 0 if it is missing. A process that closes the run may delete it at any moment."""
    with suppress(FileNotFoundError):
        return file.stat().st_size
    return 0


@contextmanager
def explain_errors(path: Path) -> Generator[None]:
    """Convert errors of the database to errors that name the next action."""
    try:
        yield
    except BactrianError as error:
        error.where = error.where or str(path)
        raise
    except (sqlite3.Error, OSError) as error:
        raise explain_error(error, path) from error


def explain_error(error: BaseException, path: Path, *, needed: int = 0) -> BactrianError:
    """Convert an error of the database to one of ours. ``needed`` is the number of bytes to write."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        code = sqlite3.SQLITE_FULL
    if code == sqlite3.SQLITE_IOERR and count_free_bytes(path) < 2 * _PAGE:
        code = sqlite3.SQLITE_FULL  # SQLite's code if it cannot create its log
    if any(words in str(error) for words in ("malformed JSON", "Could not decode to UTF-8")):
        code = sqlite3.SQLITE_CORRUPT  # SQLite read the page, and its content is not what was written
    where = str(path)
    kept = "Data written before is safe."
    match code:
        case sqlite3.SQLITE_FULL:
            free = count_free_bytes(path)
            temporary = Path(tempfile.gettempdir())
            if count_free_bytes(temporary / "any") < _PAGE and needed + _PAGE < free:
                return StoreError(
                    "The disk of temporary files is full.",
                    where=str(temporary),
                    next=f"{kept} Free some space there, or set TMPDIR to another folder, and run the same command.",
                )
            # Once in the log, and later in the file
            pages = max(2 * (needed // _PAGE + 1), free // _PAGE + 1)
            return StoreError(
                f"The disk is full: {pages * _PAGE:,} bytes or more are needed, {free:,} are free.",
                where=where,
                next=f"{kept} Free some space and run the same command.",
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreError(
                f"The run is locked by {find_holder(path) or 'another process'}, and was not released in time.",
                where=where,
                next=f"{kept} Wait for that process or stop it, then run the same command.",
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return InputError(
                "The run cannot be written.", where=where, next="Check the permissions of file and folder."
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return StoreError(
                "The run's file is damaged.",
                where=where,
                next=f"Save what is readable: bactrian recover {where} --out NEW.db, or use an older copy.",
            )
        case _:
            return StoreError(
                f"The run cannot be used: {error}.",
                where=where,
                next=f"{kept} Check the disk, its quota and the limit of a file's size (ulimit -f), then run the same "
                "command.",
            )
