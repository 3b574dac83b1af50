"""The command ``bactrian``: its exit codes and error output."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from errno import EACCES, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, EPERM
from typing import Any

from bactrian.cli.environment import configure_hub, read_dotenv
from bactrian.cli.terminal.ending import end_process
from bactrian.cli.terminal.streams import ReaderLeft, guard_streams
from bactrian.errors import BactrianError, BactrianWarning, InputError

_WRONG_PATH = frozenset({ENAMETOOLONG, ENOENT, ENOTDIR, EISDIR, ELOOP, EACCES, EPERM})


def main() -> None:
    """Run the command line and end the process with its exit code."""
    # Loading the program makes hundreds of thousands of objects, and none becomes garbage: the collector would look
    # at all of them again and again, which takes a tenth of the start.
    gc.set_threshold(200_000)
    _plain_warnings()
    code = 0
    try:
        with guard_streams(), _explaining():
            # The overview needs neither click, which takes longer to import than all else, nor the environment.
            if sys.argv[1:] in (["--help"], ["-h"], ["help"]) and "_BACTRIAN_COMPLETE" not in os.environ:
                from bactrian.cli.verbs import write_overview

                print(write_overview())
            else:
                from bactrian.cli.help_form import build_app

                read_dotenv()
                configure_hub()
                build_app()(prog_name="bactrian")
    except ReaderLeft as gone:
        code = gone.exit_code
    except BactrianError as error:
        if os.environ.get("BACTRIAN_DEBUG"):
            import traceback

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
