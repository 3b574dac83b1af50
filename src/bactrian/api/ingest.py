"""Importing conversations from Python: :func:`import_chats`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

from bactrian.api.bridge import run_sync
from bactrian.api.run import Run
from bactrian.errors import BactrianWarning
from bactrian.ingest.importer import ImportReport, find_chats, find_form
from bactrian.ingest.importer import import_chats as store_chats
from bactrian.ingest.parsed import Found, Origin
from bactrian.language.argument_names import use_python_words
from bactrian.records.text import write_count
from bactrian.store import open_store


@use_python_words()
def import_chats(
    path: str | Path,
    *,
    run: str | Path,
    format: str | None = None,  # noqa: A002  as on the command line
    made_by: str = "",
    language: str | None = None,
) -> Run:
    """Import conversations of other programs into a run, and return the run. A repeated import stores nothing twice.

    Items that cannot be read are skipped, with a warning that counts them and names the first.

    Example:
        >>> import json, pathlib, bactrian as bt
        >>> row = {"instruction": "Name a tea.", "input": "", "output": "Sencha."}
        >>> _ = pathlib.Path("chats.jsonl").write_text(json.dumps(row))
        >>> run = bt.import_chats("chats.jsonl", run="imported.db")
        >>> len(run), run.endings
        (1, {'answered': 1})

    Args:
        path: A folder, an archive or a file: docs/export.md lists the formats.
        run: File of the run; created if it does not exist.
        format: Name of the format; default is detected.
        made_by: Name of the model that wrote the conversations, if known.
        language: Their language, if not English.

    Raises:
        InputError: there is no such file, or no conversation in it.
        StoreError: the run cannot be written.
    """
    form = None if format is None else find_form(format)
    report = run_sync(_import(find_chats(Path(path), form, Origin(made_by, language)), Path(run)))
    if report.broken:
        first = report.named[0]
        warnings.warn(
            f"{write_count(report.broken, 'item')} of {path} skipped; the first is {first.name}: {first.problem}.",
            BactrianWarning,
            2,
        )
    return Run(Path(run))


async def _import(source: Iterator[Found], run: Path) -> ImportReport:
    async with open_store(run) as store:
        return await store_chats(store, source)
