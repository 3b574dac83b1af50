"""What a forked process does: it runs a command, and further ones while the last has left nothing behind.

The pages of memory that a process shares with the one it was forked from are copied where it writes to them, which
takes a third of the time of most commands. A process that goes on has its pages already.
"""

from __future__ import annotations

import atexit
import gc
import marshal
import os
import runpy
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TRUSTED = (sys.prefix, sys.base_prefix, str(Path(__file__).parents[2]))
"""Where modules lie that are the same for each command."""
_SIZE = 8
"""How many bytes the size of an order takes."""


@dataclass(frozen=True)
class _Traces:
    """What a command can leave behind in its process."""

    files: int
    """How many are open."""
    threads: int
    at_exit: int
    """How many functions are to be called at the end."""
    handlers: tuple[Any, ...]
    """What is done at each signal."""
    modules: frozenset[str]
    """Those that were imported from a folder of the test."""
    has_children: bool

    @classmethod
    def find(cls) -> _Traces:
        """Look at this process."""
        return cls(
            len(os.listdir("/dev/fd")),
            threading.active_count(),
            atexit._ncallbacks(),
            tuple(map(signal.getsignal, sorted(signal.valid_signals()))),
            frozenset(
                name
                for name, module in sys.modules.items()
                if (file := getattr(module, "__file__", None)) and not file.startswith(_TRUSTED)
            ),
            _has_children(),
        )


def hand_on(order: bytes, streams: Sequence[int], control: socket.socket) -> None:
    """Send a command and its standard streams to a process that runs :func:`run_commands`."""
    socket.send_fds(control, [len(order).to_bytes(_SIZE, sys.byteorder)], streams)
    control.sendall(order)


def is_last(order: dict[str, Any]) -> bool:
    """Tell whether a command is to have a process of its own, as one without all of its streams is."""
    return bool(order.get("own_process") or order.get("closed"))


def run_commands(control: socket.socket) -> None:
    """Run the commands that arrive on ``control``, and end the process after one that leaves something behind.

    The exit codes of all others go back over ``control``. Returns where not all output could be written, so that
    Python's own ending says so.
    """
    streams, path = (sys.stdin, sys.stdout, sys.stderr), list(sys.path)
    while order := _take_order(control):
        before = _Traces.find()
        with warnings.catch_warnings():  # each command shows a warning once
            code = _run_command(order)
        gc.collect()
        gc.freeze()  # else each command would look through all modules that those before it have imported
        if is_last(order) or not _flush() or _Traces.find() != before:
            _leave(code)
            return
        sys.stdin, sys.stdout, sys.stderr = streams
        sys.path[:] = path
        _let_go()
        control.sendall(b"%d" % code)
    os._exit(0)


def _take_order(control: socket.socket) -> dict[str, Any] | None:
    """Read an order, and take its streams, folder and environment; None if there are no more."""
    size, streams, _, _ = socket.recv_fds(control, _SIZE, 3)
    if not size:
        return None
    order = marshal.loads(control.recv(int.from_bytes(size, sys.byteorder), socket.MSG_WAITALL))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    _make_streams(order.get("closed", []))
    return order


def _make_streams(closed: Sequence[int]) -> None:
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


def _run_command(order: dict[str, Any]) -> int:
    """Run a command, or a program in Python; gives the exit code."""
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
        if isinstance(ending.code, str):
            raise
        return int(ending.code or 0)
    return 0


def _flush() -> bool:
    """Write what the streams have kept back; returns False if that cannot be written."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return False
    return True


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _let_go() -> None:
    """Leave the folder of the command, and its streams: whoever reads them waits for their end."""
    os.chdir(os.sep)
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.close(null)


def _leave(code: int) -> None:
    """End as Python does, except that the loaded modules are not taken apart: that costs more than most commands.

    Returns where not all could be written.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()
    if _flush():
        os._exit(code)
