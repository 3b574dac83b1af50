"""Merges the parts of a run into one, after a check that they are of one plan: shards, or runs and imports."""

from __future__ import annotations

import heapq
import sqlite3
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import groupby, pairwise, takewhile
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_core import from_json

from bactrian.api.bridge import run_sync, shorten_traceback
from bactrian.api.known_runs import find_copy
from bactrian.errors import InputError, StoreError
from bactrian.evaluate.label_queues import match_queues, merge_queues
from bactrian.files.atomic import is_same_file, raise_file_limit
from bactrian.files.recent_runs import add_recent_run
from bactrian.recipes.load import find_differences
from bactrian.runs.plan import SHARD
from bactrian.store import database, find_run
from bactrian.store.care import read_making
from bactrian.store.locations import locate_file
from bactrian.store.lock import RunLock, follow_link, lock_run
from bactrian.store.record_tables import SEALED, compute_seal, quote_names, write_json
from bactrian.store.store import explain_values, read_recipe

if TYPE_CHECKING:
    from bactrian.api.stored_run import Run

_ROWS = 20_000
"""Turns in one transaction."""
_FILES = 4
"""Files that an open part may need."""
# The rows of a session: those that make its conversation, and those that people and judges add to it.
_MAKING = ("turns", "proposals", "verdicts", "tools")
_ADDED = ("confirmations", "marks", "votes")
_COLUMNS = {table: (*columns, "seal") for table, columns in SEALED.items()}
_SELECT = {table: f"SELECT {quote_names(columns)} FROM {table}" for table, columns in _COLUMNS.items()}  # noqa: S608
_INSERT = {
    table: f"INSERT OR IGNORE INTO main.{table} ({quote_names(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608
    for table, columns in _COLUMNS.items()
}
_UPDATE = {
    table: f"UPDATE main.{table} SET ({quote_names(columns)}) = ({', '.join('?' * len(columns))}) WHERE id = ?"  # noqa: S608
    for table, columns in _COLUMNS.items()
    if table in ("sessions", "lists")
}
# The ids of jobs are positions in the grid, so they sort as the jobs of one run follow each other. What follows them in
# an id names the sessions of one job, which stay in their order.
_PLACE = "substr(id, 1, length(id) - length(ltrim(id, '0123456789_')))"
_IDS = f"""
SELECT iif({_PLACE} = '', id, {_PLACE}) AS place, "row", id FROM sessions ORDER BY place, "row"
"""  # noqa: S608
_IDENTITY = ("assistant_role", "user_role", "original_task", "axis_values", "specified_task", "planned_task")
_FULLNESS = """
SELECT (SELECT count(*) FROM turns WHERE session = ?1),
    ending IS NOT NULL AND ending NOT IN ('failed', 'stopped'), ending IS NOT NULL, specified_task IS NOT NULL,
    (SELECT count(*) FROM proposals WHERE session = ?1) + (SELECT count(*) FROM verdicts WHERE session = ?1)
    + (SELECT count(*) + count(result) FROM tools WHERE session = ?1)
FROM sessions WHERE id = ?1
"""

OnProgress = Callable[[int, int | None], None]


@dataclass(frozen=True, slots=True)
class MergeReport:
    """The result of a merge."""

    sessions: int
    """Sessions of the whole."""
    turns: int
    added: int
    """Sessions that were new to the whole, or had more turns in a part."""
    open: int
    """Sessions of the whole that have not ended."""
    missing: tuple[str, ...]
    """Shards that were not among the parts, such as ``3/8``."""


class _OpenPart(NamedTuple):
    path: Path
    connection: sqlite3.Connection
    content: Mapping[str, Any] | None
    """What it was made from, without its shard."""
    shard: str | None

    def read(self, table: str, rest: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a table."""
        with database.explain_errors(self.path):
            rows = self.connection.execute(f"{_SELECT[table]} {rest}", values).fetchall()
        if any(compute_seal(row[:-1]) != row[-1] for row in rows):
            raise StoreError(
                f"The part is damaged: a row of the table {table} does not match its checksum.",
                where=str(self.path),
                next="`bactrian recover PART.db --out NEW.db` saves what is readable; merge that. What was merged"
                " before it is whole.",
            )
        return rows

    def iterate(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query, a few at a time in memory."""
        with database.explain_errors(self.path):
            for row in self.connection.execute(sql):  # noqa: UP028  which would close the cursor after its connection
                yield row

    def count(self, table: str) -> int:
        """Return the number of rows of a table."""
        return next(self.iterate(f"SELECT count(*) FROM {table}"))[0]  # noqa: S608


def merge_runs(parts: Sequence[Path], whole: Path, on_progress: OnProgress | None = None) -> MergeReport:
    """Put all that ``parts`` contain into the run ``whole``, and return what it contains then.

    The parts have one plan, but for their shards, and do not change. A session that several have is taken from the one
    that has more of its turns. Nothing is written if the parts contradict each other or the whole. After a kill, the
    same call goes on; with parts that have grown since, it adds what is new.

    The result equals one run of the same jobs, but for the times, the commands, the row numbers if the order of the
    jobs was another than that of the grid, and failed calls, which are in the order of the parts.

    ``on_progress`` is called with the number of sessions that were looked at, and of all.

    Raises:
        InputError: the parts are not of one plan, or have two texts for one turn.
        RunInUse: another process writes the whole.
        StoreError: a part or the whole cannot be read or written.
    """
    _check_paths(parts, whole)
    queues = match_queues(parts, whole)
    with explain_values(), ExitStack() as stack:
        raise_file_limit(_FILES * len(parts) + 64)
        opened = [stack.enter_context(_open_part(path)) for path in parts]
        lock = stack.enter_context(lock_run(whole.absolute()))
        present = stack.enter_context(_open_part(whole)) if whole.exists() else None
        _check_plans(opened, present)
        total = sum(part.count("sessions") for part in opened)
        for place, (list_id, found) in enumerate(_find_lists(opened)):
            _check_list(list_id, [*([present] if present else []), *found])
            _tell(on_progress, place, None)
        for session, found in _find_sessions(opened):
            _check_session(session, [*([present] if present else []), *found])
        if present:
            present.connection.close()
        with database.explain_errors(whole), _open_whole(whole, lock) as connection:
            added = _Merger(connection, lock, opened, on_progress, total).merge()
            counts = "SELECT count(*), (SELECT count(*) FROM turns), sum(ending IS NULL) FROM sessions"
            sessions, turns, unfinished = connection.execute(counts).fetchone()
    run_sync(merge_queues(queues, whole))
    return MergeReport(sessions, turns, added, unfinished or 0, _list_missing(opened))


def merge(parts: Iterable[Run | str | Path], *, run: str | Path) -> Run:
    """Put the parts of a run together, such as the shards that :func:`generate` made apart, and return the whole.

    The parts are not changed, and may be incomplete: :meth:`Run.resume` of the whole makes the jobs that are left. The
    same call again adds what the parts have more since.

    Example:
        >>> import bactrian as bt
        >>> script = bt.Scripted({"task_specifier": ["Name a green tea."], "user": ["<CAMEL_TASK_DONE>"]})
        >>> small = bt.recipe("ai-society", assistant_role=["Host", "Cook"], user_role=["Guest"], task=["Teas"])
        >>> parts = [bt.generate(small, run=f"part-{k}.db", model=script, shard=f"{k}/2") for k in (1, 2)]
        >>> len(bt.merge(parts, run="whole.db"))
        2

    Args:
        parts: Runs of one plan, or their files.
        run: File of the whole; created if it does not exist.

    Raises:
        InputError: the parts are not of one plan, or have two texts for one turn. Nothing is written then.
        RunInUse: another process writes the whole.
        StoreError: a part or the whole cannot be read or written.
    """
    from bactrian.api.stored_run import Run  # whose commands read parts

    with shorten_traceback():
        whole = locate_file(run)
        paths = [part.path if isinstance(part, Run) else find_run(find_copy(part)) for part in parts]
        merge_runs(paths, whole)
    return Run(whole)


@contextmanager
def join_parts(parts: Sequence[Path], on_progress: OnProgress | None = None) -> Generator[Path]:
    """Provide one run to read with all that ``parts`` contain: the part itself, or a temporary one.

    Raises what :func:`merge_runs` raises.
    """
    if len(parts) == 1:
        yield parts[0]
        return
    least, most = min(part.stem for part in parts), max(part.stem for part in parts)
    common = "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(least, most, strict=False)))
    stem = common.rstrip("-_. ") or "parts"
    with tempfile.TemporaryDirectory(prefix="bactrian-") as folder:
        whole = Path(folder) / f"{stem}.db"
        merge_runs(parts, whole, on_progress)
        yield whole


def group_parts(runs: Sequence[Path]) -> list[list[Path]]:
    """Return ``runs`` in groups: the shards of one plan are one, and each other run is one."""
    groups: list[tuple[object, list[Path]]] = []
    for run in runs:
        content = dict(read_making(run)[1] or {})
        key = content if content.pop(SHARD, None) else None
        known = next((group for content, group in groups if key is not None and content == key), None)
        if known is None:
            groups.append((key, [run]))
        else:
            known.append(run)
    return [group for _, group in groups]


def _check_paths(parts: Sequence[Path], whole: Path) -> None:
    if not parts:
        raise InputError("There is no part.", option="parts", next="Name the runs to merge.")
    for place, part in enumerate(parts):
        if is_same_file(part, whole):
            raise InputError(
                "A part cannot be the whole, too.", where=str(part), next="Name a new file: run=WHOLE"
            )
        if any(is_same_file(part, other) for other in parts[:place]):
            raise InputError("This part is named twice.", where=str(part), next="Name it once.")


@contextmanager
def _open_part(path: Path) -> Generator[_OpenPart]:
    """Open a run as it is now, whatever is written meanwhile."""
    path = follow_link(path)
    database.check_file(path, create=False)
    with (
        database.find_readable(path) as source,
        database.explain_errors(path),
        closing(database.open_for_reading(source)) as connection,
    ):
        connection.execute("PRAGMA cache_size = -512")  # there may be a thousand parts
        connection.execute("BEGIN")
        if (schema := database.read_schema(connection)) != database.SCHEMA:
            raise StoreError(
                f"The part has schema {schema}, and is to have schema {database.SCHEMA}.",
                where=str(path),
                next="Resume it with this version, which brings it to that schema.",
            )
        rows = connection.execute("SELECT recipe FROM run").fetchall()
        with explain_values():
            content = read_recipe(rows[0][0]) if rows else None
        shard = content.pop(SHARD, None) if content else None
        yield _OpenPart(path, connection, content, shard)


def _check_plans(parts: Sequence[_OpenPart], whole: _OpenPart | None) -> None:
    """Refuse parts of different plans."""
    if whole is not None and whole.shard:
        raise InputError(
            f"This run is shard {whole.shard}, and parts are merged into a run of all jobs.",
            where=str(whole.path),
            next="Name a new file: run=WHOLE",
        )
    if whole is not None and whole.content is None and not whole.count("sessions"):
        whole = None  # a kill came before the first commit
    first, *others = [*([whole] if whole else []), *parts]
    for other in others:
        if other.content != first.content:
            differences = find_differences(first.content or {}, other.content or {})
            more = f"; and {len(differences) - 4} more" if len(differences) > 4 else ""
            raise InputError(
                f"This is a part of another plan than {first.path.name}: {'; '.join(differences[:4])}{more}.",
                where=str(other.path),
                next="Merge parts of one recipe with the same settings, models and seed; or read each run alone.",
            )


def _list_missing(parts: Sequence[_OpenPart]) -> tuple[str, ...]:
    """Return the shards that are not among the parts, if all were divided alike."""
    present = {part.shard for part in parts if part.shard}
    counts = {int(shard.partition("/")[2]) for shard in present}
    if len(counts) != 1 or len(present) < len(parts):
        return ()
    (count,) = counts
    return tuple(f"{number}/{count}" for number in range(1, count + 1) if f"{number}/{count}" not in present)


# What parts have in common must be the same. This is checked before anything is written.


def _find_sessions(parts: Sequence[_OpenPart]) -> Iterator[tuple[str, list[_OpenPart]]]:
    """Yield the id of each session in the order of the grid, with the parts that have it."""

    def list_ids(place: int) -> Iterator[tuple[str, int, str]]:
        return ((key, place, session) for key, _, session in parts[place].iterate(_IDS))

    ids = heapq.merge(*map(list_ids, range(len(parts))), key=itemgetter(0, 1))
    for _, group in groupby(ids, itemgetter(0)):
        found: dict[str, list[_OpenPart]] = {}
        for _, place, session in group:
            found.setdefault(session, []).append(parts[place])
        yield from found.items()


def _find_lists(parts: Sequence[_OpenPart]) -> Iterator[tuple[str, list[_OpenPart]]]:
    """Yield the id of each list, with the parts that have it."""

    def list_ids(place: int) -> Iterator[tuple[str, int]]:
        return ((list_id, place) for (list_id,) in parts[place].iterate("SELECT id FROM lists ORDER BY id"))

    for list_id, group in groupby(heapq.merge(*map(list_ids, range(len(parts)))), itemgetter(0)):
        yield list_id, [parts[place] for _, place in group]


def _check_session(session: str, sources: Sequence[_OpenPart]) -> None:
    """Refuse two texts for one turn."""
    if len(sources) < 2:
        return
    names = quote_names(_IDENTITY)
    read = [
        (
            source,
            source.connection.execute(f"SELECT {names} FROM sessions WHERE id = ?", (session,)).fetchone(),  # noqa: S608
            source.connection.execute(
                "SELECT number, speaker, text FROM turns WHERE session = ? ORDER BY number", (session,)
            ).fetchall(),
        )
        for source in sources
    ]
    present = [each for each in read if each[1] is not None]
    for (one, about, turns), (other, other_about, other_turns) in pairwise(present):
        if any(a != b for a, b in zip(about, other_about, strict=True) if a is not None and b is not None):
            _refuse(f"Session {session} has two tasks or casts", one, other)
        for turn, other_turn in zip(turns, other_turns, strict=False):
            if turn != other_turn:
                _refuse(f"Turn {turn[0]} of session {session} has two texts", one, other)


def _check_list(list_id: str, sources: Sequence[_OpenPart]) -> None:
    """Refuse two lists with one id; one may be the beginning of the other."""
    if len(sources) < 2:
        return
    query = "SELECT items FROM lists WHERE id = ?"
    rows = [(source, source.connection.execute(query, (list_id,)).fetchone()) for source in sources]
    present = [(source, list[str](from_json(row[0]))) for source, row in rows if row is not None]
    for (one, items), (other, other_items) in pairwise(present):
        if any(a != b for a, b in zip(items, other_items, strict=False)):
            _refuse(f"There are two lists {list_id!r}", one, other)


def _refuse(what: str, one: _OpenPart, other: _OpenPart) -> None:
    raise InputError(
        f"{what}: one in {one.path} and one in {other.path}.",
        where=str(other.path),
        next="Nothing was written. They were made apart from each other: leave one of them out.",
    )


# Writing.


@contextmanager
def _open_whole(path: Path, lock: RunLock) -> Generator[sqlite3.Connection]:
    with closing(database.connect(path)) as connection:
        lock.guard_run()
        add_recent_run(path.absolute())
        try:
            yield connection
        finally:
            database.mark_closed(connection)  # also where a part is damaged: what was committed is whole


class _Merger:
    """Copies the rows of the parts."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        lock: RunLock,
        parts: Sequence[_OpenPart],
        on_progress: OnProgress | None,
        total: int,
    ) -> None:
        self._connection = connection
        self._lock = lock
        self._parts = parts
        self._on_progress = on_progress
        self._total = total
        self._had_any = bool(connection.execute("SELECT 1 FROM sessions LIMIT 1").fetchone())
        # Most parts have no rows in most tables, and need not be asked for them for each session.
        self._filled = {
            part.path: [table for table in (*_MAKING, *_ADDED) if part.count(table)] for part in parts
        }

    def merge(self) -> int:
        """Copy everything; return the number of sessions that were added or continued."""
        with self._transaction():
            self._copy_run()
            for list_id, parts in _find_lists(self._parts):
                self._copy_list(list_id, parts)
        added, done, sessions = 0, 0, _find_sessions(self._parts)
        going = True
        while going:
            going = False
            with self._transaction():
                rows = 0
                for session, parts in sessions:
                    if written := self._copy_session(session, parts):
                        added += 1
                        rows += written
                    done += 1
                    if rows > _ROWS:
                        going = True
                        break
            _tell(self._on_progress, done, self._total)
        with self._transaction():
            self._copy_calls()
        return added

    @contextmanager
    def _transaction(self) -> Generator[None]:
        self._lock.check()
        with database.begin_transaction(self._connection):
            yield
            database.count_rows(self._connection)

    def _copy_run(self) -> None:
        content = self._parts[0].content
        if content is not None:
            made = [row[2] for part in self._parts for row in part.read("run", "")]
            self._connection.execute(
                'INSERT OR IGNORE INTO run ("row", recipe, created, seal) VALUES (1, ?1, ?2, row_seal(1, ?1, ?2))',
                (write_json(content), min(made)),
            )
        created = _COLUMNS["commands"].index("created")
        commands = [row for part in self._parts for row in part.read("commands", "")]
        self._connection.executemany(_INSERT["commands"], sorted(commands, key=itemgetter(created)))

    def _copy_list(self, list_id: str, parts: Sequence[_OpenPart]) -> None:
        where = "WHERE id = ?"
        items, complete, calls = map(_COLUMNS["lists"].index, ("items", "complete", "calls"))

        def measure(row: Sequence[Any]) -> tuple[int, int, int]:
            return len(from_json(row[items])), row[complete], row[calls]

        best = max((part.read("lists", where, list_id)[0] for part in parts), key=measure)
        present = self._connection.execute(f"{_SELECT['lists']} {where}", (list_id,)).fetchone()
        if present is None:
            self._connection.execute(_INSERT["lists"], best)
        elif measure(best) > measure(present):
            self._connection.execute(_UPDATE["lists"], (*best, list_id))

    def _copy_session(self, session: str, parts: Sequence[_OpenPart]) -> int:
        """Copy a session from the part that has most of it; return the number of rows."""
        connection, best = self._connection, parts[0]
        if len(parts) > 1:
            best = max(parts, key=lambda part: part.connection.execute(_FULLNESS, (session,)).fetchone())
        present = connection.execute(_FULLNESS, (session,)).fetchone() if self._had_any else None
        written = 0
        if present is None:
            connection.execute(_INSERT["sessions"], best.read("sessions", "WHERE id = ?", session)[0])
            written = 1
        elif best.connection.execute(_FULLNESS, (session,)).fetchone() > present:
            (row,) = best.read("sessions", "WHERE id = ?", session)
            connection.execute(_UPDATE["sessions"], (*row, session))
            for table in _MAKING:
                connection.execute(f"DELETE FROM main.{table} WHERE session = ?", (session,))  # noqa: S608
            written = 1
        for table in self._filled[best.path] if written else ():
            if table in _MAKING:
                written += self._copy_rows(best, table, session)
        for part in parts:
            for table in self._filled[part.path]:
                if table in _ADDED:
                    self._copy_rows(part, table, session)
        return written

    def _copy_rows(self, part: _OpenPart, table: str, session: str) -> int:
        rows = part.read(table, 'WHERE session = ? ORDER BY "row"', session)
        self._connection.executemany(_INSERT[table], rows)
        return len(rows)

    def _copy_calls(self) -> None:
        """Copy the calls, which have no key: one that the whole has is not copied again."""
        key = "session, agent, ordinal, seconds, coalesce(error, '')"
        connection = self._connection
        connection.execute("DROP TABLE IF EXISTS temp.copied")
        connection.execute(
            "CREATE TEMP TABLE copied (a, b, c, d, e, PRIMARY KEY (a, b, c, d, e)) WITHOUT ROWID"
        )
        connection.execute(f"INSERT OR IGNORE INTO copied SELECT {key} FROM main.calls")  # noqa: S608
        places = itemgetter(
            *map(_COLUMNS["calls"].index, ("session", "agent", "ordinal", "seconds", "error"))
        )
        for part in self._parts:
            for row in part.iterate(f'{_SELECT["calls"]} ORDER BY "row"'):
                *known, error = places(row)
                holes = "INSERT OR IGNORE INTO copied VALUES (?, ?, ?, ?, ?)"
                if connection.execute(holes, (*known, error or "")).rowcount:
                    connection.execute(_INSERT["calls"], row)
        connection.execute("DROP TABLE temp.copied")


def _tell(on_progress: OnProgress | None, done: int, total: int | None) -> None:
    if on_progress is not None:
        on_progress(done, total)
