"""Writes Parquet files in pieces, with constant memory."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bactrian.errors import MissingExtra

if TYPE_CHECKING:
    import polars

_PIECE = 16 * 1024 * 1024
"""Characters of text that are buffered before a write."""
_ROW_GROUP = 10_000


def require_polars(form: str) -> None:
    """Raise MissingExtra unless Parquet files can be written."""
    if find_spec("polars") is None:
        raise MissingExtra("analysis", f"--format {form}")


class ParquetWriter:
    """Writes rows as ``NAME-00000.parquet``, ``NAME-00001.parquet`` …, each of a bounded size."""

    def __init__(self, folder: Path, name: str, schema: Mapping[str, polars.DataType]) -> None:
        self.folder = folder
        self._name = name
        self._schema = schema
        self._rows: list[Mapping[str, object]] = []
        self._size = 0
        self._written = 0

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
        with _as_os_error():
            self._frame(self._rows).write_parquet(
                self.folder / f"{self._name}-{self._written:05}.parquet", row_group_size=_ROW_GROUP
            )
        self._written += 1
        self._rows, self._size = [], 0

    def join(self, path: Path) -> None:
        """Join all pieces into one file, and delete them."""
        import polars as pl

        self.flush()
        pieces = [self.folder / f"{self._name}-{number:05}.parquet" for number in range(self._written)]
        with _as_os_error():
            if pieces:
                pl.scan_parquet(pieces).sink_parquet(path, row_group_size=_ROW_GROUP, maintain_order=True)
            else:
                self._frame([]).write_parquet(path)
        for piece in pieces:
            piece.unlink()

    def _frame(self, rows: list[Mapping[str, Any]]) -> polars.DataFrame:
        import polars as pl

        return pl.DataFrame(rows, schema=dict(self._schema), orient="row")


@contextmanager
def _as_os_error() -> Generator[None]:
    """Convert polars errors about a full disk to OSError."""
    from polars.exceptions import ComputeError

    try:
        yield
    except ComputeError as error:
        raise OSError(str(error)) from error
