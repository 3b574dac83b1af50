"""``bactrian behaviours``: the behaviours that analyses detect."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bactrian.analyze.behaviours.catalogue import load_definitions
from bactrian.analyze.behaviours.learned import LearnedBehaviour, check_unregistered, register_learned
from bactrian.analyze.behaviours.own import check_code, find_installed, read_behaviours
from bactrian.analyze.running.code_fails import CODE as CODE_FAILS
from bactrian.cli.commands.behaviours.label import label
from bactrian.cli.options import declare_option
from bactrian.cli.terminal.console import open_progress
from bactrian.detect.labelled import list_codes, read_labelled
from bactrian.detect.learning import LearnedModel, learn_behaviour
from bactrian.errors import InputError
from bactrian.language.escape import to_line, to_printable
from bactrian.stats.proportion import Proportion

app = typer.Typer(
    help="List the behaviours that are detected, show, train or label one.", rich_markup_mode=None
)
app.command()(label)


@app.callback(invoke_without_command=True)
def behaviours(context: typer.Context) -> None:
    """List the behaviours: the built-in ones, and those of packages and of your own."""
    if context.invoked_subcommand:
        return
    for code, definition in load_definitions().items():
        print(f"{code:<20} {to_line(_shorten(definition))}")
    for one in (*read_behaviours([CODE_FAILS]), *find_installed()):
        print(f"{one.code:<20} {to_line(_shorten(one.description))}")


@app.command()
def show(name: Annotated[str, typer.Argument(help="Code of a behaviour.")]) -> None:
    """Print the definition of a behaviour."""
    definition = load_definitions().get(name)
    if definition is None:
        (own,) = read_behaviours([name])
        definition = own.description
    print(to_printable(definition.strip()))


@app.command()
def train(
    data: Annotated[Path, typer.Argument(metavar="DATA.jsonl", help="Labelled conversations.")],
    name: Annotated[
        str | None, declare_option("--name", "The behaviour to learn, if the labels name several.")
    ] = None,
    description: Annotated[
        str | None, declare_option("--description", "One sentence that defines it, for a judge.")
    ] = None,
    overwrite: Annotated[
        bool, declare_option("--overwrite", "Replace a learned behaviour of the same name.")
    ] = False,
) -> None:
    """Learn a behaviour of your own from labelled conversations, and register it by name.

    Analyses, exports and the Python API detect it from then on. The figures are measured on conversations that were
    left out: one author at a time, or a fifth of the data if fewer than three authors are named.
    """
    conversations = read_labelled(data)
    code = check_code(name or _find_only_code(list_codes(conversations), data))
    if not overwrite:
        check_unregistered(code)
    said = open_progress()
    learned = learn_behaviour(
        conversations, code, lambda done, parts: said.say(f"{done} of {parts} parts left out in turn")
    )
    place = register_learned(
        LearnedBehaviour(code, description or code.replace("_", " "), learned.model), overwrite=overwrite
    )
    _write_figures(code, learned)
    said.say(to_line(f"Registered as {code}: {place}"))


def _write_figures(code: str, learned: LearnedModel) -> None:
    precision, recall = learned.precision, learned.recall
    print(f"{code}: {learned.conversations:,} conversations, {learned.groups} parts left out in turn")
    print(f"precision {_write_share(precision)}, recall {_write_share(recall)}")


def _write_share(of: Proportion) -> str:
    low, high = of.interval
    return f"{of.rate:.0%} ({low:.0%}–{high:.0%}; {of.count} of {of.total})"


def _shorten(definition: str) -> str:
    """Return the first sentence, without the name."""
    first = definition.strip().partition("\n\n")[0].replace("\n", " ")
    return first.partition(": ")[2] or first


def _find_only_code(codes: list[str], data: Path) -> str:
    if len(codes) == 1:
        return codes[0]
    found = ", ".join(codes) or "no behaviour"
    raise InputError(f"The labels name {found}.", where=str(data), next="Choose one with --name.")
