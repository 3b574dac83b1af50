"""``bactrian runs``, ``status``, ``failures``, ``verify``, ``recover``, ``merge``, ``pull`` and ``push``: run files."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from json import dumps
from pathlib import Path
from typing import Annotated

from rich.table import Table

from bactrian.amounts import write_compared
from bactrian.api.known_runs import pull as pull_run
from bactrian.api.known_runs import push as push_run
from bactrian.api.resumption import is_generated, read_stored_run, write_resume_command
from bactrian.api.run_parts import merge_runs
from bactrian.api.status import RunSummary, list_runs, read_status
from bactrian.cli.flags import Argument, RunArgument, RunsArgument, find_run_file, find_run_files
from bactrian.cli.run_async import run_async
from bactrian.cli.terminal.bar import open_parts, show_bar
from bactrian.cli.terminal.console import LEAST_TABLE, fit_facts, open_output, open_progress, write_labelled
from bactrian.errors import StoreError
from bactrian.options import JSON, OUT, QUIET, RUN
from bactrian.records.run import WRITTEN, Failure
from bactrian.records.text import to_json, to_line, to_printable, write_count
from bactrian.store import name_run, open_store
from bactrian.store.care import is_locked
from bactrian.store.care import recover as recovered
from bactrian.store.care import verify as verified
from bactrian.store.locations import find_data_folder

_ENDINGS = 3  # Endings that a line names


def runs(
    folders: Annotated[
        list[Path] | None,
        Argument(
            metavar="[FOLDER]...", help="Folders. Default: the data folder, this one, and runs used lately."
        ),
    ] = None,
    json: Annotated[bool, JSON, "Write one JSON object a line."] = False,
) -> None:
    """List runs: recipe, size, endings, state, cost and age."""
    run_async(_list_runs(folders or [], json=json), resume="Nothing was changed.")


async def _list_runs(folders: list[Path], *, json: bool) -> int:
    runs = await list_runs(folders)
    if json:
        for run in runs:
            print(to_json(run.describe()))
        return 0
    if not runs:
        where = (
            ", ".join(str(folder.absolute()) for folder in folders)
            or f"{find_data_folder()} or here, and none was used lately"
        )
        open_progress().say(f"There is no run in {where}. `bactrian play` makes one.")
        return 0
    console, rows = open_output(), _write_rows(runs)
    if console.is_terminal and console.width < LEAST_TABLE:
        for row in rows:
            name, recipe, ended, state, endings, cost, age = map(to_printable, row)
            console.print(name, style="bold")
            facts = filter(None, (recipe, f"{ended} ended" if ended else "", state, endings, cost, age))
            for line in fit_facts(facts, console.width - 2):
                console.print(f"  {line}")
        _suggest()
        return 0
    table = Table("run", "recipe", "ended", "state", "endings", "cost", "changed", box=None, pad_edge=False)
    table.columns[2].justify = table.columns[5].justify = "right"
    for row in rows:
        table.add_row(*map(to_printable, row))
    console.print_table(table)
    _suggest()
    return 0


def _suggest() -> None:
    open_progress().say(
        "`bactrian status RUN` says more; `bactrian show RUN` reads its conversations.", style="dim"
    )


def _write_rows(runs: Sequence[RunSummary]) -> list[tuple[str, ...]]:
    """Return a row for each run; costs stand below each other, and have the same decimals."""
    known = [run.status.usd for run in runs if run.status and run.status.usd is not None]
    costs = iter(write_compared(*known))
    return [
        _write_row(run, next(costs) if run.status and run.status.usd is not None else "unknown")
        for run in runs
    ]


def _write_row(run: RunSummary, cost: str) -> tuple[str, ...]:
    name, age, status = name_run(run.run), write_age(time.time() - run.changed), run.status
    if status is None:
        return name, "", "", "unreadable", run.problem, "", age
    total = status.sessions if status.jobs is None else status.jobs
    # A play that failed or was stopped has ended, too.
    left = status.open if status.jobs is None else status.left
    ended = f"{total - left:,}/{total:,}" if total else ""
    endings = ", ".join(f"{code} {share.count:,}" for code, share in list(status.endings.items())[:_ENDINGS])
    if (more := len(status.endings) - _ENDINGS) > 0:
        endings += f" and {more} more"
    return name, run.recipe, ended, status.state, endings, cost, age


def write_age(seconds: float) -> str:
    """Return how long ago something was, in the largest fitting unit."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit} ago"
    return "now"


def status(
    runs: RunsArgument,
    json: Annotated[bool, JSON, "Write one JSON object."] = False,
) -> None:
    """Show the progress and the cost of a run, and the command that resumes it."""
    with open_parts(runs, quiet=json) as run:
        run_async(_show_status(run, runs, json=json), resume="The run is unchanged.")


async def _show_status(run: Path, parts: Sequence[Path], *, json: bool) -> int:
    status = await read_status(run)
    if len(parts) > 1:
        state = WRITTEN if any(map(is_locked, parts)) else status.state
        status = replace(status, run=Path(run.name), parts=tuple(parts), state=state, command=None)
    if json:
        print(to_json(status.describe()))
    else:
        write_labelled(open_output(), status.list_facts(), 10)
    return 0


_SHOWN = 200  # Characters of a response that are printed; `--json` has all that is stored


def failures(
    run_file: RunArgument,
    json: Annotated[bool, JSON, "Write one JSON object a line."] = False,
) -> None:
    """List the jobs that failed or were not answered, with the reason and the response received."""
    run_async(_list_failures(run_file, json=json), resume="The run is unchanged.")


async def _list_failures(run_file: Path, *, json: bool) -> int:
    counts = Counter[bool]()
    async with open_store(run_file, read_only=True) as store:
        async for failure in store.failures():
            counts[failure.open] += 1
            _write_failure(failure, json=json)
        generated = await is_generated(store)
        stored = await read_stored_run(store) if generated else None
        again = write_resume_command(run_file, stored) if counts and stored else None
        wanted = {axis.name: axis.count for axis in stored.recipe.axes} if stored else {}
        lists = [(items, wanted.get(items.id.partition("@")[0], 0)) async for items in store.item_lists()]
    if json:
        return 0
    if not generated:
        again = f"bactrian resume {shlex.quote(name_run(run_file))} ID"
    for is_open, what, flag in ((False, "failed", " --retry-failed"), (True, "not answered", "")):
        if count := counts[is_open]:
            command = (
                f"`{again}{flag if generated else ''}`"
                if again
                else f"What made the run{flag and ', with'}{flag},"
            )
            print(f"{count:,} {what}; {command} asks again.")
    short = [(items, count) for items, count in lists if items.complete and len(items.items) < count]
    for items, count in short:
        has = f"{len(items.items):,} of {count:,} items; --retry-failed asks for the rest."
        print(to_line(f"The list {items.id} stayed short: {has}"))
    if not counts and not short:
        print("None failed.")
    return 0


def _write_failure(failure: Failure, *, json: bool) -> None:

    raw = failure.raw.decode(errors="replace")
    if json:
        fields = {
            "session": failure.session,
            "turns": failure.turns,
            "reason": failure.reason,
            "error": failure.error,
            "raw": raw,
            "open": failure.open,
        }
        print(to_json(fields))
        return
    print(to_line(f"{failure.session} after {write_count(failure.turns, 'turn')}: {failure.reason}"))
    if raw:
        print(f"  response: {to_line(raw)[:_SHOWN]}")


def verify(
    run_file: RunArgument,
    json: Annotated[bool, JSON, "Write one JSON object."] = False,
    quiet: Annotated[bool, QUIET, "Write only faults."] = False,
) -> None:
    """Check all data of a run against its checksums and counts. Changes nothing."""

    with show_bar("Checking", "sessions", quiet=quiet) as tell:
        verdict = verified(run_file, tell)
    if json:
        print(to_json(asdict(verdict)))
    elif verdict.faults:
        print("\n".join(map(to_line, verdict.faults)))
    elif not quiet:
        print(f"{verdict.sessions:,} sessions and {verdict.turns:,} turns, no damage found.")
    if verdict.unsealed and not quiet and not json:
        print(
            f"{verdict.unsealed:,} rows have no checksum, since they were recovered:"
            " of them, only the texts of turns were checked."
        )
    if count := len(verdict.faults):
        raise StoreError(
            f"{count:,} {'fault' if count == 1 else 'faults'} in {verdict.sessions:,} sessions.",
            where=str(run_file),
            next=f"Save what is readable: bactrian recover {run_file} --out NEW.db, or use an older copy.",
        )


def recover(
    run_file: Annotated[
        Path,
        Argument(metavar="RUN", help="The damaged run. It is not changed.", check=find_run_file),
    ],
    out: Annotated[Path, OUT, "The new run."],
    json: Annotated[bool, JSON, "Write one JSON object."] = False,
) -> None:
    """Write a new run with everything readable from a damaged one."""

    saved = recovered(run_file, out)
    if json:
        print(dumps({"run": str(out), **asdict(saved)}))
        return
    print(f"{out}: {write_count(saved.sessions, 'session')} with {write_count(saved.turns, 'turn')}")
    if saved.lost_sessions or saved.lost_turns:
        sessions, turns = write_count(saved.lost_sessions, "session"), write_count(saved.lost_turns, "turn")
        print(f"Lost: {sessions} and {turns}, by the file's own count. An older copy may have them.")
    if saved.opened:
        print(
            f"Open again, without their last turns: {saved.opened:,}; the command that made the run finishes them."
        )


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
