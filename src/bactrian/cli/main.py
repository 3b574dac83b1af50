"""The command ``bactrian``: its subcommands, exit codes and error output."""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from errno import EACCES, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, EPERM
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

import bactrian
from bactrian.cli.environment import configure_hub, read_dotenv
from bactrian.cli.help_form import HELP_NAMES, VerbGroup
from bactrian.cli.terminal.ending import end_process
from bactrian.cli.terminal.streams import ReaderLeft, guard_streams
from bactrian.errors import BactrianError, BactrianWarning, InputError

_WRONG_PATH = frozenset({ENAMETOOLONG, ENOENT, ENOTDIR, EISDIR, ELOOP, EACCES, EPERM})


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """A command whose module is imported when it is called; its help is known before."""

    function: str
    """``module:function``, in ``bactrian.cli.commands``."""
    help: str
    """The first line of the command's own help."""
    hidden: bool = False
    """True for a second name of a command, which the help leaves out."""
    subcommands: Mapping[str, str] = field(default_factory=dict[str, str])
    """Their functions by name."""
    alone: bool = True
    """True if a command with subcommands does something without one."""

    def load(self, name: str) -> click.Command:
        """Import the command."""
        from bactrian.cli.flags import build_command, build_group

        function = _import_function(self.function)
        if not self.subcommands:
            return build_command(function, name)
        subcommands = {
            sub: build_command(_import_function(where), sub) for sub, where in self.subcommands.items()
        }
        return build_group(function, name, self.help, subcommands, alone=self.alone)


def _import_function(where: str) -> Callable[..., None]:
    module, _, name = where.partition(":")
    return getattr(import_module(f"bactrian.cli.commands.{module}"), name)


COMMANDS = {
    "play": LazyCommand("play:play", "Watch two agents solve a task."),
    "generate": LazyCommand(
        "generate:generate",
        "Generate the conversations of a recipe, or resume an interrupted run.",
    ),
    "runs": LazyCommand("run_files:runs", "List runs: recipe, size, endings, state, cost and age."),
    "list": LazyCommand("run_files:runs", "", hidden=True),
    "status": LazyCommand(
        "run_files:status", "Show the progress and the cost of a run, and the command that resumes it."
    ),
    "show": LazyCommand("show:show", "Show the conversations of a run: a list of them, or one in full."),
    "resume": LazyCommand(
        "resume:resume",
        "Resume an interrupted run or session. The run stores all its options; keys come from the environment.",
    ),
    "failures": LazyCommand(
        "run_files:failures", "List the jobs that failed, with the reason and the response received."
    ),
    "analyze": LazyCommand(
        "analyze:analyze",
        "Report endings, behaviours and costs of a run, or compare several runs.",
    ),
    "behaviours": LazyCommand(
        "behaviour_commands:behaviours",
        "List the behaviours that are detected, show, train or label one.",
        subcommands={
            "label": "behaviour_commands:label",
            "show": "behaviour_commands:show_behaviour",
            "train": "behaviour_commands:train_behaviour",
        },
    ),
    "export": LazyCommand("export:export", "Export a run in a format that other tools read."),
    "explore": LazyCommand(
        "explore:explore", "Look at runs and conversations in the browser: filter, search, read."
    ),
    "import": LazyCommand("ingest:ingest", "Import conversations of other programs into a run."),
    "verify": LazyCommand(
        "run_files:verify",
        "Check all data of a run against its checksums and counts. Changes nothing.",
    ),
    "recover": LazyCommand(
        "run_files:recover", "Write a new run with everything readable from a damaged one."
    ),
    "evaluate": LazyCommand(
        "evaluate:evaluate",
        "Measure models and conversations.",
        alone=False,
        subcommands={
            "agents": "evaluate:agents",
            "emergence": "evaluate:emergence",
            "extract": "evaluate:extract",
            "humaneval": "evaluate:humaneval",
            "invite": "evaluate:invite",
            "pairwise": "evaluate:pairwise",
            "questions": "evaluate:questions",
            "vote": "evaluate:vote",
        },
    ),
    "train": LazyCommand(
        "train:train",
        "Train a model on conversations, in stages, and write each stage in the format that `play` reads.",
    ),
    "sandbox": LazyCommand(
        "sandbox:sandbox",
        "Run a program in a sandbox.",
        alone=False,
        subcommands={"run": "sandbox:run", "serve": "sandbox:serve"},
    ),
    "roles": LazyCommand("roles:roles", "Ask a model for the roles that a task needs."),
    "recipes": LazyCommand(
        "catalog:recipes",
        "List the recipes, or show one.",
        subcommands={"show": "catalog:show_recipe"},
    ),
    "societies": LazyCommand(
        "catalog:societies",
        "List the societies, or show one.",
        subcommands={"show": "catalog:show_society"},
    ),
    "models": LazyCommand(
        "catalog:models",
        "List models and providers, whether their keys are set, and what constrains their replies.",
    ),
    "prompts": LazyCommand(
        "catalog:prompts",
        "List the prompt packs, or show one.",
        subcommands={"show": "catalog:show_pack"},
    ),
    "doctor": LazyCommand(
        "doctor:doctor", "Check which optional parts are installed, and whether the model answers."
    ),
    "help": LazyCommand("help:show_help", "Show the help of a command."),
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

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return a command; None if not found."""
        return COMMANDS[cmd_name].load(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands in sections."""
        others = [name for name in COMMANDS if not any(name in names for names in SECTIONS.values())]
        width = max(map(len, COMMANDS))
        for title, names in (*SECTIONS.items(), ("Check and repair", others)):
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(width), COMMANDS[name].help) for name in names if not COMMANDS[name].hidden]
                )

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin with ``incomplete``, without importing them."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [
            CompletionItem(name, help=command.help)
            for name, command in COMMANDS.items()
            if name.startswith(incomplete) and not command.hidden
        ]


def build_app() -> LazyGroup:
    """Return the command ``bactrian``."""
    version = click.Option(
        ["--version"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_show_version,
        help="Show the version and stop.",
    )
    debug = click.Option(
        ["--debug"],
        is_flag=True,
        expose_value=False,
        envvar="BACTRIAN_DEBUG",
        callback=_show_tracebacks,
        help="Show the traceback of an error.",
    )
    return LazyGroup(
        "bactrian",
        params=[version, debug],
        help="Two language-model agents role-play until a task is solved.",
        no_args_is_help=True,
        context_settings=HELP_NAMES,
    )


def _show_version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:  # noqa: ARG001
    if wanted and not ctx.resilient_parsing:
        print(bactrian.__version__)
        ctx.exit()


def _show_tracebacks(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:  # noqa: ARG001
    if wanted:
        os.environ["BACTRIAN_DEBUG"] = "1"


def main() -> None:
    """Run the command line and end the process with its exit code."""
    _plain_warnings()
    code = 0
    try:
        with guard_streams(), _explaining():
            read_dotenv()
            configure_hub()
            build_app()(prog_name="bactrian")
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
