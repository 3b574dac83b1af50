"""``bactrian verify``: a run checked against its checksums and counts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bactrian.cli.options import declare_option
from bactrian.errors import StoreError
from bactrian.language.escape import to_json, to_line
from bactrian.store.sqlite.verify import verify as verified


def verify(
    run_file: Annotated[Path, typer.Argument(metavar="RUN", help="The run.")],
    json: Annotated[bool, declare_option("--json", "Write one JSON object.")] = False,
) -> None:
    """Check all data of a run against its checksums and counts. Changes nothing."""

    verdict = verified(run_file)
    if json:
        found = {"sessions": verdict.sessions, "turns": verdict.turns, "faults": verdict.faults}
        print(to_json(found))
    elif verdict.faults:
        print("\n".join(map(to_line, verdict.faults)))
    else:
        print(f"{verdict.sessions:,} sessions and {verdict.turns:,} turns, no damage found.")
    if count := len(verdict.faults):
        raise StoreError(
            f"{count:,} {'fault' if count == 1 else 'faults'} in {verdict.sessions:,} sessions.",
            where=str(run_file),
            next=f"Save what is readable: bactrian recover {run_file} --out NEW.db",
        )
