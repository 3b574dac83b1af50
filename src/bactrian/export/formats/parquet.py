"""``parquet``: a folder with the tables of a run, for notebooks and data bases."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bactrian.export.format import Add, ExportContext, Format
from bactrian.export.writers.parquet import ParquetWriter, require_polars
from bactrian.records.session import Session
from bactrian.tables.tables import (
    FINDINGS,
    MESSAGES,
    SESSIONS,
    build_schema,
    make_finding_row,
    make_message_rows,
    make_session_row,
)


@contextmanager
def open_parquet(path: Path, frame: ExportContext) -> Generator[Add]:
    """Open a folder for the tables of sessions, of messages and, if somebody looks for them, of findings."""
    require_polars("parquet")
    path.mkdir()
    kinds = {"sessions": SESSIONS, "messages": MESSAGES} | ({"findings": FINDINGS} if frame.findings else {})
    tables = {name: ParquetWriter(path, name, build_schema(table)) for name, table in kinds.items()}

    def add(session: Session) -> int:
        tables["sessions"].add(make_session_row(session, frame.run), len(session.task.text) + 1000)
        for row in make_message_rows(session, frame.run):
            tables["messages"].add(row, 2 * len(str(row["text"])) + 500)
        for finding in frame.findings(session) if frame.findings else ():
            tables["findings"].add(make_finding_row(session, finding, frame.run), len(finding.quote) + 200)
        return 1

    yield add
    for name, table in tables.items():
        table.join(path / f"{name}.parquet")


FORMAT = Format(
    "parquet", open_parquet, "", frozenset(("role-play", "translation", "answer", "talk")), tools=True
)
