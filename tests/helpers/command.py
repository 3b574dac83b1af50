"""The command ``bactrian``, run as a person and a program would run it."""

from __future__ import annotations

import asyncio
import atexit
import json
import marshal
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from tests.helpers.in_process import can_run_here, run_here
from tests.helpers.time_limit import read_limit

LINES = [
    "Build a tea timer.",
    "Instruction: Name the parts.\nInput: None",
    "Solution: A dial and a bell.\nNext request.",
    "<CAMEL_TASK_DONE>",
]
"""A script for the built-in agents: a task, an instruction, a solution, the end."""
_AT_START = ("PYTHON", "LC_", "LANG")
"""How the names of variables begin that Python reads when it starts."""
_LATER = ("PYTHONPATH", "PYTHONIOENCODING")
"""Those of them that a forked command reads, too."""
_ROOT = Path(__file__).parents[2]


def clean_environment(**variables: str) -> dict[str, str]:
    """The environment without the user's own keys and settings, and with ``variables``.

    A ``PYTHONPATH`` goes before the one that is set: that is where the network guard lies.
    """
    if "PYTHONPATH" in variables and (path := os.environ.get("PYTHONPATH")):
        variables["PYTHONPATH"] += os.pathsep + path
    kept = {
        name: value
        for name, value in os.environ.items()
        if name == "BACTRIAN_DATA" or not name.startswith(("OPENAI", "BACTRIAN"))
    }
    return kept | variables


class Command:
    """A command that runs: its exit code, what it writes, and signals to it.

    Output is kept in files, so that a command never waits for the test to read it; or it goes to a ``terminal``.
    Its process may have run other commands before, unless it is to be an ``own_process``.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
        text: bytes = b"",
        terminal: int | None = None,
        own_process: bool = False,
    ) -> None:
        self._input, self._out, self._err = _files()
        self._input.write(text)
        self._input.seek(0)
        self._link, theirs = socket.socketpair()
        streams = [file.fileno() for file in (self._input, self._out, self._err)]
        if terminal is not None:
            streams = [terminal] * 3
        hand_over([*streams, theirs.fileno()])
        theirs.close()
        order = {
            "arguments": list(arguments),
            "cwd": str(cwd),
            "env": dict(environment),
            "own_process": own_process or terminal is not None,
        }
        self._link.sendall(marshal.dumps(order))
        self._link.shutdown(socket.SHUT_WR)
        # Without a buffer, which could take the exit code along with the process id; nobody would see it arrive.
        self._lines = self._link.makefile("rb", buffering=0)
        self._name = " ".join(arguments)[:200]
        self._code: int | None = None
        self.pid = 0
        self.pid = self._read_number()

    @property
    def returncode(self) -> int | None:
        """The exit code, or None while the command runs."""
        if self._code is None:
            with suppress(BlockingIOError):
                self._link.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
                self.wait()
        return self._code

    def wait(self) -> int:
        """Wait for the end; gives the exit code."""
        if self._code is None:
            self._code = self._read_number()
            self._lines.close()
            self._link.close()
        return self._code

    def _read_number(self) -> int:
        """Read what the forking process says. A command that hangs writes the stacks of its threads, and ends."""
        seconds = 0.8 * read_limit()  # so that the test can still say what it waits for
        poll = select.poll()  # other than select.select, it takes any number of a file
        poll.register(self._link, select.POLLIN)
        if not poll.poll(1000 * seconds):
            if self.pid:
                os.kill(self.pid, signal.SIGABRT)
                poll.poll(5000)
            raise TimeoutError(f"After {seconds:.0f} s, `{self._name}` has not ended:\n{self.peek()}")
        if not (line := self._lines.readline()):
            raise RuntimeError(f"The process that forks commands has ended before `{self._name}`.")
        return int(line)

    def finish(self) -> tuple[bytes, bytes]:
        """Wait for the end; gives standard output and standard error."""
        self.wait()
        with self._input:
            return _read(self._out), _read(self._err)

    def peek(self) -> str:
        """What the command has written so far, standard output first."""
        return "".join(
            os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode()
            for file in (self._out, self._err)
        )

    def wait_for_lines(self, number: int) -> None:
        """Wait until ``number`` lines are written, or the command has ended."""
        while self.returncode is None and self.peek().count("\n") < number:
            time.sleep(0.01)

    async def communicate(self) -> tuple[bytes, bytes]:
        """As :meth:`finish`, while the event loop goes on."""
        return await asyncio.to_thread(self.finish)

    def send_signal(self, which: signal.Signals) -> None:
        """Send a signal to the command, unless it has ended: its process may run another one."""
        if self.returncode is None:
            os.kill(self.pid, which)

    def kill(self) -> None:
        """End the command without asking."""
        self.send_signal(signal.SIGKILL)


def hand_over(descriptors: Sequence[int]) -> None:
    """Give standard input, output and error of a command, and the socket for its order, to the forking process."""
    socket.send_fds(_start_server(), [b"x"], descriptors)


def bactrian(
    *arguments: str, cwd: Path, text: bytes | None = None, own_process: bool = False, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. ``variables`` are added to its environment, ``text`` is its standard input.

    It runs in this process where that makes no difference to it, unless it is to have its ``own_process``.
    """
    environment = clean_environment(**variables)
    if not own_process and can_run_here(variables):
        code, out, err = run_here(arguments, cwd, environment, text or b"")
        return subprocess.CompletedProcess(arguments, code, out.decode(), err.decode())
    if any(name.startswith(_AT_START) and name not in _LATER for name in variables):
        command = [sys.executable, "-m", "bactrian", *arguments]
        done = subprocess.run(command, cwd=cwd, env=environment, input=text, capture_output=True, check=False)
        return subprocess.CompletedProcess(
            arguments, done.returncode, done.stdout.decode(), done.stderr.decode()
        )
    command = Command(arguments, cwd, environment, text or b"")
    out, err = command.finish()
    return subprocess.CompletedProcess(arguments, command.wait(), out.decode(), err.decode())


def start_python(program: str, *arguments: object, cwd: Path = _ROOT) -> Command:
    """Start a program in Python, in a process that has most of ``bactrian`` imported."""
    return Command(["-c", program, *map(str, arguments)], cwd, clean_environment(), own_process=True)


def events(output: str) -> list[dict[str, Any]]:
    """The objects of JSON lines."""
    return [json.loads(line) for line in output.splitlines()]


def _files() -> tuple[BinaryIO, BinaryIO, BinaryIO]:
    with ExitStack() as stack:
        one, two, three = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        stack.pop_all()
    return one, two, three


def _read(file: BinaryIO) -> bytes:
    with file:
        file.seek(0)
        return file.read()


@cache
def _start_server() -> socket.socket:
    """Start the process that forks commands; it and they end with this one."""
    ours, theirs = socket.socketpair()
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.helpers.command_server", str(theirs.fileno())],
        cwd=_ROOT,
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    theirs.close()

    def stop() -> None:
        ours.close()
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()

    atexit.register(stop)
    return ours
