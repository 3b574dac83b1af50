"""``bactrian import``: take in what others made."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bactrian.cli.options import option
from bactrian.cli.run_async import run

if TYPE_CHECKING:
    from bactrian.ingest.importer import Report
    from bactrian.ingest.parsed import Found

SOME_SKIPPED = 4
_SHOWN = 20


class Form(StrEnum):
    """How others write conversations."""

    camel_chat = "camel-chat"
    messages = "messages"
    sharegpt = "sharegpt"


def ingest(
    path: Annotated[Path, typer.Argument(help="A folder or archive of CAMEL's chats, or a .jsonl file.")],
    run_file: Annotated[Path, option("--run", "The run to store them in; made if it is not there.")],
    form: Annotated[
        Form | None, option("--format", "What the files hold.", show_default="what they look like")
    ] = None,
    model: Annotated[str, option("--made-by", "Name of the model that made them, if you know it.")] = "",
    language: Annotated[str | None, option("--language", "Language they are in, if not English.")] = None,
    json: Annotated[bool, option("--json", "Write what became of them as JSON.")] = False,
) -> None:
    """Store conversations that other programs wrote, so that everything works on them."""
    from bactrian.ingest.importer import find
    from bactrian.ingest.parsed import Origin

    source = find(path, form.value if form else None, Origin(model, language))
    run(_ingest(source, run_file, json=json), resume="What was read is kept; the same command goes on.")


async def _ingest(source: Iterator[Found], run_file: Path, *, json: bool) -> int:
    from rich.status import Status

    from bactrian.cli.terminal.console import progress
    from bactrian.ingest.importer import take_in
    from bactrian.store.store import open_store

    with Status("Reading", console=progress()) as shown:

        def tell(report: Report) -> None:
            shown.update(f"{report.stored + report.already:,} conversations, {report.broken:,} skipped")

        async with open_store(run_file) as store:
            report = await take_in(store, source, tell)
    _say(report, run_file, json=json)
    return SOME_SKIPPED if report.broken else 0


def _say(report: Report, run_file: Path, *, json: bool) -> None:
    import json as encoder
    from dataclasses import asdict

    from bactrian.cli.terminal.console import output, printable, progress

    for one in report.named[:_SHOWN]:
        progress().print(printable(f"Skipped {one.name}: {one.problem}."))
    if report.broken > _SHOWN:
        progress().print(f"Skipped {report.broken:,} in all.")
    if json:
        print(encoder.dumps(asdict(report), ensure_ascii=False))
    else:
        output().print(
            f"{run_file}: {report.stored:,} conversations with {report.messages:,} messages stored,"
            f" {report.already:,} were there already, {report.broken:,} skipped"
        )
