"""The database of a shared run: its connections, its schema in PostgreSQL's dialect, and its errors."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import cache
from importlib import resources
from logging import NullHandler, getLogger
from os import dup
from threading import Lock
from typing import TYPE_CHECKING, Any, LiteralString, TypeVar, cast
from urllib.parse import urlsplit

from bactrian.errors import BactrianError, InputError, LeaseLost, StoreError, import_optional
from bactrian.store.database import SCHEMA, read_schema_text
from bactrian.store.locations import KEEP_ELSEWHERE, RunAddress

if TYPE_CHECKING:
    import psycopg

VERSION = SCHEMA
"""Of the tables of a shared run; a worker of another version is refused."""
LEASE = 60.0
"""Seconds without a sign of life after which others take over the jobs of a worker."""
_CONNECT_SECONDS = 5
_IDLE, _IDLE_COPYING = "5s", "10min"
"""A transaction that waits so long for its next statement is ended by the server: it may hold what others wait for."""
_END_STOPPED = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
        AND state = 'active' AND wait_event = 'ClientRead' AND left(query, 4) <> 'COPY'
        AND query_start < clock_timestamp() - %s::interval
"""
_LOST = "BT001"
_READ_ONLY = "25006"
# A replica that takes the place of a server changes it, and may lack what was committed last.
_TIMELINE = "SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)"
_FULL, _NOT_ALLOWED = "53100", ("42501", "42P01", "42883")
_RETRY_SECONDS = (0.1, 1.0)
PATIENCE = 1800.0
"""Seconds without a database after which a worker gives up; what it has in memory is lost then."""
T = TypeVar("T")
Work = Callable[["psycopg.Connection[Any]"], T]


class Outage:
    """Tells a person once that the database is away, whichever connection finds it out, and once that it is back."""

    def __init__(self, say: Callable[[str], object] | None = None) -> None:
        self.say: Callable[[str], object] = say or (lambda _: None)
        self._failing: set[object] = set()

    def begin(self, connection: object, problem: str) -> None:
        """Note that ``connection`` fails."""
        if not self._failing:
            self.say(f"The database does not take data, and is asked again: {problem}.")
        self._failing.add(connection)

    def end(self, connection: object) -> None:
        """Note that ``connection`` works."""
        if connection in self._failing:
            self._failing.discard(connection)
            if not self._failing:
                self.say("The database takes data again.")


class Server:
    """One connection to the database of a run, which threads use in turn. It is opened again after a break.

    Nothing is kept in the session of the server, so that pgbouncer may give each transaction another one.
    """

    def __init__(self, address: RunAddress, outage: Outage | None = None, *, snapshot: bool = False) -> None:
        self.address = address
        self._psycopg = import_optional("psycopg", "postgres", "A run in PostgreSQL")
        # It warns of broken connections, which are made again.
        getLogger("psycopg").addHandler(NullHandler())
        self.outage = outage or Outage()
        # Of several servers, the one that is not a replica.
        several = (
            "," in urlsplit(address.connection).netloc and "target_session_attrs" not in address.connection
        )
        self._only: dict[str, str] = {"target_session_attrs": "read-write"} if several else {}
        self._snapshot = snapshot
        self._turn = Lock()
        self._connection: psycopg.Connection[Any] | None = None
        self._held: psycopg.Connection[Any] | None = None
        self._patience = 0.0
        self.timeline: str | None = None
        """That of the server in which a worker joined; None if it is unknown."""
        self.busy_since: float | None = None
        """When the transaction began that is under way; None between transactions."""

    def open(self) -> None:
        """Connect once. After this, a broken connection is made again, and a database that is away is waited for.

        Raises:
            InputError: the database cannot be reached, or refuses the user.
            MissingExtra: psycopg is not installed.
        """
        try:
            self._connect()
        except self._psycopg.Error as error:
            raise self._explain(error) from error
        self._patience = PATIENCE

    def hold(self) -> None:
        """Begin a transaction in which all later work is done until :meth:`close`: it reads one state of the run."""
        self.transact(self._set_up, pipelined=False)
        self._held = self._connection
        self.transact(self._set_up)

    def give_up(self, seconds: float) -> None:
        """Wait only so much longer for a database that is away: the process is to end."""
        self._patience = seconds

    def close(self) -> None:
        """Close the connection."""
        with self._turn:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def cut(self, seconds: float) -> None:
        """Break the connection if its transaction has lasted longer than ``seconds``: the way to it may be a hole."""
        since, connection = self.busy_since, self._connection
        if since is not None and connection is not None and time.monotonic() - since > seconds:
            with (
                suppress(OSError, self._psycopg.Error),
                socket.socket(fileno=dup(connection.fileno())) as line,
            ):
                line.shutdown(socket.SHUT_RDWR)

    def transact(self, work: Work[T], *, worker: int | None = None, pipelined: bool = True) -> T:
        """Do ``work`` in one transaction, and again if the connection breaks: so it has to be repeatable.

        It is one round trip if ``work`` reads no result. With ``worker``, nothing is done once that one is dead, or
        another server has taken the place of the one where it joined.

        Raises:
            LeaseLost: ``worker`` is dead, or the server is another one.
            StoreError: the database refuses it, or has been away for too long.
        """
        with self._turn:
            if self._held is not None:
                try:
                    return work(self._held)
                except self._psycopg.Error as error:
                    raise self._explain(error) from error
            began, wait, again = time.monotonic(), _RETRY_SECONDS[0], False
            while True:
                try:
                    result = self._try(work, worker, pipelined, again=again)
                    self.outage.end(self)
                    return result
                except self._psycopg.Error as error:
                    if error.sqlstate == _LOST:
                        moved = self.read_timeline() not in (None, self.timeline)
                        raise LeaseLost(str(self.address), moved=moved) from error
                    broken = self._connection is None or self._connection.broken
                    self._drop()
                    passing = isinstance(error, self._psycopg.OperationalError) or broken
                    # A replica, for now; who has not worked in the run yet may have been given the wrong address.
                    passing = passing or (error.sqlstate == _READ_ONLY and worker is not None)
                    if not passing or time.monotonic() - began > self._patience:
                        raise self._explain(error) from error
                    if time.monotonic() - began > 1:
                        self.outage.begin(self, _describe(error))
                time.sleep(wait)
                wait, again = min(2 * wait, _RETRY_SECONDS[1]), True

    def _try(self, work: Work[T], worker: int | None, pipelined: bool, *, again: bool = False) -> T:
        self.busy_since = time.monotonic()
        try:
            connection = self._connection or self._connect()
            with connection.pipeline() if pipelined else nullcontext():
                self._set_up(connection, _IDLE_COPYING if self._snapshot or not pipelined else _IDLE)
                if again:  # The connection may have been cut while it waited for a lock.
                    end_stopped(connection)
                if worker is not None:
                    known = self.timeline
                    here = f"CASE ({_TIMELINE}) WHEN %(known)s THEN %(me)s::bigint END" if known else "%(me)s"
                    connection.execute(f"SELECT fence({here})", {"known": known, "me": worker})
                result = work(connection)
                connection.execute("COMMIT")
            return result
        except BaseException:
            if self._connection is not None and not self._connection.closed:
                with suppress(self._psycopg.Error):
                    self._connection.rollback()
            raise
        finally:
            self.busy_since = None

    def _set_up(self, connection: psycopg.Connection[Any], idle: str = _IDLE_COPYING) -> None:
        """Have the transaction find the tables of the run, and end when nobody asks for so long."""
        connection.execute(
            "SELECT set_config('search_path', %s, true),"
            " set_config('idle_in_transaction_session_timeout', %s, true)",
            (self.address.schema, idle),
        )

    def read_timeline(self) -> str | None:
        """Return the timeline of the server; None where it does not tell."""
        try:
            return self._try(lambda connection: fetch(connection, _TIMELINE)[0][0], None, pipelined=False)
        except self._psycopg.Error:
            return None

    def _connect(self) -> psycopg.Connection[Any]:
        # Statements that the server keeps by a name would be missing in the next session that pgbouncer gives.
        self._connection = self._psycopg.connect(
            self.address.connection,
            prepare_threshold=None,
            connect_timeout=_CONNECT_SECONDS,
            application_name="bactrian",
            **self._only,
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
        )
        connection = cast("psycopg.Connection[Any]", self._connection)
        if self._snapshot:
            connection.isolation_level = self._psycopg.IsolationLevel.REPEATABLE_READ
        return connection

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(self._psycopg.Error):
                self._connection.close()
            self._connection = None

    def _explain(self, error: psycopg.Error) -> BactrianError:
        where, problem = str(self.address), _describe(error)
        kept = "Data written before is safe."
        if error.sqlstate == _FULL:
            return StoreError(
                "The disk of the database is full.",
                where=where,
                next=f"{kept} Free some space there, and run the same command.",
            )
        if not self._patience:
            advice = (
                "Check that the server runs, and the address. `bactrian help cluster` shows how to start one."
            )
            if "password" in problem:
                advice = KEEP_ELSEWHERE
            return InputError(f"The database cannot be used: {problem}.", where=where, next=advice)
        advice = "Run the same command again."
        if error.sqlstate == _READ_ONLY:
            advice = "A replica can be read only: give the address of the server that writes."
        if error.sqlstate in _NOT_ALLOWED:  # what a user may not see is not there, either
            advice = (
                f"The user needs the right to create a schema, or all rights to {self.address.schema} and its tables."
                " `bactrian help cluster` shows how the owner grants them."
            )
        return StoreError(f"The database cannot be used: {problem}.", where=where, next=f"{kept} {advice}")


def _describe(error: Exception) -> str:
    """Return the first line of what the server or libpq said, which never contains a password."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".")


# The tables of a run, in the dialect of PostgreSQL.

_JSON = re.compile(r"json_extract\((\w+), '\$\.(\w+)'\)")
_JSON_CASTS = {
    **dict.fromkeys(("prompt", "completion", "cached", "written"), "::BIGINT"),
    "estimated": "::BOOLEAN::INTEGER",
}
_SEAL = re.compile(r", seal = iif\(.*?, seal\) WHERE ")
_TYPES = {
    '"row" INTEGER NOT NULL PRIMARY KEY,': '"row" BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,',
    "INTEGER": "BIGINT",
    "FLOAT": "DOUBLE PRECISION",
    "BLOB": "BYTEA",
}


@cache
def translate(sql: str) -> LiteralString:
    """Translate a statement of the store: its placeholders, and without the seals, which copies get when pulled."""
    sql = _SEAL.sub(" WHERE ", sql.replace("%", "%%")).replace(
        "count(DISTINCT json_array(", "count(DISTINCT ("
    )
    sql = _JSON.sub(lambda part: f"({part[1]}::json ->> '{part[2]}'){_JSON_CASTS.get(part[2], '')}", sql)
    return cast("LiteralString", re.sub(r"\?\d*", "%s", sql).replace("x''", "''::bytea"))


def write_schema() -> str:
    """Return the SQL that creates the tables of a shared run."""
    # Without the totals: the rows of a file are counted when it is pulled.
    sql = read_schema_text().partition("CREATE TABLE totals")[0]
    for name, type_ in _TYPES.items():
        sql = sql.replace(name, type_)
    return sql + resources.files("bactrian.shared").joinpath("shared.sql").read_text("utf-8")


def create_tables(server: Server, lease: float | None) -> None:
    """Create the tables of the run unless they exist.

    Raises:
        InputError: the run is of another version of the program, or the user may not create tables.
    """
    schema = server.address.schema

    def create(connection: psycopg.Connection[Any]) -> None:
        exists = has_tables(connection)
        if not exists:
            # Two that create it at once: the second one waits for the first.
            connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (schema,))
            exists = has_tables(connection)
        if not exists:
            connection.execute(cast("LiteralString", f"CREATE SCHEMA IF NOT EXISTS {schema}"))
            for statement in split_statements(write_schema()):
                connection.execute(cast("LiteralString", statement))
            connection.execute("INSERT INTO frontier VALUES (1, %s, %s, '', 0)", (VERSION, lease or LEASE))
            return
        check_version(server.address, _read_version(connection))
        if lease is not None:
            connection.execute("UPDATE frontier SET lease = %s WHERE lease <> %s", (lease, lease))

    server.transact(create)


def _read_version(connection: psycopg.Connection[Any]) -> int:
    rows = fetch(connection, "SELECT version FROM frontier")
    return rows[0][0] if rows else 0  # a hand has removed it


def check_version(address: RunAddress, version: int) -> None:
    """Refuse tables of another version.

    Raises:
        InputError: they are.
    """
    if version != VERSION:
        raise InputError(
            f"Another version of bactrian made this run: its tables are version {version}, and this one's {VERSION}.",
            where=str(address),
            next="Use the same version on all computers. To go on with this one, stop all processes, `bactrian pull` "
            "the run with the version that made it, and `bactrian push` the file with this one to another ?run=NAME.",
        )


def has_tables(connection: psycopg.Connection[Any]) -> bool:
    """Return True if the run is there."""
    # Not to_regclass, which may remember that there was none.
    query = (
        "SELECT FROM pg_tables WHERE schemaname = current_setting('search_path') AND tablename = 'frontier'"
    )
    return bool(fetch(connection, query))


def find_tables(connection: psycopg.Connection[Any], address: RunAddress) -> None:
    """Check that the run is there, for commands that read it.

    Raises:
        InputError: it is not there, or another version of the program made it.
    """
    if not has_tables(connection):
        raise InputError(
            "There is no such run in the database.",
            where=str(address),
            next="`bactrian generate RECIPE --run ADDRESS` begins one.",
        )
    check_version(address, _read_version(connection))


def split_statements(sql: str) -> Iterator[str]:
    """Yield the statements of a script; a body between ``$$`` is part of its statement."""
    plain = re.sub(r"--[^\n]*", "", sql)
    yield from (part for part in re.findall(r"(?:\$\$.*?\$\$|[^;$])+", plain, re.DOTALL) if part.strip())


def end_stopped(connection: psycopg.Connection[Any]) -> None:
    """End the sessions that wait in the middle of a pipeline, which the limit of idle transactions does not see.

    The server takes them for active ones. So a process that is stopped there, or whose network is gone, would keep its
    locks.
    """
    connection.execute(_END_STOPPED, (_IDLE,))


def fetch(
    connection: psycopg.Connection[Any], sql: str, values: Sequence[Any] | Mapping[str, Any] = ()
) -> list[tuple[Any, ...]]:
    """Return all rows of a query."""
    return connection.execute(cast("LiteralString", sql), values).fetchall()
