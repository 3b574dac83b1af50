"""``bactrian import`` and ``bactrian export``: conversations of other programs, and runs in their formats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Unpack

from bactrian import options as opts
from bactrian.api.exchange import export_session_data
from bactrian.cli.flags import Argument, RunsArgument
from bactrian.cli.run_async import WHOLE, run_async
from bactrian.cli.terminal.bar import open_parts, show_bar
from bactrian.cli.terminal.console import PrintableConsole, open_output, open_progress
from bactrian.export.formats import list_formats
from bactrian.export.manifest import format_manifest
from bactrian.files.atomic import check_replaceable
from bactrian.ingest.chats import Found, Origin
from bactrian.ingest.importer import Form, ImportReport, find_chats, import_chats
from bactrian.records.text import to_json, to_line, to_printable, write_count
from bactrian.store import open_store
from bactrian.store.locations import list_run_files

# ``bactrian import``: conversations of other programs.


SOME_SKIPPED = 4
_SHOWN = 20


def ingest(
    path: Annotated[
        Path, Argument("A folder, an archive, a file of JSON, or hf://OWNER/NAME of the Hugging Face hub.")
    ],
    run_file: Annotated[Path, opts.RUN, "File of the run to store them in; created if it does not exist."],
    form: Annotated[Form | None, replace(opts.FORMAT, shown="detected"), "Format of the files."] = None,
    model: Annotated[str, opts.Option("--made-by", "Name of the model that wrote them, if known.")] = "",
    language: Annotated[opts.Language, "Their language, if not English."] = None,
    license_name: Annotated[
        str, opts.LICENSE, "Their licence, if it is not known: CAMEL's own data is CC-BY-NC-4.0."
    ] = "",
    json: Annotated[bool, opts.JSON, "Write the result as JSON."] = False,
    quiet: Annotated[bool, opts.QUIET] = False,
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


# ``bactrian export``: write a run in the formats of other tools.


def export(
    runs: RunsArgument,
    form: Annotated[
        str, opts.FORMAT, f"Format of the data: {', '.join(list_formats())}, or one of another package."
    ],
    out: Annotated[Path, opts.OUT, "File or folder to write."],
    only: Annotated[
        list[str] | None,
        opts.ONLY,
        "Only sessions with ending=CODE or finding=CODE; `asked`: of the last command's jobs; `runs`: whose code runs "
        "in the sandbox. Can be repeated.",
    ] = None,
    drop: Annotated[
        list[str] | None,
        opts.Option(
            "--drop", "Leave out sessions with finding=CODE, ending=CODE or mark=NAME. Can be repeated."
        ),
    ] = None,
    overwrite: Annotated[bool, opts.OVERWRITE, "Replace an existing export."] = False,
    json: Annotated[bool, opts.JSON, "Write the manifest."] = False,
    quiet: Annotated[bool, opts.QUIET, "Show no progress, and only errors."] = False,
    **flags: Unpack[opts.ExportChoices],
) -> None:
    """Export a run in a format that other tools read."""
    check_replaceable(out, [file for run in runs for file in list_run_files(run)])

    async def export_data(run_file: Path) -> int:
        with show_bar("Exporting", "sessions", quiet=quiet) as tell:
            manifest = await export_session_data(
                run_file,
                form,
                out,
                only=only or (),
                drop=drop or (),
                overwrite=overwrite,
                more=flags,
                on_progress=tell,
            )
        if json:
            print(format_manifest(manifest), end="")
        if not quiet:
            _write_summary(manifest, out, open_progress() if json else open_output())
        return 0

    with open_parts(runs, quiet=quiet) as whole:
        run_async(export_data(whole), resume=WHOLE)


def _write_summary(manifest: Mapping[str, Any], out: Path, console: PrintableConsole) -> None:
    counts = manifest["counts"]
    rows = sum(counts["rows"].values())
    if not counts["sessions"]:  # Lists.
        files = len(manifest["files"])
        console.say(to_printable(f"{out}: {manifest['format']}, {rows:,} items in {files:,} files"))
        return
    console.say(
        to_printable(
            f"{out}: {manifest['format']}, {write_count(rows, 'row')}"
            f" from {write_count(counts['sessions'], 'session')}"
            f" with {write_count(counts['messages'], 'message')}"
        )
    )
    if "pushed" in manifest:
        console.say(to_printable(f"{manifest['pushed']}: uploaded; a new data set is private"))
    if manifest["split"]:
        for name, count in counts["rows"].items():
            console.say(f"  {name}: {write_count(count, 'row')}")
    notes = [to_line(f"Left out: {count:,} × {reason}") for reason, count in counts["left_out"].items()]
    if counts["left_out"].get("unfinished"):
        notes.append(
            "The run is incomplete: only sessions that had ended were exported. --unfinished includes the others."
        )
    notes += [f"{count:,} × {note}" for note, count in manifest["notes"].items()]
    notes += [f"Removed: {count:,} × {kind}" for kind, count in counts["redacted"].items()]
    notes += [to_line(f"Marked: {mark}") for mark in manifest["marks"]]
    for note in notes:
        open_progress().say(note)
