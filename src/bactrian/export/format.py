"""What an export format is, and what formats write with: rows of JSON, archives, and Parquet files."""

from __future__ import annotations

import gzip
import json
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bactrian.errors import MissingExtra
from bactrian.export.dialogue import SystemPrompts
from bactrian.records.run import Finding
from bactrian.records.session import Kind, Session
from bactrian.records.turn import Preference, Speaker

if TYPE_CHECKING:
    import polars

# Data that a format may need besides a session.
Need = Literal["choices", "findings"]


@dataclass(frozen=True, slots=True)
class Sample:
    """A session, with the data named in :attr:`Format.needs`."""

    session: Session
    """The conversation, with all its turns."""
    choices: Sequence[Preference] = ()
    """The choices between proposals, in the order of their turns."""
    findings: Sequence[Finding] | None = None
    """Findings in its turns; None if behaviours were not detected."""


@dataclass(frozen=True, slots=True)
class ExportContext:
    """Options of the export that a format may need."""

    run: str
    """Name of the run."""
    prompts: SystemPrompts
    """The system prompts of a session, rendered again from its pack and recipe."""
    side: Speaker = "assistant"
    """The agent whose messages a model is to learn."""
    thoughts: bool = False
    """True to include thoughts of reasoning models."""
    plain: bool = False
    """True to leave out the system prompt and the words of the protocol."""
    notes: Counter[str] = field(default_factory=Counter[str])
    """Notes for the reader on changes that the format made to rows, with their number."""


# Writes a sample and returns its number of rows: 0 if nothing in it fits the format.
Add = Callable[[Sample], int]
# Opens a file or a folder for samples. The output is complete when the context exits.
Opener = Callable[[Path, ExportContext], AbstractContextManager[Add]]


@dataclass(frozen=True, slots=True)
class Format:
    """An export format."""

    name: str
    open: Opener
    suffix: str = ".jsonl"
    """File suffix; empty for a folder."""
    kinds: frozenset[Kind] = frozenset(("role-play", "translation"))
    """Kinds of sessions that it supports."""
    needs: frozenset[Need] = frozenset()
    """Data that its samples need besides the session."""
    sides: bool = False
    """True if the output depends on the side to learn."""
    tools: bool = False
    """True if it includes tool calls."""
    thoughts: bool = False
    """True if it supports thoughts of reasoning models."""
    plain: bool = False
    """True if it can leave out the system prompt and the words of the protocol."""
    layout: str | None = None
    """Path of a ``{part}`` within the folder, for a format that is always a folder."""
    manifest_inside: bool = True
    """False if readers treat every file in the folder as data."""
    finish: Callable[[Path, Mapping[str, Any]], object] | None = None
    """Completes the folder after the manifest is known."""

    def locate(self, target: Path, part: str, *, divided: bool) -> Path:
        """Return the path to which ``part`` of the data is written."""
        if self.layout is not None:
            return target / self.layout.format(part=part)
        return target / f"{part}{self.suffix}" if divided else target


def open_rows(
    list_rows: Callable[[Sample, ExportContext], Iterator[Mapping[str, Any]]], *, array: bool = False
) -> Opener:
    """Return what opens a file for the rows of each sample: JSON lines, or one JSON ``array``, as any ``.json`` is."""

    @contextmanager
    def open_file(path: Path, context: ExportContext) -> Generator[Add]:
        is_array = array or path.suffix == ".json"
        with path.open("w", encoding="utf-8", newline="\n") as file:
            written = 0

            def add(sample: Sample) -> int:
                nonlocal written
                before = written
                for row in list_rows(sample, context):
                    if is_array:
                        file.write(",\n" if written else "[\n")
                    file.write(dump_line(row) + ("" if is_array else "\n"))
                    written += 1
                return written - before

            yield add
            if is_array:
                file.write("\n]\n" if written else "[]\n")

    return open_file


def dump_line(value: object) -> str:
    """Return ``value`` as one line of JSON, also for readers that treat U+2028 as a line end."""
    text = json.dumps(value, ensure_ascii=False)
    for character, escape in (("\u2028", "\\u2028"), ("\u2029", "\\u2029"), ("\x85", "\\u0085")):
        if character in text:
            text = text.replace(character, escape)
    return text


# Writes a file by its name within the archive.
Put = Callable[[str, bytes], object]


def is_archive(path: Path) -> bool:
    """Return True if :func:`open_archive` writes one file, and not a folder."""
    return path.name.endswith((".zip", ".tar.gz", ".tgz"))


@contextmanager
def open_archive(path: Path) -> Generator[Put]:
    """Open a reproducible ``.zip`` or ``.tar.gz`` (``.tgz``), or, with any other name, a folder."""
    if path.name.endswith(".zip"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as pack:
            yield lambda name, content: pack.writestr(_make_zip_entry(name), content)
    elif is_archive(path):
        with path.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
            yield lambda name, content: _write_tar_member(file, name, content)
            file.write(bytes(2 * tarfile.BLOCKSIZE))
    else:
        path.mkdir()
        yield lambda name, content: _write_file(path / name, content)


def _make_zip_entry(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = 3
    info.external_attr = 0o100644 << 16
    return info


def _write_tar_member(file: gzip.GzipFile, name: str, content: bytes) -> None:
    # tarfile's own writer keeps every member in memory until it is closed.
    info = tarfile.TarInfo(name)
    info.size = len(content)
    file.write(info.tobuf(tarfile.PAX_FORMAT) + content + bytes(-len(content) % tarfile.BLOCKSIZE))


def _write_file(path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


# Characters of text that are buffered before a write.
_PIECE = 16 * 1024 * 1024
_ROW_GROUP = 10_000


def require_polars(form: str) -> None:
    """Raise MissingExtra unless Parquet files can be written."""
    # polars and not `datasets`, which needs pyarrow: only the tests read with it.
    if find_spec("polars") is None:
        raise MissingExtra("analysis", f"format={form}")


class ParquetWriter:
    """Writes rows as ``NAME-00000.parquet``, ``NAME-00001.parquet`` …, each of a bounded size.

    So the memory that it takes does not grow with the data.
    """

    def __init__(self, folder: Path, name: str, schema: Mapping[str, polars.DataType]) -> None:
        self.folder = folder
        self._name = name
        self._schema = schema
        self._rows: list[Mapping[str, object]] = []
        self._size = 0
        self._pieces: list[Path] = []

    def add(self, row: Mapping[str, object], size: int) -> None:
        """Add a row with about ``size`` characters."""
        self._rows.append(row)
        self._size += size
        if self._size >= _PIECE:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows, if any."""
        if not self._rows:
            return
        path = self.folder / f"{self._name}-{len(self._pieces):05}.parquet"
        with _convert_disk_errors():
            self._build_frame().write_parquet(path, row_group_size=_ROW_GROUP)
        self._pieces.append(path)
        self._rows, self._size = [], 0

    def join(self, path: Path) -> None:
        """Join all pieces into one file, and delete them."""
        import polars as pl

        self.flush()
        with _convert_disk_errors():
            if self._pieces:
                frame = pl.scan_parquet(self._pieces)
                frame.sink_parquet(path, row_group_size=_ROW_GROUP, maintain_order=True)
            else:
                self._build_frame().write_parquet(path)
        for piece in self._pieces:
            piece.unlink()

    def _build_frame(self) -> polars.DataFrame:
        import polars as pl

        return pl.DataFrame(self._rows, schema=dict(self._schema), orient="row")


@contextmanager
def _convert_disk_errors() -> Generator[None]:
    """Convert polars errors about a full disk to OSError."""
    from polars.exceptions import ComputeError

    try:
        yield
    except ComputeError as error:
        raise OSError(str(error)) from error
