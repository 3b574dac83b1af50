"""``bactrian status``: how far a run has come, and the command that goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bactrian.api.reading.status import read_status
from bactrian.cli.options import declare_option
from bactrian.cli.run_async import run_async
from bactrian.cli.terminal.console import open_output
from bactrian.cli.view.labelled import write_labelled
from bactrian.language.escape import to_json
from bactrian.store import find_run


def status(
    run_file: Annotated[
        Path, typer.Argument(metavar="RUN", help="The run: a file, or a name in `bactrian runs`.")
    ],
    json: Annotated[bool, declare_option("--json", "Write one JSON object.")] = False,
) -> None:
    """Show the progress and the cost of a run, and the command that resumes it."""
    run_async(_show(find_run(run_file), json=json), resume="The run is unchanged.")


async def _show(run: Path, *, json: bool) -> int:
    found = await read_status(run)
    if json:
        print(to_json(found.describe()))
    else:
        write_labelled(open_output(), found.list_facts(), 10)
    return 0
