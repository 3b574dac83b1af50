"""Reads files of any size as rows: the JSON objects of archives, arrays and lines, one in memory at a time."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import os
import sqlite3
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import BufferedReader
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Self, cast

from bactrian.errors import InputError, StoreError
from bactrian.ingest.chats import LONGEST, Row, SkippedItem

# Reads the files of a folder or an archive in sequence, without unpacking to disk.
#
# Names within an archive are never used as paths; links, devices and folders are skipped; a file that is too large is
# reported and not read; reading stops when an archive unpacks to far more than a data set would.


# Bytes that any archive may unpack to.
_LEAST = 1024 * 1024 * 1024
# Most times its size that a larger archive may unpack to; CAMEL's unpack to about ten times.
_RATIO = 100
# Most bytes of a tar header, which may contain a long name; names have a few hundred.
_LONGEST_HEADER = 64 * 1024
_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
# Exceptions raised for damaged, encrypted or unsupported members.
_FAULTS_OF_ARCHIVES = (
    OSError,
    EOFError,
    zlib.error,
    zipfile.BadZipFile,
    tarfile.TarError,
    NotImplementedError,
    RuntimeError,
)


@dataclass(frozen=True, slots=True)
class Member:
    """A file of a folder or an archive."""

    name: str
    # A path for a file of a folder, which may be larger than memory.
    content: bytes | Path


def is_archive_name(name: str) -> bool:
    """Return True if a file of this name is an archive."""
    return name.lower().endswith((".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2"))


def is_json_name(name: str) -> bool:
    """Return True if a file of this name contains JSON."""
    return name.lower().removesuffix(".gz").endswith((".json", ".jsonl", ".ndjson"))


def list_members(path: Path) -> Iterator[Member | SkippedItem]:
    """Yield the files of JSON in a folder, a ``.zip`` or a ``.tar`` of any compression, in order.

    The archives in a folder are read, too, as CAMEL's translations are one for each language.

    Raises:
        InputError: it is of another type, or cannot be read.
    """
    if path.is_dir():
        yield from _list_folder(path)
    elif not path.is_file():
        raise InputError(
            "An archive cannot be read from a pipe or a device.",
            where=str(path),
            next="Save it as a file, or give its rows as JSON lines.",
        )
    elif zipfile.is_zipfile(path):
        yield from _list_zip(path)
    elif _is_tar(path):
        yield from _list_tar(path)
    else:
        raise InputError(
            "This is neither a folder nor a readable archive.",
            where=str(path),
            next="Give a folder, a .zip, a .tar.gz, or a file of JSON, and name its form=FORM.",
        )


def _is_wanted(name: str) -> bool:
    parts = name.replace("\\", "/").split("/")
    return is_json_name(parts[-1]) and not parts[-1].startswith(".") and "__MACOSX" not in parts


def _skip_large(name: str, size: int) -> SkippedItem:
    return SkippedItem(name, f"it has {size:,} bytes, and a conversation has {LONGEST:,} at most")


def _list_folder(path: Path) -> Iterator[Member | SkippedItem]:
    for folder, folders, files in os.walk(path):
        folders.sort()
        for file in sorted(files):
            entry = Path(folder, file)
            name = entry.relative_to(path).as_posix()
            if not (_is_wanted(file) or (is_archive_name(file) and not file.startswith("."))):
                continue
            if not stat.S_ISREG(entry.lstat().st_mode):
                yield SkippedItem(name, "it is not a regular file")
            elif _is_wanted(file):
                yield Member(name, entry)
            else:
                yield from _list_nested(entry, name)


def _list_nested(path: Path, name: str) -> Iterator[Member | SkippedItem]:
    """Yield the files of an archive in a folder, with the archive's name before theirs."""
    try:
        for member in list_members(path):
            yield replace(member, name=f"{name}/{member.name}")
    except InputError as error:
        yield SkippedItem(name, error.what)


def _list_zip(path: Path) -> Iterator[Member | SkippedItem]:
    try:
        pack = zipfile.ZipFile(path)
    except _FAULTS_OF_ARCHIVES as error:
        raise InputError(
            f"The archive cannot be read: {error}.", where=str(path), next="Download it again."
        ) from error
    with pack:
        allowed = _count_allowed(path)
        for info in pack.infolist():
            if info.is_dir() or not _is_wanted(info.filename):
                continue
            if info.file_size > LONGEST:
                yield _skip_large(info.filename, info.file_size)
                continue
            try:
                with pack.open(info) as file:
                    # The size stated in the archive may be wrong.
                    content = file.read(LONGEST + 1)
            except _FAULTS_OF_ARCHIVES as error:
                yield SkippedItem(info.filename, f"it cannot be unpacked: {error}")
                continue
            allowed -= len(content)
            if allowed < 0:
                yield _skip_rest(path)
                return
            yield _check_size(info.filename, content)


def _list_tar(path: Path) -> Iterator[Member | SkippedItem]:
    allowed = _count_allowed(path)
    try:
        with tarfile.open(path, "r|*", tarinfo=_BoundedHeader) as pack:
            while (info := pack.next()) is not None:
                _forget_members(pack)
                # Skipped members have to be unpacked, too.
                allowed -= max(info.size, 0)
                if allowed < 0:
                    yield _skip_rest(path)
                    return
                if not _is_wanted(info.name) or info.isdir():
                    continue
                file = pack.extractfile(info) if info.isreg() else None
                if file is None:
                    yield SkippedItem(info.name, "it is not a regular file")
                elif info.size > LONGEST:
                    yield _skip_large(info.name, info.size)
                else:
                    yield _check_size(info.name, file.read(LONGEST + 1))
    except _FAULTS_OF_ARCHIVES as error:
        yield SkippedItem(path.name, f"the archive ends early or is damaged: {error}")


def _forget_members(pack: Any) -> None:
    """Drop the members and headers that tarfile keeps (attributes that its types do not declare)."""
    pack.members.clear()
    pack.pax_headers.clear()


class _BoundedHeader(tarfile.TarInfo):
    """A member of a tar whose headers are read into memory only if they are short."""

    def _proc_member(self, pack: tarfile.TarFile) -> Self:
        """Read the headers of a member: what tarfile offers subclasses to override."""
        if self.type in _HEADERS and self.size > _LONGEST_HEADER:
            raise _LongHeader(f"a header has {self.size:,} bytes, and {_LONGEST_HEADER:,} at most")
        return super()._proc_member(pack)  # type: ignore[misc,no-any-return]


class _LongHeader(tarfile.ReadError):
    """A header of a tar is too long to be read into memory."""


def _is_tar(path: Path) -> bool:
    """Return True for a tar of any compression; tarfile's own check reads a first header of any size."""
    try:
        with tarfile.open(path, "r|*", tarinfo=_BoundedHeader):
            return True
    except _LongHeader:
        return True
    except _FAULTS_OF_ARCHIVES:
        return False


def _check_size(name: str, content: bytes) -> Member | SkippedItem:
    return Member(name, content) if len(content) <= LONGEST else _skip_large(name, len(content))


def _count_allowed(path: Path) -> int:
    return max(_LEAST, _RATIO * path.stat().st_size)


def _skip_rest(path: Path) -> SkippedItem:
    return SkippedItem(path.name, "it unpacks to far more than a data set; the rest was not read")


# Reads files as rows: the JSON objects of archives, arrays and lines, one in memory at a time.


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
