"""A process that has the command loaded and forks it: real commands, without a second of imports for each.

:mod:`tests.helpers.command` starts it. Each byte that it receives comes with four file descriptors: standard input,
output and error of a command, and a socket. On the socket arrive, as :mod:`marshal` writes them, the arguments, the
working folder, the environment, the numbers of streams to close, and whether the command needs a process of its own;
the process id goes back over it, and the exit code when the command has ended. With the arguments ``-c PROGRAM …`` it
is a program in Python.

A process runs further commands with the same environment, unless one leaves something behind
(:mod:`tests.helpers.command_process`).

A forked command differs from one that is started afresh in what happens before ``bactrian`` is imported: what Python
takes from its environment at its start is the server's, except the folders of PYTHONPATH, which are added, and the
standard streams, which are made as Python makes them. Commands for which the rest matters are started afresh.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import marshal
import os
import pkgutil
import select
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from rich.cells import cell_len

import bactrian
from bactrian.analyze.behaviours import find_behaviours
from bactrian.models.providers import load_providers
from bactrian.protocol.pack import list_packs, load_engine_prompts, load_pack
from bactrian.recipes.schema import find_recipe_model
from tests.helpers.command_process import hand_on, is_last, run_commands
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
        "ssl",
        "click",
    ),
)
"""Modules that commands import when they need them; none of them starts a thread."""
_READ_EACH_TIME = ("BACTRIAN_", "OPENAI_", "PYTEST_CURRENT_TEST")
"""How the names of variables begin that no library reads once for all."""
_MOST_IDLE = 4
"""How many processes wait for a command with their environment."""


@dataclass(frozen=True, eq=False)
class _Forked:
    """A process that was forked for a command."""

    pid: int
    environment: Mapping[str, str] | None
    """What its commands have in common; None if it runs one command only."""
    control: socket.socket
    """Takes further commands, and gives the exit code of each after which the process can take another."""

    def bury(self) -> int:
        """Wait until it has ended, which it does when nothing can follow; gives the exit code."""
        self.control.close()
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


@dataclass(frozen=True)
class _Forks:
    """All forked processes."""

    requests: socket.socket
    running: dict[_Forked, socket.socket] = field(default_factory=dict[_Forked, socket.socket])
    """Those that run a command, with the socket of the test that waits for it."""
    idle: list[_Forked] = field(default_factory=list[_Forked])
    """Those that wait for another command."""

    def serve(self) -> None:
        """Run a command for each request until the other end is closed."""
        while True:
            forked = {process.control: process for process in (*self.running, *self.idle)}
            ready, _, _ = select.select([self.requests, *forked], [], [])
            for control in forked.keys() & set(ready):
                self._take_answer(forked[control])
            if self.requests not in ready:
                continue
            _, descriptors, _, _ = socket.recv_fds(self.requests, 1, 4)
            if not descriptors:
                return
            *streams, link = descriptors
            self._take_request(streams, socket.socket(fileno=link))
            for stream in streams:
                os.close(stream)

    def _take_request(self, streams: Sequence[int], link: socket.socket) -> None:
        """Let a process run the command that arrives on ``link``."""
        try:
            order = b"".join(iter(lambda: link.recv(65_536), b""))
            environment = _find_common_environment(marshal.loads(order))
        except (OSError, EOFError):  # The shell ended before it had asked for anything.
            link.close()
            return
        forked = self._find_idle(environment) or self._fork(environment, [*streams, link.fileno()])
        self.running[forked] = link
        _tell(link, forked.pid)
        with suppress(OSError):  # The test ended it before it took the command.
            hand_on(order, streams, forked.control)

    def _find_idle(self, environment: Mapping[str, str] | None) -> _Forked | None:
        """Take a process that has run commands with this environment, if there is one."""
        for process in self.idle:
            if environment is not None and process.environment == environment:
                self.idle.remove(process)
                return process
        return None

    def _fork(self, environment: Mapping[str, str] | None, foreign: Sequence[int]) -> _Forked:
        """Fork a process, which closes the ``foreign`` descriptors and whatever else is not its own."""
        while len(self.idle) > _MOST_IDLE:
            self.idle.pop(0).bury()
        ours, theirs = socket.socketpair()
        child = os.fork()
        if child == 0:
            others = (*(process.control for process in (*self.running, *self.idle)), *self.running.values())
            for number in (*foreign, *(source.fileno() for source in (self.requests, ours, *others))):
                os.close(number)
            run_commands(theirs)
            sys.exit()
        theirs.close()
        return _Forked(child, environment, ours)

    def _take_answer(self, forked: _Forked) -> None:
        """Send the exit code of a command that has ended, whether its process goes on or not."""
        answer = b""
        with suppress(ConnectionResetError):  # It ended before it took the command.
            answer = forked.control.recv(16)
        code = int(answer) if answer else forked.bury()
        if forked in self.running:
            with self.running.pop(forked) as link:
                _tell(link, code)
        else:
            self.idle.remove(forked)
        if answer:
            self.idle.append(forked)


def main() -> None:
    """Load everything, then serve."""
    faulthandler.enable()  # A test ends a command that hangs by SIGABRT, to see where.
    requests = socket.socket(fileno=int(sys.argv[1]))
    import_everything()
    read_once()
    assert threading.active_count() == 1
    gc.freeze()
    _Forks(requests).serve()
    os.killpg(0, signal.SIGKILL)  # the test process ended before its commands


def _find_common_environment(order: dict[str, Any]) -> Mapping[str, str] | None:
    """What a command must have in common with the others in its process; None if it can have no others."""
    if is_last(order):
        return None
    return {name: value for name, value in order["env"].items() if not name.startswith(_READ_EACH_TIME)}


def _tell(link: socket.socket, number: int) -> None:
    with suppress(OSError):  # The test did not wait for it.
        link.sendall(b"%d\n" % number)


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


if __name__ == "__main__":
    main()
