"""``parquet``: a folder with the tables of a run, for notebooks and databases."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bactrian.export.format import Add, ExportContext, Format, Sample
from bactrian.export.writers.parquet import ParquetWriter, require_polars
from bactrian.tables.tables import (
    FINDINGS,
    MESSAGES,
    SESSIONS,
    Table,
    build_schema,
    make_finding_row,
    make_message_rows,
    make_session_row,
)


@contextmanager
def open_parquet(path: Path, context: ExportContext) -> Generator[Add]:
    """Open a folder for the tables of sessions, messages and, if detected, findings."""
    require_polars("parquet")
    path.mkdir()
    thought: Table = {"thought": "text"} if context.thoughts else {}
    kinds: dict[str, Table] = {
        "sessions": SESSIONS,
        "messages": {**MESSAGES, **thought},
        "findings": FINDINGS,
    }
    kept = {"sessions", "messages"}
    tables = {name: ParquetWriter(path, name, build_schema(table)) for name, table in kinds.items()}

    def add(sample: Sample) -> int:
        session = sample.session
        tables["sessions"].add(make_session_row(session, context.run), len(session.task.text) + 1000)
        for turn, row in zip(session.turns, make_message_rows(session, context.run), strict=True):
            more = {"thought": turn.thought} if context.thoughts else {}
            tables["messages"].add(row | more, 2 * len(turn.text) + len(turn.thought) + 500)
        if sample.findings is not None:
            kept.add("findings")
        for finding in sample.findings or ():
            tables["findings"].add(make_finding_row(session, finding, context.run), len(finding.quote) + 200)
        return 1

    yield add
    for name in sorted(kept):
        tables[name].join(path / f"{name}.parquet")


FORMAT = Format(
    "parquet",
    open_parquet,
    "",
    frozenset(("role-play", "translation", "answer", "talk")),
    needs=frozenset(("findings",)),
    tools=True,
    thoughts=True,
)
