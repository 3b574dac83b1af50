"""A process that has the command loaded and forks it: real commands, without a second of imports for each.

:mod:`tests.helpers.command` starts it. Each byte that it receives comes with four file descriptors: standard input,
output and error of a command, and a socket. On the socket arrive, as JSON, the arguments, the working folder and the
environment; the process id goes back over it, and the exit code when the command has ended.

A forked command differs from one that is started afresh in what happens before ``bactrian`` is imported: what Python
takes from its environment at its start is the server's. Commands for which that matters are started afresh.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import sys
import threading
from contextlib import suppress

import bactrian

_SEPARATE = ("bactrian.__main__", "bactrian.models.local.server_process")
_USUAL = ("sqlalchemy.dialects.sqlite", "rich.progress", "rich.table", "pydantic", "jinja2", "asyncio", "ssl")


def main() -> None:
    """Load everything, then fork a command for each request until the other end is closed."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    import_everything()
    assert threading.active_count() == 1
    gc.freeze()
    signal.signal(signal.SIGCHLD, _reap)
    while True:
        _, descriptors, _, _ = socket.recv_fds(requests, 1, 4)
        if not descriptors:
            return
        if os.fork() == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _supervise(descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)


def import_everything() -> None:
    """Import what commands import, so that a fork need not; what needs an optional part that is missing is left out."""
    for module in pkgutil.walk_packages(bactrian.__path__, "bactrian."):
        if module.name in _SEPARATE:
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as missing:
            if (missing.name or "bactrian").startswith("bactrian"):
                raise
    for name in _USUAL:
        importlib.import_module(name)


def _reap(*_: object) -> None:
    """Take leave of ended supervisors; the time they and their commands took is then counted as this process's."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _supervise(descriptors: list[int]) -> None:
    """Fork the command and report it; returns in the command's process only, when the command is over."""
    *streams, link = descriptors
    with socket.socket(fileno=link) as answers:
        order = json.loads(b"".join(iter(lambda: answers.recv(65_536), b"")))
        child = os.fork()
        if child:
            for stream in (0, 1, 2):
                os.dup2(os.open(os.devnull, os.O_RDWR), stream)
            for stream in streams:
                os.close(stream)
            answers.sendall(b"%d\n" % child)
            _, status = os.waitpid(child, 0)
            answers.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
            os._exit(0)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    sys.argv = ["bactrian", *order["arguments"]]
    sys.path[0] = order["cwd"]
    runpy.run_module("bactrian", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
