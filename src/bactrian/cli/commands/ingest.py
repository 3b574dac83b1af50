"""``bactrian import``: conversations of other programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

from bactrian.cli.flags import Argument
from bactrian.cli.run_async import run_async
from bactrian.cli.terminal.bar import show_bar
from bactrian.cli.terminal.console import open_output, open_progress
from bactrian.files.atomic import check_replaceable
from bactrian.ingest.importer import Form, ImportReport, find_chats, import_chats
from bactrian.ingest.parsed import Found, Origin
from bactrian.options import FORMAT, JSON, LICENSE, QUIET, RUN, Language, Option
from bactrian.records.text import to_json, to_line, write_count
from bactrian.store import list_run_files, open_store

SOME_SKIPPED = 4
_SHOWN = 20


def ingest(
    path: Annotated[
        Path, Argument("A folder, an archive, a file of JSON, or hf://OWNER/NAME of the Hugging Face hub.")
    ],
    run_file: Annotated[Path, RUN, "File of the run to store them in; created if it does not exist."],
    form: Annotated[
        Form | None,
        replace(FORMAT, shown="detected"),
        "Format of the files.",
    ] = None,
    model: Annotated[str, Option("--made-by", "Name of the model that wrote them, if known.")] = "",
    language: Annotated[Language, "Their language, if not English."] = None,
    license_name: Annotated[
        str,
        LICENSE,
        "Their licence, if it is not known: CAMEL's own data is CC-BY-NC-4.0.",
    ] = "",
    json: Annotated[bool, JSON, "Write the result as JSON."] = False,
    quiet: Annotated[bool, QUIET] = False,
) -> None:
    """Import conversations of other programs into a run."""
    check_replaceable(path, list_run_files(run_file))
    source = find_chats(
        path,
        form,
        Origin(model, language, {"license": license_name} if license_name else {}),
        lambda text: open_progress().say(to_line(text)),
    )
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
    for item in report.named[:_SHOWN]:
        open_progress().say(to_line(f"Skipped {item.name}: {item.problem}."))
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
    for name in filter(None, report.licenses):
        open_progress().say(to_line(f"Licence: {name}, also for what you make from them. Exports name it."))
