"""The seccomp filter: which system calls a sandboxed process may make."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

from bactrian.sandbox.inside.syscalls import ATTRIBUTES, CHECKED, ORDINARY, PROCESSES, read_numbers

_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""AUDIT_ARCH values."""
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_X32 = 0x40000000
"""Calls of the x32 ABI have this bit; the filter allows none of them."""

_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_ASK = 0x7FC00000
"""The supervisor receives the call, and answers it with an error."""
_ENOSYS = 0x00050000 | 38

_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_NUMBER, _MACHINE = 0, 4
"""Offsets in ``struct seccomp_data``; the arguments begin at 16, each with its low word first."""

_THREAD = 0x00010000
_NEW_NAMESPACES = 0x7E020080
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET and NEWTIME."""
_PRCTL = (15, 16, 0x53564D41)
"""PR_SET_NAME, PR_GET_NAME and PR_SET_VMA."""
_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX and FIOCLEX."""
_FCNTL = (*range(8), 36, 37, 38, 1030, 1032, 1033, 1034)
"""F_DUPFD to F_SETLKW, locks of open files, F_DUPFD_CLOEXEC, F_GETPIPE_SZ and seals. Not F_SETOWN: with it the kernel
sends signals to other processes."""
_CORE = 4
"""RLIMIT_CORE: a program that lowers it to 0 lets the kernel start the system's handler of core dumps again."""
_ABOUT_PROCESSES = (
    "getpgid",
    "getsid",
    "sched_getaffinity",
    "sched_getparam",
    "sched_getscheduler",
    "get_robust_list",
)
"""Calls that tell which processes exist. The first argument is the process."""
_STREAMS = (1, 1 | 0o2000000, 1 | 0o4000, 1 | 0o2004000)
"""SOCK_STREAM with its flags. A datagram socket could send to any address, even if it is one of a pair."""


def build_filter(machine: str, pid: int, *, processes: bool, attributes: bool) -> bytes:
    """Return the BPF program for ``machine`` (``x86_64`` or ``aarch64``).

    Args:
        machine: As ``os.uname`` names it.
        pid: The process that may signal itself.
        processes: True to allow new processes and programs. Only for a sandbox with a process namespace of its own.
        attributes: True to allow calls that change modes and times of files by path.
    """
    ordinary = read_numbers(ORDINARY, machine)
    if attributes:
        ordinary |= read_numbers(ATTRIBUTES, machine)
    if processes:
        ordinary |= read_numbers(PROCESSES, machine)
    checked = read_numbers(CHECKED, machine)
    program = [
        _step(_LOAD, _MACHINE),
        _step(_EQUAL, _ARCHITECTURE[machine], 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
        _step(_AT_LEAST, _X32, 0, 1),
        _step(_RETURN, _KILL),
    ]
    for number in ordinary.values():
        program += [_step(_EQUAL, number, 0, 1), _step(_RETURN, _ALLOW)]
    own = None if processes else (pid,)
    program += _check(checked["kill"], 0, own)
    program += _check(checked["tgkill"], 0, own)
    program += _check(checked["prlimit64"], 0, (0, pid), unless=(1, _CORE))
    program += _check(checked["setrlimit"], 0, [which for which in range(16) if which != _CORE])
    for name in _ABOUT_PROCESSES:
        program += _check(checked[name], 0, own and (0, *own))
    program += _check(checked["getpriority"], 1, own and (0, *own))
    program += _check(checked["prctl"], 0, _PRCTL)
    program += _check(checked["ioctl"], 1, _IOCTL)
    program += _check(checked["fcntl"], 1, _FCNTL)
    program += _check(checked["socketpair"], 1, _STREAMS)
    # glibc falls back to clone, whose flags a filter can read.
    program += [_step(_EQUAL, checked["clone3"], 0, 1), _step(_RETURN, _ENOSYS)]
    program += _check_clone(checked["clone"], processes=processes)
    program.append(_step(_RETURN, _ASK))
    return b"".join(program)


def install_filter(program: bytes) -> int:
    """Install the filter for this process and return its listener, through which refused calls are answered.

    Raises:
        OSError: the kernel refuses it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    steps = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(steps))
    listener = libc.syscall(_SECCOMP[os.uname().machine], 1, 8, header)  # SET_MODE_FILTER, NEW_LISTENER
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp refuses the filter")
    return listener


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def _check(
    number: int, argument: int, values: Iterable[int] | None, unless: tuple[int, int] | None = None
) -> list[bytes]:
    """Return the steps that allow call ``number`` if an argument is one of ``values``; None allows every value.

    ``unless`` is another argument with the value for which the call is refused.
    """
    if values is None:
        return [_step(_EQUAL, number, 0, 1), _step(_RETURN, _ALLOW)]
    steps: list[bytes] = []
    if unless is not None:
        steps += [_step(_LOAD, 16 + 8 * unless[0]), _step(_EQUAL, unless[1], 0, 1), _step(_RETURN, _ASK)]
    steps.append(_step(_LOAD, 16 + 8 * argument))
    for value in values:
        steps += [_step(_EQUAL, value, 0, 1), _step(_RETURN, _ALLOW)]
    steps.append(_step(_RETURN, _ASK))
    return [_step(_EQUAL, number, 0, len(steps)), *steps]


def _check_clone(number: int, *, processes: bool) -> list[bytes]:
    """Return the steps that allow threads, and processes if asked, but no new namespaces."""
    steps = [
        _step(_LOAD, 16),
        _step(_AND, _NEW_NAMESPACES),
        _step(_EQUAL, 0, 1, 0),
        _step(_RETURN, _ASK),
        _step(_LOAD, 16),
        _step(_AND, _THREAD),
        _step(_EQUAL, _THREAD, 0, 1),
        _step(_RETURN, _ALLOW),
        _step(_RETURN, _ALLOW if processes else _ASK),
    ]
    return [_step(_EQUAL, number, 0, len(steps)), *steps]
