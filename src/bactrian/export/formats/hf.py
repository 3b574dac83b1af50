"""``hf``: a folder that ``datasets.load_dataset`` opens and that can be uploaded unchanged."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bactrian.export.card import write_card
from bactrian.export.dialogue import THOUGHT
from bactrian.export.format import Add, ExportContext, Format, Sample
from bactrian.export.formats import messages
from bactrian.export.writers.parquet import ParquetWriter, require_polars
from bactrian.tables.lineage import COLUMNS, write_extra, write_message_extras


@contextmanager
def open_hf(path: Path, context: ExportContext) -> Generator[Add]:
    """Open ``data/PART-00000.parquet`` and so on for the rows of :mod:`bactrian.export.formats.messages`."""
    require_polars("hf")
    import polars as pl

    text = pl.String()
    message = pl.Struct(dict.fromkeys(("role", "content", *([THOUGHT] if context.thoughts else [])), text))
    columns = ("original_task", "specified_task", "side", "system_prompt", *COLUMNS, "extra", "message_extra")
    pieces = ParquetWriter(
        path.parent, path.name, {"messages": pl.List(message), **dict.fromkeys(columns, text)}
    )

    def add(sample: Sample) -> int:
        session = sample.session
        row = messages.build_row(session, context)
        if row is None:
            return 0
        row |= {"extra": write_extra(session), "message_extra": write_message_extras(session)}
        pieces.add(row, sum(len(turn.text) + len(turn.thought) for turn in session.turns) + 4000)
        return 1

    yield add
    pieces.flush()


def finish(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write the data set's card."""
    (folder / "README.md").write_text(write_card(manifest), "utf-8")


FORMAT = Format(
    "hf",
    open_hf,
    "",
    messages.FORMAT.kinds,
    sides=True,
    thoughts=True,
    plain=True,
    layout="data/{part}",
    finish=finish,
)
