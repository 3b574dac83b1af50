"""Writes files to a folder or a reproducible archive."""

from __future__ import annotations

import gzip
import tarfile
import zipfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

Put = Callable[[str, bytes], None]
"""Writes a file by its name within the archive."""

_BLOCK = tarfile.BLOCKSIZE


def is_archive(path: Path) -> bool:
    """Return True if :func:`open_archive` writes one file, and not a folder."""
    return path.name.endswith((".zip", ".tar.gz", ".tgz"))


@contextmanager
def open_archive(path: Path) -> Generator[Put]:
    """Open a ``.zip``, a ``.tar.gz`` (``.tgz``), or, with any other name, a folder."""
    if path.name.endswith(".zip"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as pack:
            yield lambda name, content: pack.writestr(_info(name), content)
    elif path.name.endswith((".tar.gz", ".tgz")):
        with path.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
            yield lambda name, content: _put_tar(file, name, content)
            file.write(bytes(2 * _BLOCK))
    else:
        path.mkdir()
        yield lambda name, content: _put_file(path / name, content)


def _info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = 3
    info.external_attr = 0o100644 << 16
    return info


def _put_tar(file: gzip.GzipFile, name: str, content: bytes) -> None:
    # tarfile's own writer keeps every member in memory until it is closed.
    info = tarfile.TarInfo(name)
    info.size = len(content)
    file.write(info.tobuf(tarfile.PAX_FORMAT) + content + bytes(-len(content) % _BLOCK))


def _put_file(path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
