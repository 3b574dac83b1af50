"""Care of a run: whether it is intact, and written now, what it was made from, and the recovery of a damaged one."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import astuple, dataclass
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from bactrian.errors import InputError, StoreError
from bactrian.files.atomic import check_replaceable
from bactrian.records.run import Command
from bactrian.records.session import IMPORTED
from bactrian.store import database, record_tables
from bactrian.store.locations import list_run_files
from bactrian.store.lock import find_log, follow_link, lock_run
from bactrian.store.store import explain_values, read_recipe
from bactrian.store.write import fetch, read_session

_RECOVERY = ".recovery"
"""How the names of folders end in which a recovered run is made."""
_MOST_FAULTS = 100
"""Maximum number of faults that SQLite reports."""
# Columns that tell a person which row it is.
_NAMES = ("id", "session", "number", "turn", "pair", "voter", "mark", "verb")
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
_ENDING = (*record_tables.ENDINGS.names, *record_tables.TOTALS.names)
_OPEN_AGAIN = f"""
UPDATE sessions SET {", ".join(f"{name} = NULL" for name in _ENDING)},
    seal = {record_tables.write_seal("sessions", dict.fromkeys(_ENDING, "NULL"))}
WHERE ending_turn > (SELECT coalesce(max(number), 0) FROM turns WHERE session = sessions.id)
"""  # noqa: S608
# Rows about a lost turn would otherwise apply to the turn that replaces it.
_ABOUT_TURNS = {"proposals": "number", "verdicts": "number", "confirmations": "turn"}


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a verification."""

    sessions: int
    turns: int
    faults: tuple[str, ...]
    """One sentence each; empty if the run is intact."""
    unsealed: int = 0
    """Rows without a checksum, which were recovered although they did not match it."""


def verify(path: Path, on_progress: Callable[[int, int | None], None] | None = None) -> Verification:
    """Verify the run at ``path`` without changing it.

    ``on_progress`` is called with the number of sessions checked, and of those in the run.

    Checks SQLite's structure, the checksum of each row, that no row was added, removed or moved, the text of each turn
    and its parts, that the turns of each session have no gap and match its ending, and the log of a run that was not
    closed. A checksum shows what a fault of the disk or a careless edit changed. It is no signature: whoever knows how
    it is computed can change it, too.

    Raises:
        InputError: the run does not exist.
        StoreError: no data is readable.
    """
    path = follow_link(path)
    database.check_file(path, create=False)
    faults: list[str] = []
    if database.log_is_missing(path):
        log = "The run was not closed, and its log (-wal) is not beside it: what was written last is missing."
        faults.append(log)
    turns = 0
    with (
        database.find_readable(path) as source,
        database.explain_errors(path),
        closing(database.open_for_reading(source)) as connection,
    ):
        connection.execute("BEGIN")  # one state of a run that is being written
        structure = connection.execute(f"PRAGMA integrity_check({_MOST_FAULTS})")
        faults += [f"SQLite: {fault}" for (fault,) in structure if fault != "ok"]
        faults += _find_strange_parts(connection)
        # A text that is not UTF-8 does not match its checksum.
        connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
        totals = dict[str, list[int]]()
        with suppress(sqlite3.OperationalError):  # The table is missing, as is told already.
            totals = {name: rest for name, *rest in connection.execute("SELECT * FROM totals")}
        is_open = connection.execute("PRAGMA user_version").fetchone()[0] == database.IS_OPEN
        for table in record_tables.SEALED:
            faults += _check_rows(connection, table, totals.get(table), is_open=is_open)
        unsealed = sum(rest[-1] for rest in totals.values())
        connection.text_factory = str
        ids = [session for (session,) in connection.execute('SELECT id FROM sessions ORDER BY "row"')]
        for done, session_id in enumerate(ids):
            if on_progress is not None:
                on_progress(done, len(ids))
            count = connection.execute("SELECT count(*) FROM turns WHERE session = ?", (session_id,))
            turns += count.fetchone()[0]
            faults += _find_faults(connection, session_id)
    return Verification(len(ids), turns, tuple(faults), unsealed)


def _find_strange_parts(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield how the tables, columns and indexes of the run differ from those of its schema."""
    with closing(sqlite3.connect(":memory:")) as expected:
        expected.executescript(database.read_schema_text())
        for step in database.STEPS[: database.read_schema(connection) - 1]:
            step(expected)
        usual, present = _list_parts(expected), _list_parts(connection)
    for part in sorted(present - usual):
        yield f"The {part} is none that bactrian writes."
    for part in sorted(usual - present):
        yield f"The {part} is missing."


def _list_parts(connection: sqlite3.Connection) -> set[str]:
    rows = connection.execute(
        "SELECT type || ' ' || name FROM sqlite_master WHERE name NOT GLOB 'sqlite_*' UNION"
        " SELECT 'column ' || tables.name || '.' || columns.name FROM sqlite_master AS tables,"
        " pragma_table_xinfo(tables.name, 'main') AS columns WHERE tables.type = 'table'"
    )
    return {part for (part,) in rows}


def _check_rows(
    connection: sqlite3.Connection, table: str, totals: Sequence[Any] | None, *, is_open: bool
) -> Iterator[str]:
    """Yield the rows of ``table`` that do not match their checksums, and how all differ from what was counted.

    Rows that were written last are not counted yet while the run ``is_open``.
    """
    present = database.list_columns(connection, table)
    sealed = [name for name in record_tables.SEALED[table] if name in present]
    names = record_tables.quote_names((*sealed, "seal"))
    last, *counted = totals or (0, 0, 0, 0)
    count, total, unsealed, changed, number = 0, 0, 0, False, 0
    try:
        query = f"SELECT rowid, {names} FROM main.{table} ORDER BY rowid"  # noqa: S608
        for number, *row, seal in connection.execute(query):
            if seal != record_tables.compute_seal(tuple(row)) and (
                seal is not None or not counted[2] or number > last
            ):
                changed = True
                known = dict(zip(sealed, row, strict=True))
                about = ", ".join(f"{name} {known[name]}" for name in _NAMES if known.get(name) is not None)
                yield f"Row {number} of table {table} was changed{about and f' ({about})'}: its checksum differs."
            if number <= last or not is_open:
                count += 1
                unsealed += seal is None
                total += (seal if isinstance(seal, int) else 1) * number % database.PRIME
    except sqlite3.DatabaseError as error:
        yield f"Table {table} cannot be read to its end: {error}."
        return
    if count != counted[0]:
        yield f"Table {table} has {count:,} rows, and {counted[0]:,} were written."
    elif not changed and ([total, unsealed] != counted[1:] or (number != last and not is_open)):
        yield f"The rows of table {table} are not those that were written, or not in their order."


def _find_faults(connection: sqlite3.Connection, session_id: str) -> list[str]:
    try:
        session = read_session(connection, session_id)
        assert session is not None
    except StoreError as error:
        return [error.what]
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, sqlite3.Error):
        return [f"Session {session_id} is damaged: its row cannot be read."]
    # The instruction or solution is stored beside the text, without a checksum.
    faults = [
        f"Turn {turn.number} of session {session.id} is damaged: its parts do not match its text."
        for turn in session.turns
        if turn.said is not None
        and not all(_is_part(part, turn.text) for part in astuple(turn.said) if isinstance(part, str))
    ]
    numbers = [turn.number for turn in session.turns]
    counted = session.ending.turn if session.ending else len(numbers)
    last = max(numbers, default=0)
    if session.provenance.is_imported:
        # Imported sessions may have gaps: only the last turn must be present.
        if counted > last:
            faults.append(f"Session {session.id} lacks turns: it ends at {last} of {counted}.")
    elif numbers != list(range(1, len(numbers) + 1)) or counted > len(numbers):
        faults.append(f"Session {session.id} lacks turns: it has {len(numbers)} of {max(counted, last)}.")
    return faults


def _is_part(part: str, text: str) -> bool:
    """Return whether ``part`` is in ``text``, whatever white space either has."""
    return part in text or "".join(part.split()) in "".join(text.split())


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """The result of a recovery."""

    sessions: int
    turns: int
    opened: int
    """Number of ended sessions that lack turns now; the command that made the run finishes them."""
    lost_sessions: int
    """At least so many were in the damaged file and are not in the new one; 0 if its totals cannot be read."""
    lost_turns: int
    """The same of turns."""


def recover(path: Path, out: Path) -> RecoveryReport:
    """Write the readable data of the run at ``path`` to ``out``; ``path`` stays unchanged.

    Rows on damaged pages are left out, as are turns with a wrong checksum and all turns after them: a recovered session
    is in an earlier state. An imported session may have had gaps before, so it keeps all turns that are readable.

    Raises:
        InputError: the file does not exist, or ``out`` exists.
        StoreError: no data is readable, or another process writes ``out``.
    """
    path = follow_link(path)
    if not path.is_file():
        raise InputError("There is no such run.", where=str(path), next="Check the path.")
    _check_new(out)
    check_replaceable(out, list_run_files(path))
    folder = out.absolute().parent
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}.", where=str(out), next="Create it first.")
    with lock_run(out):
        _check_new(out)
        return _recover_into(path, out)


def _check_new(out: Path) -> None:
    """Raise InputError if there is a file of this name."""
    with suppress(FileNotFoundError):
        out.lstat()  # Path.exists() would take a path that cannot be a file, such as a too long one, for a new one
        raise InputError("This file exists.", where=str(out), next="Give a new file: out=NEW.db")


def _recover_into(path: Path, out: Path) -> RecoveryReport:
    folder = out.absolute().parent
    for leftover in folder.glob(f".{escape(out.name)}.*{_RECOVERY}"):  # of a killed recovery
        shutil.rmtree(leftover, ignore_errors=True)
    with (
        database.explain_errors(out),
        tempfile.TemporaryDirectory(_RECOVERY, f".{out.name}.", folder) as temporary,
    ):
        copy, new = Path(temporary) / "damaged.db", Path(temporary) / "new.db"
        shutil.copyfile(path, copy)
        if find_log(path).exists():
            shutil.copyfile(find_log(path), find_log(copy))
        with closing(sqlite3.connect(copy, isolation_level=None)) as damaged:
            # With this setting, SQLite opens truncated files and files with broken indexes.
            damaged.execute("PRAGMA writable_schema = ON")
            damaged.text_factory = partial(str, encoding="utf-8", errors="replace")
            with suppress(sqlite3.DatabaseError):
                database.refuse_programs(damaged)
            report = _copy_tables(damaged, new, path)
        new.rename(out)
    return report


def _copy_tables(damaged: sqlite3.Connection, new: Path, path: Path) -> RecoveryReport:
    database.create_run(new)
    with closing(database.open_for_writing(new)) as target, database.begin_transaction(target):
        database.begin_sealing(target)
        # Sessions come first, since other rows refer to them.
        tables = sorted(
            record_tables.SEALED.keys() - {"migrations"}, key=lambda table: (table != "sessions", table)
        )
        copied = {table: _copy(damaged, target, table) for table in tables}
        if not copied["sessions"] and not copied["lists"] and not copied["run"]:
            raise StoreError(
                "This file contains no readable data of a run.",
                where=str(path),
                next="Use an older copy; this file is unchanged.",
            )
        target.execute(_AFTER_A_GAP, (f"{IMPORTED}%",))
        for table, number in _ABOUT_TURNS.items():
            target.execute(
                f"DELETE FROM {table} WHERE {number} > "  # noqa: S608
                f"(SELECT coalesce(max(number), 0) FROM turns WHERE session = {table}.session)"
            )
        opened = target.execute(_OPEN_AGAIN).rowcount
        database.count_rows(target)
        counts = target.execute("SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM turns)")
        sessions, turns = counts.fetchone()
    lost = [max(0, _read_total(damaged, name) - n) for name, n in (("sessions", sessions), ("turns", turns))]
    return RecoveryReport(sessions, turns, opened, *lost)


def _read_total(damaged: sqlite3.Connection, table: str) -> int:
    """Return how many rows a table had, as the damaged file counted them; 0 if that cannot be read."""
    with suppress(sqlite3.DatabaseError):
        row = damaged.execute("SELECT rows FROM totals WHERE name = ?", (table,)).fetchone()
        return row[0] if row and isinstance(row[0], int) else 0
    return 0


def _copy(damaged: sqlite3.Connection, target: sqlite3.Connection, table: str) -> int:
    """Copy the intact rows of ``table``; return their number."""
    try:
        present = database.list_columns(damaged, table)
    except sqlite3.DatabaseError:
        return 0
    # Only those present, since SQLite takes the quoted name of a missing column for a text. The row is the first.
    columns = [name for name in database.list_columns(target, table) if name in present]
    sealed = [name for name in record_tables.SEALED[table] if name in present]
    if columns[:1] != ["row"]:
        return 0
    names, holes = record_tables.quote_names(columns), ", ".join("?" * len(columns))
    insert = f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({holes})"  # noqa: S608
    select = f'SELECT {names} FROM {table} WHERE "row" >= ? ORDER BY "row"'  # noqa: S608
    copied = 0
    for row in _read_rows(damaged, select):
        values = dict(zip(columns, row, strict=True))
        if _is_whole(values):
            # A row that was changed is what it is, and does not claim to be what was written.
            if values.get("seal") != record_tables.compute_seal(tuple(map(values.get, sealed))):
                values |= dict.fromkeys(values.keys() & {"seal"})
            try:
                copied += target.execute(insert, tuple(values.values())).rowcount
            except sqlite3.IntegrityError:  # a turn without its session, or a lost value
                continue
    return copied


def _is_whole(row: Mapping[str, Any]) -> bool:
    try:
        if "checksum" in row and record_tables.compute_checksum(row["text"]) != row["checksum"]:
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
    return bisect_left(range(hidden + step), True, hidden + 1, key=readable)


def is_locked(path: Path) -> bool:
    """Return True if a process writes the run at ``path``. Takes no lock itself where the system lists them."""
    file, log = path.with_name(f"{path.name}.lock"), find_log(path)
    # Linux takes 10 ms for the list. A run at rest has no lock's file, and nothing in its log.
    if not file.exists() and not (log.exists() and log.stat().st_size):
        return False
    try:
        locks = Path("/proc/locks").read_text()
    except OSError:  # not Linux
        from filelock import FileLock

        try:
            with FileLock(file, blocking=False, is_singleton=False):
                return False
        except OSError:  # a Timeout is one
            return True
    return any(
        f":{each.stat().st_ino} " in line
        for each in (file, log)
        if each.exists()
        for line in locks.splitlines()
        if " FLOCK " in line
    )


def read_making(path: Path) -> tuple[list[Command], dict[str, Any] | None]:
    """Return the commands that worked on a run, the oldest first, and what it is made from; nothing of a missing file.

    Raises:
        InputError: the file is not a run.
        StoreError: the run is damaged.
    """
    if not path.exists():
        return [], None
    path = follow_link(path)
    database.check_file(path, create=False)
    with (
        database.find_readable(path) as source,
        database.explain_errors(path),
        closing(database.open_for_reading(source)) as connection,
    ):
        commands = fetch(connection, record_tables.COMMANDS.select('ORDER BY "row"'), ())
        frozen = fetch(connection, "SELECT recipe FROM run", ())
    with explain_values():
        return list(map(record_tables.COMMANDS.read, commands)), read_recipe(frozen[0][0]) if frozen else None
