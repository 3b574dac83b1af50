"""``csv``: a row for each message, for spreadsheets.

A cell that a spreadsheet would take for a formula gets an apostrophe before it.
"""

from __future__ import annotations

import csv
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bactrian.export.format import Add, Format, Frame
from bactrian.records.session import Session
from bactrian.tables.lineage import COLUMNS, trace
from bactrian.tables.tables import used

_FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
"""The last four are the first four as East Asian keyboards write them."""


def cell(value: str) -> str:
    """``value`` as no spreadsheet calculates it."""
    return f"'{value}" if value.startswith(_FORMULA) else value


@contextmanager
def opened(path: Path, frame: Frame) -> Generator[Add]:
    """Open ``path`` for one table."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(("turn", "speaker", "text", "original_task", "specified_task", *COLUMNS, "tools"))

        def add(session: Session) -> int:
            source = trace(session, frame.run).values()
            tasks = (session.task.original, session.task.specified or session.task.original)
            for turn in session.turns:
                cells = (turn.speaker, turn.text, *tasks, *source, used(turn) or "")
                table.writerow((turn.number, *(cell(value) for value in cells)))
            return len(session.turns)

        yield add


FORMAT = Format("csv", opened, ".csv", frozenset(("role-play", "translation", "answer", "talk")), tools=True)
