"""The limits of a sandbox."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import isfinite

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
    """Bytes of address space of each process."""
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
        for field in fields(self):
            value = getattr(self, field.name)
            if not (isfinite(value) and value > 0):
                raise InputError(
                    f"The limit {field.name} must be more than 0, not {value}.",
                    where="the limits of the sandbox",
                    next="Give a positive number.",
                )
        if self.memory < 128 * MIB:
            raise InputError(
                f"{self.memory:,} bytes of memory are too few for an interpreter.",
                where="the limits of the sandbox",
                next="Allow at least 128 MiB.",
            )
