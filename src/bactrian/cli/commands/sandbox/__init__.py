"""``bactrian sandbox``: one file for each of its subcommands."""

from __future__ import annotations

import typer

from bactrian.cli.commands.sandbox.run import run
from bactrian.cli.commands.sandbox.serve import serve

app = typer.Typer(help="Run programs in sandboxes.", rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def sandbox() -> None:
    """Run a program in a sandbox."""


app.command("run")(run)
app.command("serve")(serve)
