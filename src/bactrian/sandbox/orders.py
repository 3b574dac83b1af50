"""What a sandbox is ordered to start, as its far side needs it on this computer, in a container and elsewhere.

The side that asks trusts nothing that it reads: a program may have taken over the far side.
"""

# What is read may be forged, so its parts are of any type.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import fcntl
import functools
import marshal
import os
import secrets
import select
import signal
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from math import ceil
from pathlib import Path
from typing import Any, cast

from bactrian.errors import BactrianError, InputError
from bactrian.sandbox.inside.values import Unsupported, pack_bytes, unpack_bytes, unpack_frame
from bactrian.sandbox.payload import build_command, load_calls, load_worker
from bactrian.sandbox.scratch import remove_folder
from bactrian.sandbox.supervisor import read_frame, refuse_start, run_sandbox
from bactrian.sandbox.tiers import Artefact, ExitReport, Limits, Tier, find_view

_PREFIX = "bactrian-sandbox-"
_END = 10  # seconds for the end of a sandbox whose asker is gone
_DEVICES = ("/dev/zero", "/dev/random", "/dev/urandom")


@dataclass(frozen=True, slots=True)
class ProcessOrder:
    """What to start, and where."""

    tier: Tier
    limits: Limits = field(default_factory=Limits)
    # Files to put into the scratch folder, by their relative names.
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    packages: bool = False  # True to show the packages of this environment
    command: tuple[str, ...] = ()  # A program of the system to run; empty for Python
    wall: float = 0.0  # seconds until the supervisor ends the process; 0 for no limit


def resolve_order(order: ProcessOrder, temporary: str) -> dict[str, object]:
    """Return the order with all that the supervisor and the process inside need to know of this computer.

    Args:
        order: What to start.
        temporary: The scratch folder on this computer; empty if the sandbox mounts its own.

    Raises:
        InputError: the tier cannot carry out the order, or a file's name leads out of the scratch folder.
    """
    tier, limits = order.tier, order.limits
    if (limits.processes > 1 or order.command) and not tier.limits_processes:
        raise InputError(
            f"Tier {tier.name} cannot contain several processes.",
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
    view = find_view(packages=order.packages, programs=bool(order.command))
    scratch, code = tier.scratch or temporary, load_worker()
    # One thread in each library of linear algebra: their buffers count against the address space.
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    both = {
        "calls": load_calls(),
        "contain": tier.name != "unsafe",
        "disk": limits.disk,
        "files_limit": limits.disk_files,
    }
    # Those that count against the limit before the program begins.
    tasks = 2 if tier.limits_processes or os.geteuid() == 0 else _count_own_tasks()
    worker = {
        **both,
        "scratch": scratch,
        "mount": bool(tier.scratch),
        "reads": [*view.reads, *_DEVICES],
        "lists": list(view.lists),
        "packages": list(view.packages),
        "files": dict(order.files),
        "command": bool(order.command),
        "processes": limits.processes > 1,
        # The kernel counts this one by ticks, which a busy machine makes too many: a second line of defence.
        "cpu": 2 * ceil(limits.cpu) + 1,
        "memory": limits.memory,
        "tasks": tasks + limits.processes + limits.threads,
        "open_files": 256,
    }
    return {
        **both,
        "tier": tier.name,
        "argv": tier.wrap(build_command(view.interpreter, code), view),
        "keep": [code],
        "mounts": dict(view.mounts),
        "wall": order.wall,
        "cpu": limits.cpu,
        "memory": limits.memory,
        "several": limits.processes > 1 or bool(order.command) or tier.name == "unsafe",
        "answer": limits.answer,
        "measure": temporary,
        "environment": {
            "LANG": "C.UTF-8",
            "HOME": scratch,
            "TMPDIR": scratch,
            "PATH": "/usr/bin:/bin",
            **threads,
        },
        "worker": marshal.dumps(worker),
    }


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


@contextmanager
def make_scratch(tier: Tier) -> Generator[str]:
    """Provide a scratch folder for ``tier``; an empty name if the sandbox mounts its own."""
    if tier.scratch:
        yield ""
        return
    _sweep_scratch()
    with _lock_folder(tempfile.mkdtemp(prefix=".bactrian-")) as locked:
        # Under this name, a folder that nobody has locked was left by a process that is gone.
        folder = str(Path(locked).with_name(f"{_PREFIX}{secrets.token_hex(8)}"))
        Path(locked).rename(folder)
        try:
            yield folder
        finally:
            remove_folder(folder)


@functools.cache
def _sweep_scratch() -> None:
    """Remove the folders of processes that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}{'[0-9a-f]' * 16}"):
        with suppress(OSError), _lock_folder(str(path)):
            if path.stat().st_uid == os.geteuid():
                remove_folder(str(path))


@contextmanager
def _lock_folder(path: str) -> Generator[str]:
    """Hold the lock of a folder.

    Raises:
        OSError: another process has it.
    """
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield path
    finally:
        os.close(handle)


def provide_sandbox(tiers: Sequence[Tier]) -> None:
    """Serve one sandbox through standard input and output: the first of ``tiers`` that works here."""
    body, why = read_frame(), ""
    for tier in tiers:
        try:
            with make_scratch(tier) as temporary:
                why = _supervise_apart(resolve_order(read_order(unpack_frame(body), tier), temporary))
        except (BactrianError, Unsupported) as error:
            why = error.what if isinstance(error, BactrianError) else str(error)
        if not why:
            return
    refuse_start(why)


def _supervise_apart(order: dict[str, object]) -> str:
    """Run the sandbox in a process of its own, which may give up root. Return why it did not start; else nothing."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, run_sandbox(order).encode()[:1000])
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        if not _wait_for_end(reading):
            os.kill(child, signal.SIGKILL)
        why = pipe.read().decode("utf-8", "replace")
    os.waitpid(child, 0)
    return why


def _wait_for_end(reading: int) -> bool:
    """Wait for the end of the supervisor. Return False if it does not end although the side that asks is gone.

    In a container without Landlock, a program can stop its supervisor, but not the first process.
    """
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    poll.register(0, 0)  # Only to learn that the other side has closed it
    if reading in dict(poll.poll()):
        return True
    poll.unregister(0)
    return bool(poll.poll(1000 * _END))


VERSION = 1


def write_order(order: ProcessOrder) -> dict[str, object]:
    """Return the first message: what to start."""
    return {
        "version": VERSION,
        "limits": asdict(order.limits),
        "files": {name: pack_bytes(content) for name, content in order.files.items()},
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
            {name: unpack_bytes(text) for name, text in message["files"].items()},
            bool(message["packages"]),
            tuple(map(str, message["command"])),
            float(message["wall"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unsupported(f"an order that cannot be read: {error}") from error


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


def read_file(content: object) -> Artefact:
    """Return a file of the scratch folder.

    Raises:
        Unsupported: the content is not a file.
    """
    match content:
        case {"name": str(name), "size": int(size), "content": None}:
            return Artefact(name, size, None)
        case {"name": str(name), "size": int(size), "content": str(text)}:
            return Artefact(name, size, unpack_bytes(text))
        case _:
            raise Unsupported("garbled file")
