"""``bactrian runs``: the runs in the data folder and in the working folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from bactrian.api.reading.catalog import RunSummary, list_runs
from bactrian.cli.options import declare_option
from bactrian.cli.run_async import run_async
from bactrian.cli.terminal.console import open_output, open_progress, to_printable
from bactrian.cli.view.facts import LEAST_TABLE, fit_facts
from bactrian.language.escape import to_json
from bactrian.records.text import write_dollars
from bactrian.store import find_data_folder, name_run

_ENDINGS = 3
"""Endings that a line names."""


def runs(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FOLDER]...", help="Folders. Default: the data folder and this one."),
    ] = None,
    json: Annotated[bool, declare_option("--json", "Write one JSON object a line.")] = False,
) -> None:
    """List runs: recipe, size, endings, state, cost and age."""
    run_async(_list(folders or [], json=json), resume="Nothing was changed.")


async def _list(folders: list[Path], *, json: bool) -> int:
    found = await list_runs(folders)
    if json:
        for one in found:
            print(to_json(one.describe()))
        return 0
    if not found:
        where = ", ".join(map(str, folders)) or f"{find_data_folder()} or here"
        open_progress().say(f"There is no run in {where}. `bactrian play` makes one.")
        return 0
    console = open_output()
    if console.is_terminal and console.width < LEAST_TABLE:
        for one in found:
            name, recipe, ended, state, endings, cost, age = map(to_printable, _write_row(one))
            console.print(name, style="bold")
            facts = filter(None, (recipe, f"{ended} ended" if ended else "", state, endings, cost, age))
            for line in fit_facts(facts, console.width - 2):
                console.print(f"  {line}")
        _suggest()
        return 0
    table = Table("run", "recipe", "ended", "state", "endings", "cost", "changed", box=None, pad_edge=False)
    table.columns[2].justify = "right"
    for one in found:
        table.add_row(*map(to_printable, _write_row(one)))
    console.print_table(table)
    _suggest()
    return 0


def _suggest() -> None:
    open_progress().say(
        "`bactrian status RUN` says more; `bactrian show RUN` reads its conversations.", style="dim"
    )


def _write_row(one: RunSummary) -> tuple[str, ...]:
    ended = sum(one.endings.values())
    total = one.sessions if one.jobs is None else one.jobs
    endings = ", ".join(f"{code} {count:,}" for code, count in list(one.endings.items())[:_ENDINGS])
    more = len(one.endings) - _ENDINGS
    return (
        name_run(one.run),
        one.recipe,
        "" if one.problem or not (one.sessions or one.jobs) else f"{ended:,}/{total:,}",
        one.state,
        one.problem or (f"{endings} and {more} more" if more > 0 else endings),
        write_dollars(one.usd) if one.recipe else "",
        write_age(time.time() - one.changed),
    )


def write_age(seconds: float) -> str:
    """Return how long ago something was, in the largest fitting unit."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit} ago"
    return "now"
