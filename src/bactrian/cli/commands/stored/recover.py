"""``bactrian recover``: everything readable from a damaged run, in a new file."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from bactrian.cli.options import declare_option, find_run_file
from bactrian.store.sqlite.recover import recover as recovered


def recover(
    run_file: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="The damaged run. It is not changed.", callback=find_run_file),
    ],
    out: Annotated[Path, declare_option("--out", "The new run.")],
    json: Annotated[bool, declare_option("--json", "Write one JSON object.")] = False,
) -> None:
    """Write a new run with everything readable from a damaged one."""

    found = recovered(run_file, out)
    if json:
        print(dumps({"run": str(out), **asdict(found)}))
        return
    print(f"{found.sessions:,} sessions with {found.turns:,} turns are in {out}.")
    if found.opened:
        print(
            f"{found.opened:,} of them lack turns and are open again: the command that made the run finishes them."
        )
