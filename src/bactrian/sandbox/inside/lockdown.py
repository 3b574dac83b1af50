"""Locks down the current process: limits, capabilities, files (Landlock) and system calls (seccomp)."""

from __future__ import annotations

import ctypes
import os
import resource
import struct
from collections.abc import Iterable, Mapping, Sequence

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # System calls, with the same numbers on all architectures

_EXECUTE, _WRITE, _READ, _LIST = 1, 2, 4, 8
_REMOVE_FOLDER, _REMOVE_FILE, _MAKE_FOLDER, _MAKE_FILE = 1 << 4, 1 << 5, 1 << 7, 1 << 8
_MAKE_FIFO, _MAKE_LINK, _MOVE, _TRUNCATE = 1 << 10, 1 << 12, 1 << 13, 1 << 14
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}  # number of file rights by version; 16 from version 5
# All that a scratch folder is for: no devices and no sockets.
_USE = (
    _WRITE | _READ | _LIST | _REMOVE_FOLDER | _REMOVE_FILE | _MAKE_FOLDER | _MAKE_FILE | _MAKE_FIFO
    | _MAKE_LINK | _MOVE | _TRUNCATE
)  # fmt: skip
NEEDED = 3  # Earlier versions do not guard truncate(2)


def find_version() -> int:
    """Return the version of the kernel's Landlock; 0 if it lacks it."""
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, libc.syscall(_CREATE, None, 0, 1))


def restrict_files(
    reads: Sequence[str], writes: Sequence[str], lists: Sequence[str], *, execute: bool
) -> None:
    """Allow this process to read below ``reads`` and to read and write below ``writes``, and nothing else.

    Args:
        reads: Files and folders. Those that do not exist are left out.
        writes: Files and folders.
        lists: Folders of which only the names may be read: an interpreter lists where it looks for a module.
        execute: True to allow programs below ``reads``.

    Raises:
        OSError: the kernel lacks Landlock, or refuses the rules.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    version = find_version()
    if version == 0:
        raise OSError("The kernel has no Landlock.")
    handled = (1 << _RIGHTS.get(version, 16)) - 1
    # From version 4 on TCP is guarded, from version 6 on signals and abstract sockets of others.
    fields = (handled, 3, 3)[: 1 if version < 4 else 2 if version < 6 else 3]
    attributes = struct.pack(f"{len(fields)}Q", *fields)
    rules = _call(libc, _CREATE, attributes, len(attributes), 0)
    try:
        read = _READ | _LIST | (_EXECUTE if execute else 0)
        for paths, rights in ((reads, read), (writes, _USE), (lists, _LIST)):
            for path in paths:
                _allow(libc, rules, path, rights & handled)
        libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
        _call(libc, _RESTRICT, rules, 0)
    finally:
        os.close(rules)


def _allow(libc: ctypes.CDLL, rules: int, path: str, rights: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not os.path.isdir(path):
            rights &= _EXECUTE | _WRITE | _READ | _TRUNCATE
        _call(libc, _ADD, rules, 1, struct.pack("=Qi", rights, handle), 0)
    finally:
        os.close(handle)


def _call(libc: ctypes.CDLL, number: int, *arguments: object) -> int:
    result = libc.syscall(number, *arguments)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"Landlock refuses: {os.strerror(error)}")
    return result


_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH values
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_X32 = 0x40000000  # calls of the x32 ABI have this bit; the filter allows none of them

_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_ASK = 0x7FC00000  # the supervisor receives the call, and answers it with an error
_ENOSYS = 0x00050000 | 38

_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
# Offsets in ``struct seccomp_data``; the arguments begin at 16, each with its low word first.
_NUMBER, _MACHINE = 0, 4

_THREAD = 0x00010000
_NEW_NAMESPACES = 0x7E020080  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET and NEWTIME
_PRCTL = (15, 16, 0x53564D41)  # PR_SET_NAME, PR_GET_NAME and PR_SET_VMA
# TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX and FIOCLEX.
_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# F_DUPFD to F_SETLKW, locks of open files, F_DUPFD_CLOEXEC, F_GETPIPE_SZ and seals. Not F_SETOWN: with it
# the kernel sends signals to other processes.
_FCNTL = (*range(8), 36, 37, 38, 1030, 1032, 1033, 1034)
# RLIMIT_CORE: a program that lowers it to 0 lets the kernel start the system's handler of core dumps again.
_CORE = 4
# Calls that tell which processes exist. The first argument is the process.
_ABOUT_PROCESSES = (
    "getpgid",
    "getsid",
    "sched_getaffinity",
    "sched_getparam",
    "sched_getscheduler",
    "get_robust_list",
)
# SOCK_STREAM with its flags. A datagram socket could send to any address, even if it is one of a pair.
_STREAMS = (1, 1 | 0o2000000, 1 | 0o4000, 1 | 0o2004000)


# Numbers of system calls by name, of each table of ``syscalls.toml``; empty for an unknown architecture.
Calls = Mapping[str, Mapping[str, int]]


def build_filter(machine: str, pid: int, calls: Calls, *, processes: bool, attributes: bool) -> bytes:
    """Return the BPF program for ``machine`` (``x86_64`` or ``aarch64``).

    Args:
        machine: As ``os.uname`` names it.
        pid: The process that may signal itself.
        calls: The calls of this machine.
        processes: True to allow new processes and programs. Only for a sandbox with a process namespace of its own.
        attributes: True to allow calls that change modes and times of files by path.
    """
    ordinary, checked = dict(calls["ordinary"]), calls["checked"]
    if attributes:
        ordinary |= calls["attributes"]
    if processes:
        ordinary |= calls["processes"]
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
    itself = None if processes else (pid,)
    program += _check(checked["kill"], 0, itself)
    program += _check(checked["tgkill"], 0, itself)
    program += _check(checked["prlimit64"], 0, (0, pid), unless=(1, _CORE))
    program += _check(checked["setrlimit"], 0, [which for which in range(16) if which != _CORE])
    for name in _ABOUT_PROCESSES:
        program += _check(checked[name], 0, itself and (0, *itself))
    program += _check(checked["getpriority"], 1, itself and (0, *itself))
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


_CAPABILITIES = 64
_MOUNT_FLAGS = 0x2 | 0x4  # MS_NOSUID and MS_NODEV
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


def refuse_calls(calls: Calls, *, processes: bool, attributes: bool) -> int:
    """Install the seccomp filter and return its listener.

    Raises:
        OSError: the kernel refuses it, or the architecture is unknown.
    """
    machine = os.uname().machine
    try:
        program = build_filter(machine, os.getpid(), calls, processes=processes, attributes=attributes)
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
