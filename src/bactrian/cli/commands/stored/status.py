"""``bactrian status``: how far a run has come, and the command that resumes it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from bactrian.api.reading.status import read_status
from bactrian.cli.options import RunArgument, declare_option
from bactrian.cli.run_async import run_async
from bactrian.cli.terminal.console import open_output
from bactrian.cli.view.facts import write_labelled
from bactrian.language.escape import to_json


def status(
    run_file: RunArgument,
    json: Annotated[bool, declare_option("--json", "Write one JSON object.")] = False,
) -> None:
    """Show the progress and the cost of a run, and the command that resumes it."""
    run_async(_show(run_file, json=json), resume="The run is unchanged.")


async def _show(run: Path, *, json: bool) -> int:
    found = await read_status(run)
    if json:
        print(to_json(found.describe()))
    else:
        write_labelled(open_output(), found.list_facts(), 10)
    return 0
