"""``bactrian verify``: a run checked against its checksums and counts."""

from __future__ import annotations

from typing import Annotated

from bactrian.cli.options import RunArgument, declare_option
from bactrian.cli.terminal.bar import show_bar
from bactrian.errors import StoreError
from bactrian.language.escape import to_json, to_line
from bactrian.store.sqlite.verify import verify as verified


def verify(
    run_file: RunArgument,
    json: Annotated[bool, declare_option("--json", "Write one JSON object.")] = False,
    quiet: Annotated[bool, declare_option("--quiet", "Write only faults.")] = False,
) -> None:
    """Check all data of a run against its checksums and counts. Changes nothing."""

    with show_bar("Checking", "sessions", quiet=quiet) as tell:
        verdict = verified(run_file, tell)
    if json:
        found = {"sessions": verdict.sessions, "turns": verdict.turns, "faults": verdict.faults}
        print(to_json(found))
    elif verdict.faults:
        print("\n".join(map(to_line, verdict.faults)))
    elif not quiet:
        print(f"{verdict.sessions:,} sessions and {verdict.turns:,} turns, no damage found.")
    if count := len(verdict.faults):
        raise StoreError(
            f"{count:,} {'fault' if count == 1 else 'faults'} in {verdict.sessions:,} sessions.",
            where=str(run_file),
            next=f"Save what is readable: bactrian recover {run_file} --out NEW.db",
        )
