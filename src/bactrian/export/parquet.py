"""``parquet``: a folder with the tables of a run, for notebooks and data bases."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bactrian.export.columns import Pieces, needed
from bactrian.export.form import Add, Format, Frame
from bactrian.records.session import Session
from bactrian.records.tables import finding_row, message_rows, session_row
from bactrian.records.trace import COLUMNS

if TYPE_CHECKING:
    import polars


@contextmanager
def opened(path: Path, frame: Frame) -> Generator[Add]:
    """Open a folder for the tables of sessions, of messages and, if somebody looks for them, of findings."""
    needed("parquet")
    path.mkdir()
    tables = {name: Pieces(path, name, schema) for name, schema in _schemas().items()}
    if frame.findings is None:
        del tables["findings"]

    def add(session: Session) -> int:
        tables["sessions"].add(session_row(session, frame.run), len(session.task.text) + 1000)
        for row in message_rows(session, frame.run):
            tables["messages"].add(row, 2 * len(str(row["text"])) + 500)
        for finding in frame.findings(session) if frame.findings else ():
            tables["findings"].add(finding_row(session, finding, frame.run), len(finding.quote) + 200)
        return 1

    yield add
    for name, table in tables.items():
        table.join(path / f"{name}.parquet")


def _schemas() -> dict[str, Mapping[str, polars.DataType]]:
    import polars as pl

    text, whole, real, truth = pl.String(), pl.Int64(), pl.Float64(), pl.Boolean()
    usage = dict.fromkeys(("prompt_tokens", "completion_tokens", "cached_tokens"), whole)
    return {
        "sessions": {
            **dict.fromkeys(COLUMNS, text),
            **dict.fromkeys(("assistant_description", "user_description"), text),
            **dict.fromkeys(("original_task", "specified_task", "planned_task", "language"), text),
            "ending_turn": whole,
            **dict.fromkeys(("ending_speaker", "ending_evidence"), text),
            "messages": whole,
            **usage,
            "values": text,
        },
        "messages": {
            **dict.fromkeys(("run", "session"), text),
            "turn": whole,
            **dict.fromkeys(("speaker", "role", "text", "instruction", "input", "solution"), text),
            "asks_next": truth,
            "preface": text,
            **usage,
            "estimated": truth,
            "seconds": real,
            "first_token": real,
            **dict.fromkeys(("model", "finish"), text),
            "lossy": truth,
            **dict.fromkeys(("prompts_hash", "sampling", "mark"), text),
        },
        "findings": {
            **dict.fromkeys(("run", "session"), text),
            "turn": whole,
            "behaviour": text,
            "confidence": real,
            **dict.fromkeys(("quote", "mark"), text),
        },
    }


FORMAT = Format("parquet", opened, "", frozenset(("role-play", "translation", "answer")))
