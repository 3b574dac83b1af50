"""The ledger of a run's batches: which requests are out, in which batch, and the replies that came.

It is in the folder ``RUN.batches`` beside the run: a database, and the files of the batches that are out. A batch is
written here before it is sent, and a reply before its conversation goes on, so that a killed process loses neither.
"""

from __future__ import annotations

import os
import sqlite3
import time
from base64 import b32encode
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Literal, NamedTuple

from bactrian.errors import StoreError

State = Literal["written", "submitting", "sent", "ended"]
"""``written``: in a file here, and nowhere else. ``submitting``: the provider was asked to create it, and may have."""
_TABLES = """
CREATE TABLE IF NOT EXISTS ledger (id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS batches (
    number INTEGER PRIMARY KEY, model TEXT NOT NULL, state TEXT NOT NULL, requests INTEGER NOT NULL,
    file TEXT, remote TEXT, created REAL NOT NULL, sent REAL, ended REAL, cancelled REAL
);
CREATE TABLE IF NOT EXISTS requests (
    session TEXT NOT NULL, agent TEXT NOT NULL, call_index INTEGER NOT NULL, attempt INTEGER NOT NULL,
    model TEXT NOT NULL, tries INTEGER NOT NULL, custom_id TEXT NOT NULL UNIQUE, batch INTEGER NOT NULL,
    state TEXT NOT NULL, status INTEGER, reply BLOB,
    PRIMARY KEY (session, agent, call_index, attempt, model)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS requests_by_batch ON requests (batch);
CREATE TABLE IF NOT EXISTS foreign_batches (remote TEXT PRIMARY KEY);
"""


class Place(NamedTuple):
    """What a request is for. A resumed conversation asks at the same places, so it finds what is out for them."""

    session: str
    agent: str
    call_index: int
    attempt: int
    model: str


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as the ledger knows it. Times are in seconds since 1970."""

    number: int
    model: str
    state: State
    requests: int
    file: str | None
    """The provider's name of the uploaded file."""
    remote: str | None
    """The provider's name of the batch."""
    created: float
    sent: float | None
    ended: float | None
    cancelled: float | None


class Stored(NamedTuple):
    """A request in the ledger."""

    custom_id: str
    tries: int
    batch: int
    state: Literal["out", "done", "again"]
    """``again``: its batch ended without a reply to it."""
    status: int | None
    """HTTP status of the reply."""
    reply: bytes | None


class Result(NamedTuple):
    """What a batch says about one of its requests."""

    custom_id: str
    status: int
    """HTTP status of the reply; 503 if there is none, because the batch expired or was cancelled."""
    reply: bytes
    """Body of the reply, in the chat-completions wire format."""


def find_folder(run: Path) -> Path:
    """Return the folder of a run's batches."""
    return run.with_name(f"{run.name}.batches")


def count_out(run: Path) -> int:
    """Return the number of requests in batches of the run that are out, or whose replies no conversation has yet.

    Raises:
        StoreError: the ledger is damaged.
    """
    path = find_folder(run) / "ledger.db"
    if not path.is_file() or not path.stat().st_size:  # a kill came before its tables
        return 0
    with (
        _explain_errors(path),
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection,
    ):
        return connection.execute(
            "SELECT coalesce(sum(requests), 0) FROM batches WHERE state <> 'ended'"
        ).fetchone()[0]


@contextmanager
def _explain_errors(path: Path) -> Generator[None]:
    try:
        yield
    except (OSError, TypeError, sqlite3.Error) as error:
        raise StoreError(
            f"The ledger of the batches cannot be used: {error}.",
            where=str(path),
            next="Check its folder. Without the ledger, the replies of batches that are out are lost.",
        ) from error


class Ledger:
    """The open ledger of a run. Every change is on disk when its method returns.

    Raises:
        StoreError: the ledger cannot be opened.
    """

    def __init__(self, run: Path) -> None:
        self.folder = find_folder(run)
        self._path = self.folder / "ledger.db"

    def open(self) -> None:
        """Open the ledger, or create it.

        Raises:
            StoreError: it is damaged, or cannot be written.
        """
        with _explain_errors(self._path):
            self.folder.mkdir(exist_ok=True)
            self._database = sqlite3.connect(self._path, isolation_level=None)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
            self._database.executescript(_TABLES)
            if (row := self._database.execute("SELECT id FROM ledger").fetchone()) is None:
                row = (token_hex(8),)
                self._database.execute("INSERT INTO ledger VALUES (?)", row)
            self.id: str = row[0]
            self.list_open()  # so that a ledger of another form is refused here

    def close(self) -> None:
        """Close the ledger."""
        self._database.close()

    def name(self, number: int) -> str:
        """Return the name of a batch, by which it is found again at the provider."""
        return f"bactrian-{self.id}-{number}"

    def find_file(self, number: int) -> Path:
        """Return the path of a batch's requests."""
        return self.folder / f"{self.name(number)}.jsonl"

    def list_open(self) -> list[Batch]:
        """Return the batches that have not ended."""
        rows = self._database.execute("SELECT * FROM batches WHERE state <> 'ended' ORDER BY number")
        return [Batch(*row) for row in rows]

    def has_ended(self, model: str) -> bool:
        """Return True if a batch of the model has ended with replies."""
        row = self._database.execute(
            "SELECT 1 FROM batches WHERE model = ? AND ended IS NOT NULL LIMIT 1", (model,)
        ).fetchone()
        return row is not None

    def count_largest(self) -> int:
        """Return the number of requests of the largest batch."""
        return self._database.execute("SELECT coalesce(max(requests), 0) FROM batches").fetchone()[0]

    def find(self, place: Place) -> Stored | None:
        """Return the latest request for ``place``."""
        row = self._database.execute(
            "SELECT custom_id, tries, batch, state, status, reply FROM requests"
            " WHERE session = ? AND agent = ? AND call_index = ? AND attempt = ? AND model = ?",
            place,
        ).fetchone()
        return row and Stored(*row)

    def make_id(self, place: Place, tries: int) -> str:
        """Return the id of a request for ``place``, after so many earlier ones."""
        digest = sha256("\0".join(map(str, (self.id, *place, tries))).encode()).digest()
        return b32encode(digest[:25]).decode().lower()

    def write(self, model: str, requests: Sequence[tuple[Place, int]], lines: Iterable[bytes]) -> Batch:
        """Store a batch: the places of its requests with their numbers of tries, and the lines of its file."""
        number = self._write_file(lines)
        with self._database as database:
            database.execute("BEGIN IMMEDIATE")
            # What a conversation was answered before its last turn is in the run.
            database.executemany(
                "DELETE FROM requests WHERE session = ? AND agent = ? AND call_index < ? AND state = 'done'",
                ((place.session, place.agent, place.call_index) for place, _ in requests),
            )
            database.executemany(
                "INSERT OR REPLACE INTO requests VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'out', NULL, NULL)",
                ((*place, tries, self.make_id(place, tries), number) for place, tries in requests),
            )
            self._insert(number, model, len(requests))
        return self.get(number)

    def _write_file(self, lines: Iterable[bytes]) -> int:
        """Write the file of the next batch, and return its number."""
        number: int = self._database.execute("SELECT coalesce(max(number), 0) + 1 FROM batches").fetchone()[0]
        with self.find_file(number).open("wb") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        return number

    def _insert(self, number: int, model: str, requests: int) -> None:
        row = number, model, requests, time.time()
        self._database.execute(
            "INSERT INTO batches VALUES (?, ?, 'written', ?, NULL, NULL, ?, NULL, NULL, NULL)", row
        )

    def divide(self, number: int, parts: Iterable[Sequence[tuple[str, bytes]]]) -> list[Batch]:
        """Replace a batch that was refused by several, each with the ids and lines of its requests."""
        model, new = self.get(number).model, list[int]()
        with self._database as database:
            database.execute("BEGIN IMMEDIATE")
            for part in parts:
                new.append(self._write_file(line for _, line in part))
                self._insert(new[-1], model, len(part))
                database.executemany(
                    "UPDATE requests SET batch = ? WHERE custom_id = ?",
                    ((new[-1], custom_id) for custom_id, _ in part),
                )
            database.execute("UPDATE batches SET state = 'ended' WHERE number = ?", (number,))
        self.find_file(number).unlink(missing_ok=True)
        return [self.get(number) for number in new]

    def note(self, number: int, **changes: str | float | None) -> Batch:
        """Change a batch, and return it."""
        columns = ", ".join(f"{name} = ?" for name in changes)
        self._database.execute(f"UPDATE batches SET {columns} WHERE number = ?", (*changes.values(), number))  # noqa: S608
        return self.get(number)

    def get(self, number: int) -> Batch:
        """Return a batch."""
        return Batch(*self._database.execute("SELECT * FROM batches WHERE number = ?", (number,)).fetchone())

    def list_ids(self, number: int) -> list[str]:
        """Return the ids of the requests that are out in a batch."""
        rows = self._database.execute(
            "SELECT custom_id FROM requests WHERE batch = ? AND state = 'out'", (number,)
        )
        return [custom_id for (custom_id,) in rows]

    def end(self, number: int, results: Iterable[Result]) -> Iterator[Place]:
        """Store the replies of a batch, and end it; yield the places of its requests, those with a reply first.

        The first reply to a request counts. A request without a reply is to be asked again.
        """
        with self._database as database:
            database.execute("BEGIN IMMEDIATE")
            database.executemany(
                "UPDATE requests SET state = ?, status = ?, reply = ?"
                " WHERE custom_id = ? AND batch = ? AND state <> 'done'",
                (
                    ("done" if is_final(status) else "again", status, reply, custom_id, number)
                    for custom_id, status, reply in results
                ),
            )
            database.execute(
                "UPDATE requests SET state = 'again' WHERE batch = ? AND state = 'out'", (number,)
            )
            database.execute(
                "UPDATE batches SET state = 'ended', ended = ? WHERE number = ?", (time.time(), number)
            )
        self.find_file(number).unlink(missing_ok=True)
        rows = self._database.execute(
            "SELECT session, agent, call_index, attempt, model FROM requests WHERE batch = ?"
            " ORDER BY state = 'again', status",
            (number,),
        )
        return (Place(*row) for row in rows)

    def forget(self, number: int) -> None:
        """Remove a batch that was never sent. Its requests will be asked again."""
        with self._database as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute("DELETE FROM requests WHERE batch = ?", (number,))
            database.execute("DELETE FROM batches WHERE number = ?", (number,))
        self.find_file(number).unlink(missing_ok=True)

    def forget_failures(self) -> None:
        """Remove what was refused, so that another command asks it again."""
        self._database.execute("DELETE FROM requests WHERE state = 'done' AND status >= 300")

    def disown(self, number: int, remote: str) -> None:
        """Note that a batch of the provider is not ours, although it looked like the one with this ``number``."""
        with self._database as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute("INSERT OR IGNORE INTO foreign_batches VALUES (?)", (remote,))
            database.execute(
                "UPDATE batches SET state = 'submitting', remote = NULL, sent = NULL WHERE number = ?",
                (number,),
            )

    def list_known(self) -> set[str]:
        """Return the provider's names of all batches that are known: ours, and those that look like ours."""
        rows = self._database.execute(
            "SELECT remote FROM batches WHERE remote IS NOT NULL UNION SELECT remote FROM foreign_batches"
        )
        return {remote for (remote,) in rows}


def is_final(status: int) -> bool:
    """Return True if a reply with HTTP ``status`` stands; asked again, the others may be answered."""
    return status < 500 and status not in (408, 409, 425, 429)
