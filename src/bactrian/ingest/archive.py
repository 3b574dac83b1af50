"""Reads the files of a folder or an archive in sequence, without unpacking to disk.

Names within an archive are never used as paths; links, devices and folders are skipped; a file that is too large is
reported and not read; reading stops when an archive unpacks to far more than a data set would.
"""

from __future__ import annotations

import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from bactrian.errors import InputError
from bactrian.ingest.parsed import LONGEST, SkippedItem

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
_FAULTS = (
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
    except _FAULTS as error:
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
            except _FAULTS as error:
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
    except _FAULTS as error:
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
    except _FAULTS:
        return False


def _check_size(name: str, content: bytes) -> Member | SkippedItem:
    return Member(name, content) if len(content) <= LONGEST else _skip_large(name, len(content))


def _count_allowed(path: Path) -> int:
    return max(_LEAST, _RATIO * path.stat().st_size)


def _skip_rest(path: Path) -> SkippedItem:
    return SkippedItem(path.name, "it unpacks to far more than a data set; the rest was not read")
