"""``bactrian merge``, ``pull`` and ``push``: one run from its parts, and a shared run as a file."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from bactrian.api.run_parts import merge_runs
from bactrian.api.shared_run import pull as pull_run
from bactrian.api.shared_run import push as push_run
from bactrian.api.status import read_status
from bactrian.cli.flags import Argument, find_run_file, find_run_files
from bactrian.cli.terminal.bar import show_bar
from bactrian.cli.terminal.console import open_output, open_progress
from bactrian.options import JSON, QUIET, RUN
from bactrian.records.text import to_json, to_printable, write_count
from bactrian.store import is_locked, name_run

# ``bactrian pull`` and ``push``: a shared run as a file, and a file as a shared run.


_ADDRESS = (
    "The address of the shared run: postgresql://USER@HOST/DATABASE, with ?run=NAME if there are several."
)


def pull(
    address: Annotated[Path, Argument(_ADDRESS, metavar="ADDRESS")],
    file: Annotated[Path, Argument("The file to write or to refresh.", metavar="RUN.db")],
    quiet: Annotated[bool, QUIET, "Write only warnings and errors."] = False,
) -> None:
    """Copy a run from a PostgreSQL database to a file, or bring the file up to date."""
    count = pull_run(address, file)
    if not quiet:
        open_progress().say(f"{file} is up to date; {write_count(count, 'session')} read.")


def push(
    run_file: Annotated[Path, Argument("The run to copy.", metavar="RUN", check=find_run_file)],
    address: Annotated[Path, Argument(_ADDRESS, metavar="ADDRESS")],
    quiet: Annotated[bool, QUIET, "Write only warnings and errors."] = False,
) -> None:
    """Copy a run to a PostgreSQL database, where many processes continue it."""
    count = push_run(run_file, address)
    if not quiet:
        open_progress().say(
            f"{write_count(count, 'session')} copied. The file is as it was, and is not written again."
        )


# ``bactrian merge``: one run from its parts.


_NAMED = 8


def merge(
    parts: Annotated[
        list[Path],
        Argument(metavar="PART...", help="Runs of one plan, such as shards.", check=find_run_files),
    ],
    run_file: Annotated[Path, RUN, "File of the whole; the same command resumes, and adds what is new."],
    json: Annotated[bool, JSON, "Write one JSON object."] = False,
    quiet: Annotated[bool, QUIET, "Show no progress, and only errors."] = False,
) -> None:
    """Put the parts of a run together, such as the shards of a SLURM array."""
    written = [part for part in parts if is_locked(part)]
    with show_bar("Merging", "sessions", quiet=quiet) as tell:
        report = merge_runs(parts, run_file, tell)
    if json:
        print(to_json({"run": str(run_file), **asdict(report)}))
        return
    if quiet:
        return
    counts = f"{write_count(report.sessions, 'session')} with {write_count(report.turns, 'turn')}"
    open_output().say(to_printable(f"{run_file}: {counts}; {report.added:,} new or longer"))
    notes = [
        f"{part} is being written: merge again when it has ended, or its jobs are made twice."
        for part in written
    ]
    left = (report.missing or report.open) and asyncio.run(read_status(run_file)).left
    if left and report.missing:
        more = f" and {len(report.missing) - _NAMED:,} more" if len(report.missing) > _NAMED else ""
        notes.append(f"Shards that are not among the parts: {', '.join(report.missing[:_NAMED])}{more}.")
    if left:
        notes.append(f"`bactrian resume {shlex.quote(name_run(run_file))}` makes the jobs that are left.")
    for note in notes:
        open_progress().say(to_printable(note))
