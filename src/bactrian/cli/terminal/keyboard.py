"""A person's input from standard input."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bactrian.cli.run_async import StopControl
from bactrian.errors import InputError, Left, Stopped
from bactrian.models.open import ModelOptions
from bactrian.records.text import Text, to_printable
from bactrian.roleplay.human import Human

_CHUNK = 1 << 16


class Keyboard:
    """Reads lines on request from a terminal, a pipe or a file.

    No thread waits for input, because a waiting thread could not be cancelled by Ctrl-C.
    """

    def __init__(self) -> None:
        self._read = b""
        self._ended = False
        self._stopped = False
        self._waiting: asyncio.Future[None] | None = None

    async def ask(self, prompt: str) -> str:
        """Return the next line; a backslash at its end continues it with the following line.

        Raises:
            Stopped: Ctrl-C was pressed.
            Left: the input has ended.
        """
        self._prompt(prompt)
        lines = [await self._line()]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            self._prompt("…")
            lines.append(await self._line())
        return "\n".join(lines)

    async def edit(self, prompt: str, text: str) -> str:
        """Edit ``text`` in the person's editor; without an editor or a terminal, ask for a new text."""
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
        if not editor or not (sys.stdin.isatty() and sys.stderr.isatty()):
            return await self.ask(prompt)
        with tempfile.TemporaryDirectory(prefix="bactrian-") as folder:
            file = Path(folder) / "message.txt"
            file.write_text(Text(text), "utf-8")
            process = await asyncio.create_subprocess_exec(*shlex.split(editor), str(file))
            await process.wait()
            return file.read_text("utf-8", "replace")

    async def stop(self) -> None:
        """End the session at the person's next question, or immediately if one is open."""
        self._stopped = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _prompt(self, prompt: str) -> None:
        sys.stderr.write(to_printable(f"\n{prompt} ") if len(prompt) > 1 else f"{prompt} ")
        sys.stderr.flush()

    async def _line(self) -> str:
        while b"\n" not in self._read and not self._ended:
            await self._more()
        line, newline, self._read = self._read.partition(b"\n")
        if not newline and not line:
            raise Left("The input has ended without an answer.", where="standard input")
        return line.decode(errors="replace").rstrip("\r")

    async def _more(self) -> None:
        if self._stopped:
            raise Stopped("The person pressed Ctrl-C.")
        descriptor = sys.stdin.fileno()
        loop = asyncio.get_running_loop()
        waiting = self._waiting = loop.create_future()
        # A file is always ready; epoll cannot wait for one.
        with contextlib.suppress(PermissionError):
            loop.add_reader(descriptor, _ready, waiting)
            try:
                await waiting
            finally:
                loop.remove_reader(descriptor)
        if self._stopped:
            raise Stopped("The person pressed Ctrl-C.")
        chunk = os.read(descriptor, _CHUNK)
        self._ended = not chunk
        self._read += chunk


def add_person(reach: ModelOptions, stop_control: StopControl, idea: str | None) -> ModelOptions:
    """Add the person at the keyboard. Ctrl-C then ends the session instead of interrupting it.

    Raises:
        InputError: the idea was read from standard input, too.
    """
    if idea == "-":
        raise InputError(
            "The idea and your part cannot both come from standard input.",
            where="-",
            next="Give the idea as an argument.",
        )
    keyboard = Keyboard()
    stop_control.stop = keyboard.stop
    return replace(reach, person=lambda: Human(keyboard))


def ask_consent(role: str, outside: Sequence[str], *, yes: bool) -> None:
    """Ask whether code of a model may run, unless ``yes``. ``outside`` names its tools, which run with all rights.

    Raises:
        InputError: there is no terminal to ask on, or the answer is no.
        SandboxError: this computer has no sandbox.
    """
    from bactrian.sandbox.programs import choose_tier

    tier = choose_tier()
    if yes:
        return
    with_tools = f" It can call, with your rights: {', '.join(outside)}." if outside else ""
    question = (
        f"{role} will run Python that a model writes, in a sandbox ({tier.name}).{with_tools} Continue?"
    )
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError(
            "Code of a model needs your consent, and there is no terminal to ask on.",
            where="--embodied",
            next="Give --yes.",
        )
    import click

    if not click.confirm(to_printable(question), err=True):
        raise InputError(
            "No code was run.", where="--embodied", next="Answer y, or give --yes, to let it run."
        )


def _ready(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
