"""``bactrian failures``: the jobs of a run that failed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from bactrian.cli.options import RunArgument, declare_option
from bactrian.cli.run_async import run_async
from bactrian.language.escape import to_json, to_line
from bactrian.records.run import Failure
from bactrian.store import open_store

_SHOWN = 200
"""Characters of a response that are printed; ``--json`` has all that is stored."""


def failures(
    run_file: RunArgument,
    json: Annotated[bool, declare_option("--json", "Write one JSON object a line.")] = False,
) -> None:
    """List the jobs that failed, with the reason and the response received."""
    run_async(_list(run_file, json=json), resume="The run is unchanged.")


async def _list(run_file: Path, *, json: bool) -> int:

    count = 0
    async with open_store(run_file, read_only=True) as store:
        async for failure in store.failures():
            count += 1
            _show(failure, json=json)
    if not json:
        print(
            f"{count:,} failed; `bactrian generate` with --retry-failed retries them."
            if count
            else "None failed."
        )
    return 0


def _show(failure: Failure, *, json: bool) -> None:

    raw = failure.raw.decode(errors="replace")
    if json:
        fields = {
            "session": failure.session,
            "turns": failure.turns,
            "reason": failure.reason,
            "error": failure.error,
            "raw": raw,
        }
        print(to_json(fields))
        return
    print(to_line(f"{failure.session} after {failure.turns} turns: {failure.reason}"))
    if raw:
        print(f"  response: {to_line(raw)[:_SHOWN]}")
