"""How a sandboxed program ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bactrian.sandbox.limits import Limits

OutcomeEnding = Literal["ok", "error", "time", "memory", "output", "disk", "killed", "refused"]
"""``ok``: exit code 0. ``error``: another exit code. ``time``, ``memory``, ``output`` and ``disk``: that limit was
reached. ``killed``: ended by a signal. ``refused``: failed after calls that the sandbox refused."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a sandboxed program ended, and what it did."""

    ending: OutcomeEnding
    exit_code: int | None
    """None if a signal ended it."""
    signal: str
    """Name of the signal that ended it; empty if none did."""
    stdout: str
    stderr: str
    cpu: float
    """Seconds of CPU time of all its processes, with the start of the interpreter."""
    wall: float
    """Seconds."""
    memory: int
    """Peak of resident memory in bytes."""
    tier: str
    refused: Mapping[str, int] = field(default_factory=dict[str, int])
    """System calls that were refused, with their numbers."""
    wrote: Mapping[str, int] = field(default_factory=dict[str, int])
    """Files in the scratch folder at the end, with their sizes in bytes."""
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Content of those files, if it was asked for."""

    def to_json(self) -> dict[str, Any]:
        """Return the outcome without the content of files."""
        names = (name for name in self.__slots__ if name != "files")
        return {name: getattr(self, name) for name in names} | {"wrote": dict(self.wrote)}


@dataclass(frozen=True, slots=True)
class ExitReport:
    """What the supervisor says of a sandbox that has ended."""

    status: int
    """As ``os.wait`` returns it."""
    stopped: str
    """Why the supervisor ended it; empty if it ended by itself."""
    cpu: float
    memory: int
    wall: float
    refused: Mapping[str, int]

    def decide_exit(self) -> tuple[int | None, str]:
        """Return the exit code, or None and the name of the signal."""
        code = os.waitstatus_to_exitcode(self.status)
        # bubblewrap reports a signal as a shell does.
        number = -code if code < 0 else code - 128 if code > 128 else 0
        if number in signal.valid_signals():
            return None, signal.Signals(number).name
        return code, ""

    def decide_ending(self, limits: Limits, overflow: bool, error: str) -> OutcomeEnding:
        """Return how the program ended. ``error`` is the type of its last exception, by its own account."""
        code, name = self.decide_exit()
        if overflow:
            return "output"
        match self.stopped:
            case "wall" | "cpu":
                return "time"
            case "disk":
                return "disk"
            case "calls":
                return "refused"
            case "asked":
                return "killed"
            case _:
                pass
        if name in ("SIGKILL", "SIGXCPU") and self.cpu >= limits.cpu:
            return "time"
        if name:
            return "killed"
        if code == 0:
            return "ok"
        if error == "MemoryError":
            return "memory"
        return "refused" if self.refused else "error"
