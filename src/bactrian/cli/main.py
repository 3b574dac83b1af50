"""The command ``bactrian``: its subcommands, exit codes and error output."""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from errno import EACCES, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, EPERM
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.core
import typer.main

import bactrian
from bactrian.cli.environment import configure_hub, read_dotenv
from bactrian.cli.terminal.ending import end_process
from bactrian.cli.terminal.streams import ReaderLeft, guard_streams
from bactrian.cli.verbs import HELP_NAMES, VerbGroup, normalize_app
from bactrian.errors import BactrianError, BactrianWarning, InputError

_WRONG_PATH = frozenset({ENAMETOOLONG, ENOENT, ENOTDIR, EISDIR, ELOOP, EACCES, EPERM})


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """A subcommand whose module is imported when it is called; its help is known before."""

    module: str
    """In ``bactrian.cli.commands``."""
    attribute: str
    """The function, or the app of a command with subcommands."""
    help: str
    """The first line of the command's own help."""
    hidden: bool = False
    """True for a second name of a command, which the help leaves out."""

    def load(self, name: str) -> Any:
        """Import the command."""
        found = getattr(import_module(f"bactrian.cli.commands.{self.module}"), self.attribute)
        if not isinstance(found, typer.Typer):
            app = typer.Typer(pretty_exceptions_enable=False)
            app.command(name)(found)
            found = app
        made = typer.main.get_command(normalize_app(found))
        made.name = name
        return made


COMMANDS = {
    "play": LazyCommand("play", "play", "Watch two agents solve a task."),
    "generate": LazyCommand(
        "generate",
        "generate",
        "Generate the conversations of a recipe, or resume an interrupted run.",
    ),
    "runs": LazyCommand("stored.runs", "runs", "List runs: recipe, size, endings, state, cost and age."),
    "list": LazyCommand("stored.runs", "runs", "", hidden=True),
    "status": LazyCommand(
        "stored.status", "status", "Show the progress and the cost of a run, and the command that resumes it."
    ),
    "show": LazyCommand(
        "stored.show", "show", "Show the conversations of a run: a list of them, or one in full."
    ),
    "resume": LazyCommand(
        "stored.resume",
        "resume",
        "Resume an interrupted run or session. The run stores all its options; keys come from the environment.",
    ),
    "failures": LazyCommand(
        "stored.failures", "failures", "List the jobs that failed, with the reason and the response received."
    ),
    "analyze": LazyCommand(
        "analyze",
        "analyze",
        "Report endings, behaviours and costs of a run, or compare several runs.",
    ),
    "behaviours": LazyCommand(
        "behaviours.app", "app", "List the behaviours that are detected, show, train or label one."
    ),
    "export": LazyCommand("export", "export", "Export a run in a format that other tools read."),
    "explore": LazyCommand(
        "stored.explore", "explore", "Look at runs and conversations in the browser: filter, search, read."
    ),
    "import": LazyCommand("ingest", "ingest", "Import conversations of other programs into a run."),
    "verify": LazyCommand(
        "stored.verify",
        "verify",
        "Check all data of a run against its checksums and counts. Changes nothing.",
    ),
    "recover": LazyCommand(
        "stored.recover", "recover", "Write a new run with everything readable from a damaged one."
    ),
    "evaluate": LazyCommand("evaluate", "app", "Measure models and conversations."),
    "train": LazyCommand(
        "train.train",
        "train",
        "Train a model on conversations, in stages, and write each stage in the format that `play` reads.",
    ),
    "sandbox": LazyCommand("sandbox", "app", "Run a program in a sandbox."),
    "roles": LazyCommand("roles", "roles", "Ask a model for the roles that a task needs."),
    "recipes": LazyCommand("catalog.recipes", "app", "List the recipes, or show one."),
    "societies": LazyCommand("catalog.societies", "app", "List the societies, or show one."),
    "models": LazyCommand(
        "catalog.models",
        "models",
        "List models and providers, whether their keys are set, and what constrains their replies.",
    ),
    "prompts": LazyCommand("catalog.prompts", "app", "List the prompt packs, or show one."),
    "doctor": LazyCommand(
        "doctor", "doctor", "Check which optional parts are installed, and whether the model answers."
    ),
    "help": LazyCommand("help", "show_help", "Show the help of a command."),
}
"""The commands."""
SECTIONS = {
    "Make conversations": ("play", "generate", "resume", "roles", "import"),
    "Read them": ("runs", "status", "show", "explore", "failures"),
    "Measure and use them": ("analyze", "behaviours", "evaluate", "export", "train"),
    "Look up": ("recipes", "societies", "models", "prompts", "help"),
}
"""The commands of each section of the help; all others are in the last section."""


class LazyGroup(VerbGroup):
    """Imports a command when it is called, and none to list or complete them."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """Return a command; None if not found."""
        found = COMMANDS.get(cmd_name)
        return None if found is None else found.load(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """List the commands in sections."""
        others = [name for name in COMMANDS if not any(name in names for names in SECTIONS.values())]
        width = max(map(len, COMMANDS))
        for title, names in (*SECTIONS.items(), ("Check and repair", others)):
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (name.ljust(width), COMMANDS[name].help)
                        for name in names
                        if name in COMMANDS and not COMMANDS[name].hidden
                    ]
                )

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return the commands that begin with ``incomplete``; versions of Typer without this class import them."""
        item: Any = vars(typer.core).get("CompletionItem")
        if item is None or incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [
            item(name, help=command.help)
            for name, command in COMMANDS.items()
            if name.startswith(incomplete) and not command.hidden
        ]


app = typer.Typer(
    name="bactrian",
    cls=LazyGroup,
    help="Two language-model agents role-play until a task is solved.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=HELP_NAMES,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(bactrian.__version__)
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and stop."),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="BACTRIAN_DEBUG", help="Show the traceback of an error.")
    ] = False,
) -> None:
    """Two language-model agents role-play until a task is solved."""
    if debug:
        os.environ["BACTRIAN_DEBUG"] = "1"


def main() -> None:
    """Run the command line and end the process with its exit code."""
    _plain_warnings()
    code = 0
    try:
        with guard_streams(), _explaining():
            read_dotenv()
            configure_hub()
            app(prog_name="bactrian")
    except ReaderLeft as gone:
        code = gone.exit_code
    except BactrianError as error:
        if os.environ.get("BACTRIAN_DEBUG"):
            traceback.print_exc()
        _explain(error)
        code = error.exit_code
    except SystemExit as ending:
        if not isinstance(ending.code, int):
            raise
        code = ending.code
    end_process(code)


@contextmanager
def _explaining() -> Generator[None]:
    """Turn an OSError that was not handled elsewhere into an error that names the file."""
    try:
        yield
    except OSError as error:
        kind = InputError if error.errno in _WRONG_PATH else BactrianError
        raise kind(
            f"{error.strerror or error}.",
            where=str(error.filename or "the system"),
            next="Check the path and the rights, and run the same command; --debug shows more.",
        ) from error


def _plain_warnings() -> None:
    """Show our own warnings as a sentence, without the line of code."""
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any) -> None:
        if issubclass(category, BactrianWarning):
            from bactrian.cli.terminal.console import say

            say(f"bactrian: warning: {message}")
        else:
            usual(message, category, *place)

    warnings.showwarning = show


def _explain(error: BactrianError) -> None:
    """Print an error in at most three lines."""
    from bactrian.cli.terminal.console import say, to_printable

    for line in to_printable(f"bactrian: {error}").splitlines()[:3]:
        say(line)
