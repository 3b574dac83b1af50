"""Reads files as rows: the JSON objects of archives, arrays and lines, one in memory at a time."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import sqlite3
import zlib
from collections.abc import Iterator
from io import BufferedReader
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from bactrian.errors import StoreError
from bactrian.ingest.archive import Member, is_archive_name, is_json_name, list_members
from bactrian.ingest.parsed import LONGEST, Row, SkippedItem

# Characters of an array that are read at a time.
_CHUNK = 1024 * 1024
# Exceptions raised for a damaged or unreadable file.
_FAULTS = (OSError, EOFError, zlib.error, UnicodeDecodeError)
_SPACE = " \t\r\n,"

Rows = Iterator[Row | SkippedItem]


def read_rows(path: Path, *, plain: bool = False) -> Rows:
    """Yield the rows of a folder, an archive, or a file of JSON: an object, an array, or one object a line.

    A file may be compressed with gzip, and may be a pipe. ``plain`` reads a file of any name as text.

    Raises:
        InputError: it is of another type, or cannot be read.
    """
    is_text = plain or is_json_name(path.name)
    if path.is_dir() or is_archive_name(path.name) or (path.is_file() and not is_text):
        for member in list_members(path):
            yield from _read_member(member, path.name) if isinstance(member, Member) else (member,)
    else:
        yield from _read_file(path, path.name, (path.name,))


def _read_member(member: Member, pack: str) -> Rows:
    folders = (pack, *PurePosixPath(member.name.replace("\\", "/")).parts)
    if isinstance(member.content, Path):
        yield from _read_file(member.content, member.name, folders)
    elif member.content.lstrip()[:1] == b"[":
        yield from _read_array(io.BytesIO(member.content), member.name, folders)
    elif member.name.lower().endswith(".json"):
        yield _read_object(member.content, member.name, folders)
    else:
        yield from _read_lines(io.BytesIO(member.content), member.name, folders)


def _read_file(path: Path, name: str, folders: tuple[str, ...]) -> Rows:
    # Opened once, because a pipe cannot be read twice.
    try:
        with path.open("rb") as start, _unpack(start) as file:
            head = file.peek(_CHUNK).removeprefix(codecs.BOM_UTF8).lstrip()[:1]
            if head == b"[":
                yield from _read_array(file, name, folders)
            elif path.name.lower().endswith(".json"):
                yield from _read_document(file, name, folders)
            else:
                yield from _read_lines(file, name, folders)
    except _FAULTS as error:
        yield SkippedItem(name, f"the file cannot be read, or not to its end: {error}")


class _Unpacked(io.RawIOBase):
    """The content of a compressed file, up to the place where it breaks off.

    GzipFile itself reads ahead, by 128 KiB in Python 3.14, and loses all of that at the break.
    """

    def __init__(self, file: BufferedReader) -> None:
        self._file = gzip.GzipFile(fileobj=file)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._file.read1(len(buffer))
        buffer[: len(content)] = content
        return len(content)


def _unpack(file: BufferedReader) -> BufferedReader:
    """Return ``file``, decompressed if it is compressed."""
    return BufferedReader(_Unpacked(file)) if file.peek(2)[:2] == b"\x1f\x8b" else file


def _read_document(file: BinaryIO, name: str, folders: tuple[str, ...]) -> Rows:
    """Yield the one object of a file, or one for each line if the first line is an object."""
    content = file.readline(LONGEST + 1)
    row = _read_object(content, name, folders)
    if isinstance(row, Row):
        yield row
        yield from _read_lines(file, name, folders, number=1)
        return
    content += file.read(LONGEST + 1 - len(content))
    if len(content) > LONGEST:
        row = SkippedItem(name, f"it has more than {LONGEST:,} bytes, the most that a conversation may have")
    else:
        row = _read_object(content, name, folders)
    yield row


def _read_lines(file: BinaryIO, name: str, folders: tuple[str, ...], *, number: int = 0) -> Rows:
    """Yield an object a line, after ``number`` lines; a line that is too long is skipped without filling the memory."""
    while line := file.readline(LONGEST + 1):
        number += 1
        where = f"{name}, line {number}"
        if len(line) > LONGEST:
            yield SkippedItem(where, f"it has more than {LONGEST:,} bytes")
        elif line.strip():
            yield _read_object(line.removeprefix(codecs.BOM_UTF8), where, folders)
        while len(line) > LONGEST and not line.endswith(b"\n"):
            line = file.readline(LONGEST + 1)


def _read_array(file: BinaryIO, name: str, folders: tuple[str, ...]) -> Rows:
    """Yield the objects of an array that may be larger than memory, such as CAMEL's instructions of 620 MB."""
    text = io.TextIOWrapper(file, "utf-8-sig")
    try:
        yield from _read_items(text, name, folders)
    finally:
        text.detach()


def _read_items(text: io.TextIOWrapper, name: str, folders: tuple[str, ...]) -> Rows:
    decoder = json.JSONDecoder()
    buffer, position, number = text.read(_CHUNK).lstrip(), 1, 0
    while True:
        while position < len(buffer) and buffer[position] in _SPACE:
            position += 1
        if buffer[position : position + 1] == "]":
            return
        try:
            value, position = decoder.raw_decode(buffer, position)
        except RecursionError:
            yield SkippedItem(f"{name}, row {number + 1}", "it is nested too deeply; the rest was not read")
            return
        except ValueError:
            rest = len(buffer) - position
            more = text.read(max(_CHUNK, rest)) if rest <= LONGEST else ""
            if not more:
                yield SkippedItem(f"{name}, after row {number}", "the array is damaged or ends early")
                return
            buffer, position = buffer[position:] + more, 0
            continue
        number += 1
        yield _check_object(value, f"{name}, row {number}", folders)
        if position > _CHUNK:
            buffer, position = buffer[position:], 0


def _read_object(content: bytes, name: str, folders: tuple[str, ...]) -> Row | SkippedItem:
    try:
        return _check_object(json.loads(content), name, folders)
    except (ValueError, RecursionError) as error:
        return SkippedItem(name, f"it is not JSON: {error}")


def _check_object(value: object, name: str, folders: tuple[str, ...]) -> Row | SkippedItem:
    if not isinstance(value, dict):
        return SkippedItem(name, "it is not a JSON object")
    return Row(name, cast("dict[str, Any]", value), folders)


# Groups of rows in a temporary file, so that a file of any size is read with little memory.


_SCHEMA = """
PRAGMA cache_size = -16384;  -- KiB
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE keys (id INTEGER PRIMARY KEY, text TEXT UNIQUE);
CREATE TABLE rows (id INTEGER PRIMARY KEY, key INTEGER, name TEXT, content TEXT, folders TEXT);
CREATE INDEX by_key ON rows (key, id);
BEGIN;
"""
Key = tuple[str, ...]


class RowGroups:
    """Collects rows by a key. Iterating yields each key and its rows, in the order in which the keys came first.

    A key has at most ``most`` rows at a time; further ones are a group of their own.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._database: sqlite3.Connection | None = None

    def close(self) -> None:
        """Delete the rows."""
        if self._database is not None:
            self._database.close()

    def add(self, key: Key, row: Row) -> None:
        """Add a row to the group of ``key``.

        Raises:
            StoreError: there is no room for temporary files.
        """
        text = json.dumps(key)
        try:
            database = self._database or self._open()
            database.execute("INSERT OR IGNORE INTO keys (text) VALUES (?)", (text,))
            database.execute(
                "INSERT INTO rows (key, name, content, folders)"
                " VALUES ((SELECT id FROM keys WHERE text = ?), ?, ?, ?)",
                (text, json.dumps(row.name), json.dumps(row.content), json.dumps(row.folders)),
            )
        except sqlite3.Error as error:
            raise StoreError(
                f"The rows do not fit into the folder for temporary files: {error}.",
                next="Free some space, or set TMPDIR to a folder with more, then import again.",
            ) from error

    def __iter__(self) -> Iterator[tuple[Key, list[Row]]]:
        if self._database is None:
            return
        rows = self._database.execute(
            "SELECT keys.id, text, name, content, folders FROM rows JOIN keys ON keys.id = rows.key"
            " ORDER BY keys.id, rows.id"
        )
        for (_, key), rest in groupby(rows, key=itemgetter(0, 1)):
            while group := [
                Row(json.loads(name), json.loads(content), tuple(json.loads(folders)))
                for _, _, name, content, folders in islice(rest, self._most)
            ]:
                yield tuple(json.loads(key)), group

    def _open(self) -> sqlite3.Connection:
        # An empty name is a database in a temporary file, which SQLite deletes when it is closed.
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._database.executescript(_SCHEMA)
        return self._database
