"""``bactrian evaluate``: one file for each of its subcommands."""

from __future__ import annotations

import typer

from bactrian.cli.commands.evaluate.agents import agents, extract
from bactrian.cli.commands.evaluate.emergence import emergence
from bactrian.cli.commands.evaluate.humaneval import humaneval
from bactrian.cli.commands.evaluate.invite import invite
from bactrian.cli.commands.evaluate.pairwise import pairwise
from bactrian.cli.commands.evaluate.questions import questions
from bactrian.cli.commands.evaluate.vote import vote

app = typer.Typer(help="Measure models and conversations.", rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def evaluate() -> None:
    """Measure models and conversations."""


app.command("agents")(agents)
app.command("emergence")(emergence)
app.command("extract")(extract)
app.command("humaneval")(humaneval)
app.command("invite")(invite)
app.command("pairwise")(pairwise)
app.command("questions")(questions)
app.command("vote")(vote)
