"""The orders to the supervisor and to the process inside when a sandbox starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from bactrian.errors import InputError
from bactrian.sandbox.limits import Limits
from bactrian.sandbox.tiers import FileView, Tier

_DEVICES = ("/dev/zero", "/dev/random", "/dev/urandom")


@dataclass(frozen=True, slots=True)
class ProcessOrder:
    """What to start, and where."""

    tier: Tier
    limits: Limits = field(default_factory=Limits)
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Files to put into the scratch folder, by their relative names."""
    packages: bool = False
    """True to show the packages of this environment."""
    command: tuple[str, ...] = ()
    """A program of the system to run; empty for Python."""
    wall: float = 0.0
    """Seconds until the supervisor ends the process; 0 for no limit."""


@dataclass(frozen=True, slots=True)
class Handles:
    """What a new sandbox gets from this process."""

    keep: list[int]
    """Descriptors of the process inside."""
    scratch: str
    """Its scratch folder, as it sees it."""
    temporary: str
    """The scratch folder on this computer; empty if the sandbox mounts its own."""


def check_order(order: ProcessOrder) -> None:
    """Check that the tier can carry out the order.

    Raises:
        InputError: it cannot, or a file's name leads out of the scratch folder.
    """
    if (order.limits.processes > 1 or order.command) and not order.tier.limits_processes:
        raise InputError(
            f"Tier {order.tier.name} cannot contain several processes.",
            where="the limits of the sandbox",
            next="Install bubblewrap, or allow one process only.",
        )
    for name in order.files:
        parts = name.split("/")
        if name.startswith("/") or "\0" in name or any(part in ("", ".", "..") for part in parts):
            raise InputError(
                "This is not the name of a file below the scratch folder.",
                where=repr(name),
                next="Use a relative name without '..'.",
            )


def build_supervisor_order(
    order: ProcessOrder, view: FileView, handles: Handles, inside: list[str]
) -> dict[str, object]:
    """Return the content of the supervisor's message. ``inside`` is the command to run in the sandbox.

    Raises:
        InputError: a program that the tier needs is not installed.
    """
    return {
        "argv": order.tier.wrap(inside, view),
        "reads": list(view.reads),
        "keep": handles.keep,
        "wall": order.wall,
        "cpu": order.limits.cpu,
        "disk": order.limits.disk,
        "files_limit": order.limits.disk_files,
        "measure": handles.temporary,
        "contain": order.tier.name != "unsafe",
        "environment": _build_environment(handles.scratch),
    }


def build_worker_order(order: ProcessOrder, view: FileView, handles: Handles) -> dict[str, object]:
    """Return the content of the first message to the process inside."""
    limits = order.limits
    return {
        "scratch": handles.scratch,
        "mount": bool(order.tier.scratch),
        "contain": order.tier.name != "unsafe",
        "reads": [*view.reads, *_DEVICES],
        "packages": list(view.packages),
        "files": dict(order.files),
        "command": bool(order.command),
        "processes": limits.processes > 1,
        # The kernel counts this one by ticks, which a busy machine makes too many: a second line of defence.
        "cpu": 2 * ceil(limits.cpu) + 1,
        "memory": limits.memory,
        "disk": limits.disk,
        "files_limit": limits.disk_files,
        "tasks": _count_tasks(order.tier) + limits.processes + limits.threads,
        "open_files": 256,
    }


def _count_tasks(tier: Tier) -> int:
    """Return the tasks that count against the limit before the program begins."""
    return 2 if tier.limits_processes or os.geteuid() == 0 else _count_own_tasks()


def _build_environment(scratch: str) -> dict[str, str]:
    # One thread in each library of linear algebra: their buffers count against the address space.
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {"LANG": "C.UTF-8", "HOME": scratch, "TMPDIR": scratch, "PATH": "/usr/bin:/bin", **threads}


def _count_own_tasks() -> int:
    """Return the number of tasks of this user on the computer."""
    user, total = os.geteuid(), 0
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid == user:  # noqa: PTH116
                    total += len(os.listdir(f"/proc/{name}/task"))  # noqa: PTH208
            except OSError:
                continue
    return total
