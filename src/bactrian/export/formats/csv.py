"""``csv``: a row for each message, for spreadsheets.

A cell that a spreadsheet would evaluate as a formula is prefixed with an apostrophe.
"""

from __future__ import annotations

import csv
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bactrian.export.format import Add, ExportContext, Format, Sample
from bactrian.tables.lineage import COLUMNS, trace_source, write_extra
from bactrian.tables.tables import list_tool_uses

_FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
"""The last four are the full-width forms of the first four."""


def to_cell(value: str) -> str:
    """Return ``value`` in a form that spreadsheets do not evaluate."""
    return f"'{value}" if value.startswith(_FORMULA) else value


@contextmanager
def open_csv(path: Path, context: ExportContext) -> Generator[Add]:
    """Open ``path`` for one table."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        more = ("thought",) if context.thoughts else ()
        table.writerow(
            (
                "turn",
                "speaker",
                "text",
                "original_task",
                "specified_task",
                *COLUMNS,
                "tools",
                "extra",
                "message_extra",
                *more,
            )
        )

        def add(sample: Sample) -> int:
            session = sample.session
            source = trace_source(session, context.run).values()
            tasks = (session.task.original, session.task.specified or session.task.original)
            for turn in session.turns:
                thought = (turn.thought,) if context.thoughts else ()
                extra = (write_extra(session), write_extra(session, turn.number))
                cells = (
                    turn.speaker,
                    turn.text,
                    *tasks,
                    *source,
                    list_tool_uses(turn) or "",
                    *extra,
                    *thought,
                )
                table.writerow((turn.number, *(to_cell(value) for value in cells)))
            return len(session.turns)

        yield add


FORMAT = Format(
    "csv",
    open_csv,
    ".csv",
    frozenset(("role-play", "translation", "answer", "talk")),
    tools=True,
    thoughts=True,
)
