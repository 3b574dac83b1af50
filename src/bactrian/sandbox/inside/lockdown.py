"""Locks down the current process: limits, capabilities, files and system calls."""

from __future__ import annotations

import ctypes
import os
import resource
import struct

from bactrian.sandbox.inside.landlock import restrict_files
from bactrian.sandbox.inside.seccomp import build_filter, install_filter

_CAPABILITIES = 64
_MOUNT_FLAGS = 0x2 | 0x4
"""MS_NOSUID and MS_NODEV."""
_CAPSET = {"x86_64": 126, "aarch64": 91}


def mount_scratch(path: str, size: int, files: int) -> None:
    """Mount an empty file system of ``size`` bytes and ``files`` files on ``path``.

    Raises:
        OSError: the process may not mount.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"size={size},nr_inodes={files},mode=700".encode()
    if libc.mount(b"scratch", path.encode(), b"tmpfs", _MOUNT_FLAGS, options) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"cannot mount the scratch folder: {os.strerror(error)}")


def drop_capabilities() -> None:
    """Give up every capability for good.

    Raises:
        OSError: the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(47, 4, 0, 0, 0)  # PR_CAP_AMBIENT, clear all
    for number in range(_CAPABILITIES):
        libc.prctl(24, number, 0, 0, 0)  # PR_CAPBSET_DROP
    header = struct.pack("Ii", 0x20080522, 0)
    if libc.syscall(_CAPSET[os.uname().machine], header, bytes(24)) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"cannot drop capabilities: {os.strerror(error)}")


def limit_resources(order: dict[str, object]) -> None:
    """Set the limits of this process. ``order`` has ``cpu``, ``memory``, ``disk``, ``tasks`` and ``open_files``."""
    cpu, memory, disk = order["cpu"], order["memory"], order["disk"]
    limits = (
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_DATA, memory),
        (resource.RLIMIT_FSIZE, disk),
        (resource.RLIMIT_NPROC, order["tasks"]),
        (resource.RLIMIT_NOFILE, order["open_files"]),
        # With 1, a core dump is neither written nor handed to a program of the system; with 0 it is handed over.
        (resource.RLIMIT_CORE, 1),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_SIGPENDING, 256),
    )
    for which, value in limits:
        assert isinstance(value, int)
        _, hard = resource.getrlimit(which)
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (most, most))


def hide_memory() -> None:
    """Refuse core dumps and other processes' looks into this one."""
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE


def refuse_calls(*, processes: bool, attributes: bool) -> int:
    """Install the seccomp filter and return its listener.

    Raises:
        OSError: the kernel refuses it, or the architecture is unknown.
    """
    machine = os.uname().machine
    try:
        program = build_filter(machine, os.getpid(), processes=processes, attributes=attributes)
    except KeyError:
        raise OSError(f"There is no filter for {machine} machines.") from None
    return install_filter(program)


def check_lockdown(read: str) -> None:
    """Try what a sandboxed program must not do.

    Raises:
        OSError: the sandbox does not contain the program.
    """
    import _socket

    try:
        _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    except OSError:
        pass
    else:
        raise OSError("The sandbox does not contain the program: it can open sockets.")
    try:
        os.listdir(read)
    except OSError:
        return
    raise OSError(f"The sandbox does not contain the program: it can read {read}.")


__all__ = [
    "check_lockdown",
    "drop_capabilities",
    "hide_memory",
    "limit_resources",
    "mount_scratch",
    "refuse_calls",
    "restrict_files",
]
