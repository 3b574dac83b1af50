"""``bactrian pull`` and ``push``: a shared run as a file, and a file as a shared run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from bactrian.api.shared_run import pull as pull_run
from bactrian.api.shared_run import push as push_run
from bactrian.cli.flags import Argument, find_run_file
from bactrian.cli.terminal.console import open_progress
from bactrian.options import QUIET
from bactrian.records.text import write_count

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
