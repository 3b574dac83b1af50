"""A process that has the command loaded and forks it: real commands, without a second of imports for each.

:mod:`tests.helpers.command` starts it. Each byte that it receives comes with four file descriptors: standard input,
output and error of a command, and a socket. On the socket arrive, as :mod:`marshal` writes them, the arguments, the
working folder, the environment, and the numbers of streams to close; the process id goes back over it, and the exit
code when the command has ended. With the arguments ``-c PROGRAM …`` it is a program in Python.

A forked command differs from one that is started afresh in what happens before ``bactrian`` is imported: what Python
takes from its environment at its start is the server's, except the folders of PYTHONPATH, which are added, and the
standard streams, which are made as Python makes them. Commands for which the rest matters are started afresh.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import marshal
import os
import pkgutil
import runpy
import signal
import socket
import sys
import threading
from contextlib import suppress

from rich.cells import cell_len

import bactrian
from bactrian.analyze.behaviours.catalogue import find_behaviours
from bactrian.models.providers import load_providers
from bactrian.prompts.engine import load_engine_prompts
from bactrian.prompts.pack import list_packs, load_pack
from bactrian.recipes.registry import find_recipe_model
from tests.helpers.runs import session

_SEPARATE = ("bactrian.__main__.", "bactrian.models.local.server_process.", "bactrian.train.worker.")
"""Modules, and packages with all their modules, that run in processes of their own."""
_USUAL = (
    *(
        "asyncio",
        "dotenv.main",
        "encodings.idna",
        "genai_prices.data",
        "http.cookiejar",
        "jinja2",
        "numpy.random",
    ),
    *(
        "pydantic",
        "rensa",
        "rich.progress",
        "rich.table",
        "sqlalchemy.dialects.sqlite",
        "ssl",
        "typer._adapters",
    ),
)
"""Modules that commands import when they need them; none of them starts a thread."""


def main() -> None:
    """Load everything, then fork a command for each request until the other end is closed."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    import_everything()
    read_once()
    assert threading.active_count() == 1
    gc.freeze()
    links: dict[int, socket.socket] = {}
    signal.signal(signal.SIGCHLD, lambda *_: _report_ends(links))
    while True:
        _, descriptors, _, _ = socket.recv_fds(requests, 1, 4)
        if not descriptors:
            return
        *streams, link = descriptors
        answers = socket.socket(fileno=link)
        # A command that ends at once is reported after its process id.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
            for one in (requests, *links.values()):
                one.close()
            _run_command(streams, answers)
            return
        links[child] = answers
        _tell(answers, child)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        for stream in streams:
            os.close(stream)


def import_everything() -> None:
    """Import what commands import, so that a fork need not; what needs an optional part that is missing is left out."""
    for module in pkgutil.walk_packages(bactrian.__path__, "bactrian."):
        if f"{module.name}.".startswith(_SEPARATE):
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as missing:
            if (missing.name or "bactrian").startswith("bactrian"):
                raise
    for name in _USUAL:
        with suppress(ModuleNotFoundError):
            importlib.import_module(name)


def read_once() -> None:
    """Read what a process reads once and keeps.

    The detector, packs, prompts, providers, what a recipe may hold and what packages register, widths of characters.
    """
    find_behaviours(session())
    for name in list_packs():
        load_pack(name)
    load_engine_prompts()
    load_providers()
    find_recipe_model()
    cell_len("…")


def _report_ends(links: dict[int, socket.socket]) -> None:
    """Send the exit codes of the commands that have ended."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            with links.pop(ended[0]) as link:
                _tell(link, os.waitstatus_to_exitcode(ended[1]))


def _tell(link: socket.socket, number: int) -> None:
    with suppress(OSError):  # The test did not wait for it.
        link.sendall(b"%d\n" % number)


def _run_command(streams: list[int], link: socket.socket) -> None:
    """Become the command that arrives on ``link``."""
    with link:
        order = marshal.loads(b"".join(iter(lambda: link.recv(65_536), b"")))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    _make_streams(order.get("closed", []))
    sys.argv = ["bactrian", *order["arguments"]]
    folders = order["env"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [order["cwd"], *(folder for folder in folders if folder and folder not in sys.path)]
    try:
        if sys.argv[1:2] == ["-c"]:
            _, _, program, *sys.argv[1:] = sys.argv
            exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
        else:
            runpy.run_module("bactrian", run_name="__main__", alter_sys=True)
    except SystemExit as ending:
        if not isinstance(ending.code, str):
            _leave(int(ending.code or 0))
        raise
    _leave(0)


def _make_streams(closed: list[int]) -> None:
    """Make the standard streams what Python makes of them at its start: encoded as told, or None where closed."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if number in closed:
            os.close(number)
            setattr(sys, name, None)
            continue
        like = getattr(sys, name)
        encoding = os.environ.get("PYTHONIOENCODING", like.encoding)
        mode = "w" if number else "r"
        stream = open(number, mode, encoding=encoding, errors=like.errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)


def _leave(code: int) -> None:
    """End as Python does, except that the loaded modules are not taken apart: that costs more than most commands.

    Returns where not all could be written; Python's own ending then says so.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return
    os._exit(code)


if __name__ == "__main__":
    main()
