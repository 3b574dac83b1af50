"""``bactrian import``: conversations of other programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bactrian.cli.options import declare_option
from bactrian.cli.run_async import run_async
from bactrian.cli.terminal.bar import show_bar
from bactrian.cli.terminal.console import open_output, open_progress
from bactrian.files.identity import check_replaceable
from bactrian.ingest.importer import ImportReport, find_chats, import_chats
from bactrian.ingest.parsed import Found, Origin
from bactrian.language.escape import to_json, to_line
from bactrian.records.text import write_count
from bactrian.store import list_run_files, open_store

SOME_SKIPPED = 4
_SHOWN = 20


class ImportFormat(StrEnum):
    """A format to import."""

    camel_chat = "camel-chat"
    camel_instructions = "camel-instructions"
    camel_science = "camel-science"
    camel_translated = "camel-translated"
    messages = "messages"
    sharegpt = "sharegpt"
    alpaca = "alpaca"


def ingest(
    path: Annotated[Path, typer.Argument(help="A folder, an archive, or a file of JSON.")],
    run_file: Annotated[
        Path, declare_option("--run", "File of the run to store them in; created if it does not exist.")
    ],
    form: Annotated[
        ImportFormat | None,
        declare_option("--format", "Format of the files.", show_default="detected"),
    ] = None,
    model: Annotated[str, declare_option("--made-by", "Name of the model that wrote them, if known.")] = "",
    language: Annotated[str | None, declare_option("--language", "Their language, if not English.")] = None,
    json: Annotated[bool, declare_option("--json", "Write the result as JSON.")] = False,
    quiet: Annotated[bool, declare_option("--quiet", "Show no progress.")] = False,
) -> None:
    """Import conversations of other programs into a run."""

    check_replaceable(path, list_run_files(run_file))
    source = find_chats(path, form.value if form else None, Origin(model, language))
    run_async(
        _ingest(source, run_file, json=json, quiet=quiet),
        resume="What was read is stored; the same command resumes.",
    )


async def _ingest(source: Iterator[Found], run_file: Path, *, json: bool, quiet: bool) -> int:

    with show_bar("Importing", "conversations", quiet=quiet) as tell:
        async with open_store(run_file) as store:
            report = await import_chats(
                store, source, lambda report: tell(report.stored + report.already + report.broken)
            )
    _say(report, run_file, json=json)
    return SOME_SKIPPED if report.broken else 0


def _say(report: ImportReport, run_file: Path, *, json: bool) -> None:

    for one in report.named[:_SHOWN]:
        open_progress().say(to_line(f"Skipped {one.name}: {one.problem}."))
    if report.broken > _SHOWN:
        open_progress().say(f"Skipped {report.broken:,} in all.")
    if json:
        print(to_json(asdict(report)))
    else:
        open_output().say(
            f"{run_file}: {write_count(report.stored, 'conversation')} with"
            f" {write_count(report.messages, 'message')} stored,"
            f" {report.already:,} stored before, {report.broken:,} skipped"
        )
