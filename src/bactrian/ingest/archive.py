"""The files of a folder or an archive, one after another and never unpacked to disk.

Names within an archive are names and no paths; links, devices and folders are passed over; a file that is too large
is named and not read; and an archive that unfolds to far more than a data set would is left at that point.
"""

from __future__ import annotations

import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from bactrian.errors import InputError
from bactrian.ingest.parsed import LONGEST, SkippedItem

_LEAST = 1024 * 1024 * 1024
"""Bytes that any archive may unfold to."""
_RATIO = 100
"""To how many times its size a larger one may; CAMEL's unfold to about ten times."""
_LONGEST_HEADER = 64 * 1024
"""Bytes of a header that a tar has before a member, for a long name and the like; a name has a few hundred."""
_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_FAULTS = (
    OSError,
    EOFError,
    zlib.error,
    zipfile.BadZipFile,
    tarfile.TarError,
    NotImplementedError,
    RuntimeError,
)
"""What reading a damaged, encrypted or oddly packed member raises."""


@dataclass(frozen=True, slots=True)
class Member:
    """A file and its content."""

    name: str
    content: bytes


def list_members(path: Path) -> Iterator[Member | SkippedItem]:
    """The ``.json`` files of a folder, a ``.zip`` or a ``.tar`` of any compression, in their order; or that one file.

    Raises:
        InputError: it is none of these, or cannot be read.
    """
    if path.is_dir():
        yield from _of_folder(path)
    elif not path.is_file():
        raise InputError(
            "This is a pipe or a device, and an archive cannot be read from one.",
            where=str(path),
            next="Save it as a file, or give chats as JSON lines: --format messages or sharegpt.",
        )
    elif _wanted(path.name):
        yield _file(path, path.name)
    elif zipfile.is_zipfile(path):
        yield from _of_zip(path)
    elif tarfile.is_tarfile(path):
        yield from _of_tar(path)
    else:
        raise InputError(
            "This is no folder and no archive that can be read.",
            where=str(path),
            next="Give a folder, a .zip or a .tar.gz of CAMEL's chats, or name another --format.",
        )


def _wanted(name: str) -> bool:
    parts = name.replace("\\", "/").split("/")
    return parts[-1].lower().endswith(".json") and not parts[-1].startswith(".") and "__MACOSX" not in parts


def _too_large(name: str, size: int) -> SkippedItem:
    return SkippedItem(name, f"it has {size:,} bytes, and a chat has {LONGEST:,} at most")


def _of_folder(path: Path) -> Iterator[Member | SkippedItem]:
    for folder, folders, files in os.walk(path):
        folders.sort()
        for file in sorted(filter(_wanted, files)):
            found = Path(folder, file)
            yield _file(found, found.relative_to(path).as_posix())


def _file(path: Path, name: str) -> Member | SkippedItem:
    try:
        kind = path.lstat()
        if not stat.S_ISREG(kind.st_mode):
            return SkippedItem(name, "it is no ordinary file")
        if kind.st_size > LONGEST:
            return _too_large(name, kind.st_size)
        return Member(name, path.read_bytes())
    except OSError as error:
        return SkippedItem(name, f"it cannot be read: {error.strerror}")


def _of_zip(path: Path) -> Iterator[Member | SkippedItem]:
    try:
        pack = zipfile.ZipFile(path)
    except _FAULTS as error:
        raise _unreadable(path, error) from error
    with pack:
        allowed = _allowed(path)
        for info in pack.infolist():
            if info.is_dir() or not _wanted(info.filename):
                continue
            if info.file_size > LONGEST:
                yield _too_large(info.filename, info.file_size)
                continue
            try:
                with pack.open(info) as file:
                    # What the archive says of a size need not be true.
                    content = file.read(LONGEST + 1)
            except _FAULTS as error:
                yield SkippedItem(info.filename, f"it cannot be unpacked: {error}")
                continue
            allowed -= len(content)
            if allowed < 0:
                yield _bomb(path)
                return
            yield _sized(info.filename, content)


def _of_tar(path: Path) -> Iterator[Member | SkippedItem]:
    allowed = _allowed(path)
    try:
        with tarfile.open(path, "r|*", tarinfo=_BoundedHeader) as pack:
            while (info := pack.next()) is not None:
                _forget_members(pack)
                # What is passed over has to be unpacked, too.
                allowed -= max(info.size, 0)
                if allowed < 0:
                    yield _bomb(path)
                    return
                if not _wanted(info.name) or info.isdir():
                    continue
                file = pack.extractfile(info) if info.isreg() else None
                if file is None:
                    yield SkippedItem(info.name, "it is no ordinary file")
                elif info.size > LONGEST:
                    yield _too_large(info.name, info.size)
                else:
                    yield _sized(info.name, file.read(LONGEST + 1))
    except _FAULTS as error:
        yield SkippedItem(path.name, f"the archive ends early or is damaged: {error}")


def _forget_members(pack: Any) -> None:
    """Drop what tarfile remembers of every member, with its headers (attributes that its types do not declare)."""
    pack.members.clear()
    pack.pax_headers.clear()


class _BoundedHeader(tarfile.TarInfo):
    """A member of a tar whose headers are read into memory only if they are short."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        info = super().frombuf(buf, encoding, errors)
        if info.type in _HEADERS and info.size > _LONGEST_HEADER:
            raise tarfile.ReadError(f"a header has {info.size:,} bytes, and {_LONGEST_HEADER:,} at most")
        return info


def _sized(name: str, content: bytes) -> Member | SkippedItem:
    return Member(name, content) if len(content) <= LONGEST else _too_large(name, len(content))


def _allowed(path: Path) -> int:
    return max(_LEAST, _RATIO * path.stat().st_size)


def _bomb(path: Path) -> SkippedItem:
    return SkippedItem(path.name, "it unfolds to far more than a data set; the rest of it was not read")


def _unreadable(path: Path, error: BaseException) -> InputError:
    return InputError(f"The archive cannot be read: {error}.", where=str(path), next="Fetch it again.")
