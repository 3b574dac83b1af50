"""A command that runs in the process of the test: its exit code and texts, without a process.

It goes through :func:`bactrian.cli.main.main`, with real standard streams, and leaves the process as it was. What
needs a process of its own (signals, terminals, a running event loop, locks between processes) is for
:mod:`tests.helpers.command`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from bactrian.cli.main import main

_READ_EACH_TIME = ("BACTRIAN_", "OPENAI_", "GROQ_", "NO_COLOR", "SHARED")
"""How the names of variables begin that no library reads once for all."""
_OF_TESTS = ("/tmp/", "/dev/shm/")
"""Where the modules lie that a test has written."""


def can_run_here(variables: Iterable[str]) -> bool:
    """Tell whether a command with these variables can run in this thread.

    A command waits for the threads of its stores and calls, and so it would for those of the test.
    """
    return (
        all(name.startswith(_READ_EACH_TIME) for name in variables)
        and threading.current_thread() is threading.main_thread()
        and asyncio._get_running_loop() is None
        and not any(thread.name.startswith("bactrian") for thread in threading.enumerate())
    )


def run_here(
    arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], text: bytes = b""
) -> tuple[int, bytes, bytes]:
    """Run a command in this process; gives its exit code, standard output and standard error."""
    with ExitStack() as stack:
        streams = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        streams[0].write(text)
        streams[0].seek(0)
        with _redirect([stream.fileno() for stream in streams]), _take_place(arguments, cwd, environment):
            code = _call_main()
        for stream in streams[1:]:
            stream.seek(0)
        return code, streams[1].read(), streams[2].read()


def _call_main() -> int:
    def end(code: int) -> None:
        raise SystemExit(code)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "_exit", end)  # the end of a command that leaves cancelled calls behind
        try:
            main()
        except SystemExit as ending:
            if isinstance(ending.code, str):
                sys.stderr.write(f"{ending.code}\n")
                return 1
            return int(ending.code or 0)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
    return 0


@contextmanager
def _redirect(descriptors: Sequence[int]) -> Generator[None]:
    """Put other files in place of the standard streams, as a shell does."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept, streams = [os.dup(number) for number in range(3)], (sys.stdin, sys.stdout, sys.stderr)
    try:
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        with (
            open(0, encoding="utf-8", closefd=False) as sys.stdin,
            open(1, "w", encoding="utf-8", closefd=False) as sys.stdout,
            open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False) as sys.stderr,
        ):
            yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = streams
        for number, descriptor in enumerate(kept):
            os.dup2(descriptor, number)
            os.close(descriptor)


@contextmanager
def _take_place(arguments: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> Generator[None]:
    """Run the block as a process would begin: its arguments, folder and environment; undo what it changes of them."""
    variables, folder, modules = dict(os.environ), Path.cwd(), set(sys.modules)
    handlers = {which: signal.getsignal(which) for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.resetwarnings()
        for kind in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", kind)
        patch.setattr(sys, "argv", ["bactrian", *arguments])
        patch.setattr(sys, "path", [str(cwd), *sys.path])
        try:
            os.chdir(cwd)
            os.environ.clear()
            os.environ.update(environment)
            yield
        finally:
            os.environ.clear()
            os.environ.update(variables)
            os.chdir(folder)
            for which, handler in handlers.items():
                signal.signal(which, handler)
            for name in sys.modules.keys() - modules:
                file = getattr(sys.modules[name], "__file__", None) or ""
                # The environment of the tests may lie in the folder for temporary files, too.
                if file.startswith(_OF_TESTS) and not file.startswith(sys.prefix):
                    del sys.modules[name]
