"""The command ``bactrian``: its exit codes and error output."""

from __future__ import annotations

import gc
import os
import re
import stat
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from errno import EACCES, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, EPERM
from typing import Any

from bactrian.cli.terminal.process import ReaderLeft, end_process, guard_streams
from bactrian.errors import BactrianError, BactrianWarning, InputError

_WRONG_PATH = frozenset({ENAMETOOLONG, ENOENT, ENOTDIR, EISDIR, ELOOP, EACCES, EPERM})


_OPTIONS = (
    r"\w+_MODEL|MODEL|JUDGE|EXTRACTOR|BASE_URL|RUN|LANGUAGE|LICENSE|SEED|PRICE|BUDGET|LIMIT|MAX_\w+|\w+_PER_MINUTE"
    r"|CONCURRENCY|TIMEOUT|WINDOW|TEMPERATURE|TOP_P|REASONING_EFFORT|REPLY_LENGTH|WORD_LIMIT|PROTOCOL|ENDINGS"
    r"|ASSISTANT|USER|\w+_DESCRIPTION|THOUGHTS|REDACT|MARK|NOTE|JSON|QUIET|VERBOSE|DEBUG"
)
_LARGEST_DOTENV = 1 << 16  # Bytes
# Variables that `.env` may set: keys, addresses of models, and options that decide neither where keys go nor
# what runs. The file may come from another person: an option names code to load, and others allow what only
# the user can allow.
_MAY = re.compile(
    rf"BACTRIAN_({_OPTIONS})|(?!BACTRIAN_|LD_|PYTHON|OTEL_|HF_ENDPOINT)\w*(_KEY|_TOKEN|_SECRET|_PASSWORD|_BASE_URL|_ENDPOINT)",
    re.IGNORECASE,
)

# What the hub's client reads when it is imported: it prints no warnings beside our progress, and sends no
# requests besides ours.
_HUB = {"HF_HUB_VERBOSITY": "error", "HF_HUB_DISABLE_TELEMETRY": "1"}


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
            if sys.argv[1:] in (["--help"], ["-h"]) and "_BACTRIAN_COMPLETE" not in os.environ:
                from bactrian.cli.verbs import write_overview

                print(write_overview())
            else:
                from bactrian.cli.help_form import run_app

                _read_dotenv()
                # Only commands do so: in a program that imports this package, these settings are the program's own.
                for name, value in _HUB.items():
                    os.environ.setdefault(name, value)
                code = run_app()
    except ReaderLeft as gone:
        code = gone.exit_code
    except BactrianError as error:
        if os.environ.get("BACTRIAN_DEBUG"):
            import traceback

            from bactrian.cli.terminal.console import say

            say(traceback.format_exc())
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
            next="Check the path and the rights, and run the same command; --verbose shows more.",
        ) from error


def _plain_warnings() -> None:
    """Show our own warnings as a sentence, without the line of code."""
    usual = warnings.showwarning
    shown = set[str]()  # Several runs of one command may be made from the same conversations.

    def show(message: Warning | str, category: type[Warning], *position: Any) -> None:
        if issubclass(category, BactrianWarning):
            from bactrian.cli.terminal.console import say

            if str(message) not in shown:
                say(f"bactrian: warning: {message}")
            shown.add(str(message))
        else:
            usual(message, category, *position)

    warnings.showwarning = show


def _explain(error: BactrianError) -> None:
    """Print an error in at most three lines."""
    from bactrian.cli.help_form import spell_error
    from bactrian.cli.terminal.console import say, to_printable

    for line in to_printable(f"bactrian: {spell_error(error, sys.argv[1:])}").splitlines()[:3]:
        say(line)


def _read_dotenv() -> None:
    """Add the variables of ``.env`` that the environment lacks, and remember their names."""
    from bactrian.models.credentials import DOTENV

    os.environ.pop(DOTENV, None)
    # Neither pathlib nor dotenv, which take longer to import than all else here. A folder of this name is common.
    if not os.path.exists(".env") or os.path.isdir(".env"):  # noqa: PTH110, PTH112
        return
    from io import StringIO

    from dotenv import dotenv_values

    from bactrian.cli.terminal.console import say

    handle = os.open(".env", os.O_RDONLY | os.O_NONBLOCK)  # A pipe without a writer would block.
    with os.fdopen(handle, "rb") as file:
        text = file.read(_LARGEST_DOTENV + 1) if stat.S_ISREG(os.fstat(handle).st_mode) else None
    if text is None or len(text) > _LARGEST_DOTENV:
        what = "it is not a file" if text is None else f"it has more than {_LARGEST_DOTENV:,} bytes"
        say(f"bactrian: warning: .env is ignored: {what}.")
        return
    try:
        # Not interpolated: a value must not copy a key from the environment.
        written = dotenv_values(stream=StringIO(text.decode()), interpolate=False)
    except UnicodeDecodeError as error:
        raise InputError("This is not UTF-8 text.", where=".env", next="Save it as UTF-8.") from error
    new = {name: value for name, value in written.items() if value is not None and name not in os.environ}
    refused = [name for name, value in new.items() if not _MAY.fullmatch(name) or "\0" in value]
    if refused:
        more = f" and {len(refused) - 5:,} more" if len(refused) > 5 else ""
        say(f"bactrian: warning: .env cannot set {', '.join(refused[:5])}{more}.")
    taken = {name: value for name, value in new.items() if name not in refused and name != DOTENV}
    os.environ.update(taken)
    if taken:
        os.environ[DOTENV] = " ".join(taken)
