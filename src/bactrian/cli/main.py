"""The command ``bactrian``: its verbs, its exit codes and how its errors look."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from errno import EACCES, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, EPERM
from typing import Annotated, Any

import typer

import bactrian
from bactrian.cli.commands import (
    analyze,
    doctor,
    export,
    failures,
    generate,
    ingest,
    models,
    play,
    prompts,
    recipes,
    recover,
    roles,
    verify,
)
from bactrian.cli.environment import read_dotenv
from bactrian.cli.terminal.streams import ReaderLeft, guard_streams
from bactrian.errors import BactrianError, BactrianWarning, InputError

_WRONG_PATH = frozenset({ENAMETOOLONG, ENOENT, ENOTDIR, EISDIR, ELOOP, EACCES, EPERM})

app = typer.Typer(
    name="bactrian",
    help="Two language-model agents role-play until a task is solved.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
app.command()(play.play)
app.command()(generate.generate)
app.command()(failures.failures)
app.command()(analyze.analyze)
app.command()(export.export)
app.command("import")(ingest.ingest)
app.command()(verify.verify)
app.command()(recover.recover)
app.command()(roles.roles)
app.add_typer(recipes.app, name="recipes")
app.command()(models.models)
app.add_typer(prompts.app, name="prompts")
app.command()(doctor.doctor)


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
    try:
        with guard_streams(), _explaining():
            read_dotenv()
            app()
    except ReaderLeft as gone:
        sys.exit(gone.exit_code)
    except BactrianError as error:
        if os.environ.get("BACTRIAN_DEBUG"):
            import traceback

            traceback.print_exc()
        _explain(error)
        sys.exit(error.exit_code)


@contextmanager
def _explaining() -> Generator[None]:
    """A file that nobody looked at more closely is still named, with what is wrong with it."""
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
    """Show our own warnings as a sentence, without the line of code that gave them."""
    import warnings

    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any) -> None:
        if issubclass(category, BactrianWarning):
            from bactrian.cli.terminal.console import to_printable

            print(to_printable(f"bactrian: warning: {message}"), file=sys.stderr)
        else:
            usual(message, category, *place)

    warnings.showwarning = show


def _explain(error: BactrianError) -> None:
    """Print an error in at most three lines."""
    from bactrian.cli.terminal.console import to_printable

    for line in to_printable(f"bactrian: {error}").splitlines()[:3]:
        print(line, file=sys.stderr)
