"""The orders to the processes of a sandbox when it starts, and the frames between the two sides of a remote one.

A frame is JSON after its length in four bytes (docs/sandbox.md). The side that asks trusts nothing that it reads: a
program may have taken over the other side.
"""

# What is read may be forged, so its parts are of any type.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import base64
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from math import ceil
from typing import Any, cast

from bactrian.errors import InputError
from bactrian.sandbox.artefacts import Artefact
from bactrian.sandbox.inside.values import Unsupported
from bactrian.sandbox.outcome import ExitReport, Limits
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
    order: ProcessOrder, view: FileView, temporary: str, keep: list[int], inside: list[str]
) -> dict[str, object]:
    """Return the content of the supervisor's message.

    Args:
        order: What to start.
        view: What it sees of the file system.
        temporary: The scratch folder on this computer; empty if the sandbox mounts its own.
        keep: Descriptors of the process inside.
        inside: The command to run in the sandbox.

    Raises:
        InputError: a program that the tier needs is not installed.
    """
    return {
        "argv": order.tier.wrap(inside, view),
        "reads": list(view.reads),
        "keep": keep,
        "wall": order.wall,
        "cpu": order.limits.cpu,
        "disk": order.limits.disk,
        "files_limit": order.limits.disk_files,
        "measure": temporary,
        "contain": order.tier.name != "unsafe",
        "environment": _build_environment(order.tier.scratch or temporary),
    }


def build_worker_order(order: ProcessOrder, view: FileView, temporary: str) -> dict[str, object]:
    """Return the content of the first message to the process inside."""
    limits = order.limits
    return {
        "scratch": order.tier.scratch or temporary,
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


VERSION = 1
_HEAD = 4


class FrameReader:
    """Cuts a stream of bytes into frames of at most ``largest`` bytes."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._received = bytearray()

    def add(self, data: bytes) -> Iterator[bytes]:
        """Add bytes that have arrived, and yield the frames that are complete, without their lengths.

        Raises:
            Unsupported: a frame is too large.
        """
        self._received += data
        while len(self._received) >= _HEAD:
            size = struct.unpack_from(">I", self._received)[0]
            if size > self._largest:
                self._received.clear()
                raise Unsupported(f"a message of {size:,} bytes")
            if len(self._received) < _HEAD + size:
                return
            body = bytes(self._received[_HEAD : _HEAD + size])
            del self._received[: _HEAD + size]
            yield body


def write_order(order: ProcessOrder) -> dict[str, object]:
    """Return the first message: what to start."""
    return {
        "version": VERSION,
        "limits": asdict(order.limits),
        "files": {name: write_bytes(content) for name, content in order.files.items()},
        "packages": order.packages,
        "command": list(order.command),
        "wall": order.wall,
    }


def read_order(message: Mapping[str, Any], tier: Tier) -> ProcessOrder:
    """Return the order of a first message, for ``tier``.

    Raises:
        Unsupported: it is not such a message.
        InputError: a limit is out of range.
    """
    if message.get("version") != VERSION:
        raise Unsupported(f"version {message.get('version')} of the protocol; this side speaks {VERSION}")
    try:
        return ProcessOrder(
            tier,
            Limits(**message["limits"]),
            {name: read_bytes(text) for name, text in message["files"].items()},
            bool(message["packages"]),
            tuple(map(str, message["command"])),
            float(message["wall"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unsupported(f"an order that cannot be read: {error}") from error


def write_report(report: ExitReport) -> dict[str, object]:
    """Return how a sandbox ended, as JSON content."""
    return {**asdict(report), "refused": dict(report.refused)}


def read_report(content: object) -> ExitReport:
    """Return how a sandbox ended, as reported by the other side.

    Raises:
        Unsupported: the content is not a report.
    """
    match content:
        case {
            "status": int(status),
            "stopped": str(stopped),
            "cpu": int() | float() as cpu,
            "memory": int(memory),
            "wall": int() | float() as wall,
            "refused": dict() as refused,
        }:
            pass
        case _:
            raise Unsupported("garbled report")
    try:
        os.waitstatus_to_exitcode(status)
        calls = {str(name)[:60]: int(count) for name, count in cast("dict[object, Any]", refused).items()}
    except (TypeError, ValueError, OverflowError) as error:
        raise Unsupported("garbled report") from error
    return ExitReport(status, stopped, float(cpu), memory, float(wall), calls)


def write_file(artefact: Artefact) -> dict[str, object]:
    """Return a file of the scratch folder as JSON content."""
    content = None if artefact.content is None else write_bytes(artefact.content)
    return {"name": artefact.name, "size": artefact.size, "content": content}


def read_file(content: object) -> Artefact:
    """Return a file of the scratch folder.

    Raises:
        Unsupported: the content is not a file.
    """
    match content:
        case {"name": str(name), "size": int(size), "content": None}:
            return Artefact(name, size, None)
        case {"name": str(name), "size": int(size), "content": str(text)}:
            return Artefact(name, size, read_bytes(text))
        case _:
            raise Unsupported("garbled file")


def write_bytes(data: bytes) -> str:
    """Return bytes as text."""
    return base64.b64encode(data).decode()


def read_bytes(text: object) -> bytes:
    """Return the bytes that ``text`` stands for.

    Raises:
        Unsupported: it is not such a text.
    """
    if not isinstance(text, str):
        raise Unsupported("garbled bytes")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise Unsupported("garbled bytes") from error
