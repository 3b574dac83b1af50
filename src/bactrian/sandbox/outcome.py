"""What a sandboxed program may use, and how it ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from math import isfinite
from typing import Any, Literal

from bactrian.errors import InputError

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What a sandboxed program may use.

    Raises:
        InputError: a value is out of range.
    """

    cpu: float = 10.0
    """Seconds of CPU time of all processes and threads together, with the start of the interpreter."""
    wall: float = 60.0
    """Seconds from start to end, for programs that wait. Generous, so that a busy machine changes no result."""
    memory: int = 1024 * MIB
    """Bytes of address space of each process, and of memory of all together; pages that they share count once."""
    processes: int = 1
    """Processes at once. More than 1 needs bubblewrap."""
    threads: int = 32
    """Threads at once, in addition to the processes."""
    disk: int = 64 * MIB
    """Bytes in the scratch folder."""
    disk_files: int = 4096
    """Files in the scratch folder."""
    output: int = MIB
    """Bytes of standard output and standard error together."""
    answer: int = 8 * MIB
    """Bytes of one value that a sandboxed function returns."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if not (isfinite(value) and value > 0):
                raise InputError(
                    f"The limit {limit.name} must be more than 0, not {value}.",
                    where="the limits of the sandbox",
                    next="Give a positive number.",
                )
        if self.memory < 128 * MIB:
            raise InputError(
                f"{self.memory:,} bytes of memory are too few for an interpreter.",
                where="the limits of the sandbox",
                next="Allow at least 128 MiB.",
            )


# ``ok``: exit code 0. ``error``: another exit code. ``time``, ``memory``, ``output`` and ``disk``: that
# limit was reached. ``killed``: ended by a signal. ``refused``: failed after calls that the sandbox
# refused.
OutcomeEnding = Literal["ok", "error", "time", "memory", "output", "disk", "killed", "refused"]


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
        content = asdict(self)
        del content["files"]
        return content


@dataclass(frozen=True, slots=True)
class Artefact:
    """A regular file in a scratch folder."""

    name: str  # relative to the folder, with ``/`` between its parts. Not safe as a path of this computer.
    size: int
    content: bytes | None  # None if it was not asked for, or is too large


# How a program ended that the supervisor ended, by its reason.
_STOPPED: dict[str, OutcomeEnding] = {
    "wall": "time", "cpu": "time", "memory": "memory", "disk": "disk", "calls": "refused", "asked": "killed",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ExitReport:
    """What the supervisor says of a sandbox that has ended."""

    status: int  # As ``os.wait`` returns it
    stopped: str  # why the supervisor ended it; empty if it ended by itself
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
        if self.stopped in _STOPPED:
            return _STOPPED[self.stopped]
        if name in ("SIGKILL", "SIGXCPU") and self.cpu >= limits.cpu:
            return "time"
        if name:
            return "killed"
        if code == 0:
            return "ok"
        if error == "MemoryError":
            return "memory"
        return "refused" if self.refused else "error"
