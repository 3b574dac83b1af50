"""The process between a program of ours and a sandbox: starts it, watches it, ends it and reaps what it leaves.

It runs without the package (see ``payload.py``), in a process of its own with one thread, for two reasons: the
kernel ties "die with your parent" to the parent's thread, and a parent that is killed can clean up nothing.

It starts with each sandbox, so it imports little: ``signal`` and ``array`` would take as long as the interpreter.
"""

from __future__ import annotations

import _socket
import ctypes
import fcntl
import marshal
import os
import select
import stat
import struct
import sys
import time

from bactrian.sandbox.inside.syscalls import ATTRIBUTES, CHECKED, ORDINARY, PROCESSES, REFUSED, read_numbers

_RECEIVE, _ANSWER = 0xC0502100, 0xC0182101
"""Requests of a seccomp listener: SECCOMP_IOCTL_NOTIF_RECV and _SEND."""
_CALLS = 2000
"""Most refused calls; a program that makes more is ended."""
_EPERM, _ENOSYS = 1, 38
_TICK = 0.1
"""Seconds between looks at the parent and at the size of the scratch folder."""
_KILL, _BROKEN_PIPE = 9, 13
"""SIGKILL and SIGPIPE."""
_NEWNS, _BIND, _REC, _SLAVE = 0x20000, 0x1000, 0x4000, 0x80000


class _Watch:
    """Watches one sandbox until it ends or must end."""

    def __init__(self, order: dict[str, object], control: _socket.socket, guard: _socket.socket) -> None:
        self._order = order
        self._control = control
        self._guard = guard
        self._parent = os.getppid()
        self._listener = -1
        self._names = _name_calls()
        self._checked = False
        """True once the worker has tried the filter itself, by one call that is refused."""
        self.refused: dict[str, int] = {}
        self.stopped = ""
        """Why the sandbox had to end; empty if it ended by itself."""

    def run(self, child: int) -> None:
        """Watch until ``child`` has ended or ``stopped`` is set."""
        wall = float(self._order["wall"])  # type: ignore[arg-type]
        self._deadline = time.monotonic() + wall if wall else float("inf")
        self._next = 0.0
        ended = os.pidfd_open(child)
        poll = select.poll()
        for handle in (ended, self._control.fileno(), self._guard.fileno()):
            poll.register(handle, select.POLLIN)
        while not self.stopped:
            for handle, event in poll.poll(1000 * _TICK):
                if handle == ended:
                    return
                if handle == self._control.fileno():
                    self.stopped = "asked"
                elif handle == self._guard.fileno():
                    poll.unregister(handle)
                    self._listener = _receive_handle(self._guard)
                    if self._listener >= 0:
                        poll.register(self._listener, select.POLLIN)
                elif event & select.POLLIN:
                    self._answer()
                else:
                    poll.unregister(handle)
            self._look(child)

    def _look(self, child: int) -> None:
        """Set ``stopped`` if a limit is reached, or if the parent is gone."""
        now, order = time.monotonic(), self._order
        if now < self._next:
            return
        self._next = now + _TICK
        folder = str(order["measure"])
        if now > self._deadline:
            self.stopped = "wall"
        elif os.getppid() != self._parent:
            self.stopped = "asked"
        elif sum(self.refused.values()) > _CALLS:
            self.stopped = "calls"
        elif _measure_cpu(child) > order["cpu"]:  # type: ignore[operator]
            self.stopped = "cpu"
        elif folder and _measure_folder(folder) + _measure_deleted(child) > order["disk"]:  # type: ignore[operator]
            self.stopped = "disk"

    def _answer(self) -> None:
        """Refuse a call, and write its name down."""
        request = bytearray(80)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, request)
            number, _pid, _flags, call = struct.unpack_from("QIIi", request)
            name = self._names.get(call)
            error = _ENOSYS if name is None else _EPERM
            known = name or f"call {call}"
            if self._checked:
                self.refused[known] = self.refused.get(known, 0) + 1
            self._checked = True
            fcntl.ioctl(self._listener, _ANSWER, struct.pack("QqiI", number, 0, -error, 0))
        except OSError:
            # The caller was killed while it waited.
            return


def main() -> None:
    """Run the sandbox that the parent orders, and report how it ended."""
    control = _socket.socket(fileno=int(sys.argv[1]))
    guard = _socket.socket(fileno=int(sys.argv[2]))
    for connection in (control, guard):
        os.set_inheritable(connection.fileno(), False)
    size = struct.unpack(">I", _read_exactly(control, 4))[0]
    order: dict[str, object] = marshal.loads(_read_exactly(control, size))  # noqa: S302 - the parent is trusted
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    started = time.monotonic()
    try:
        if os.geteuid() == 0 and order["contain"]:
            _leave_root(libc, order)
        child = _start(libc, order)
    except OSError as error:
        report: dict[str, object] = {"failed": f"{error.strerror or error}"}
    else:
        watch = _Watch(order, control, guard)
        watch.run(child)
        status, cpu, memory = _end(child)
        report = {
            "status": status,
            "stopped": watch.stopped,
            "cpu": cpu,
            "memory": memory,
            "wall": time.monotonic() - started,
            "refused": watch.refused,
        }
    body = marshal.dumps(report)
    try:
        control.sendall(struct.pack(">I", len(body)) + body)
    finally:
        # Even if the parent is gone. An interpreter that takes itself apart is waited for.
        os._exit(0)


def _leave_root(libc: ctypes.CDLL, order: dict[str, object]) -> None:
    """Become a user that owns nothing, to whom the interpreter's files are shown in a mount namespace of this process.

    Raises:
        OSError: root may not do that here, as in many containers.
    """
    paths: list[str] = order["reads"]  # type: ignore[assignment]
    user = (1 << 30) + os.getpid()
    if libc.unshare(_NEWNS) == 0:
        _mount(libc, None, "/", None, _REC | _SLAVE)
        _show_paths(libc, [path for path in paths if os.path.exists(path)])
        if order["measure"]:
            options = f"size={order['disk']},nr_inodes={order['files_limit']},mode=700,uid={user}"
            _mount(libc, "scratch", str(order["measure"]), "tmpfs", 2 | 4, options)
            order["measure"] = ""
    elif order["measure"]:
        os.chown(str(order["measure"]), user, user)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def _show_paths(libc: ctypes.CDLL, paths: list[str]) -> None:
    """Make ``paths`` reachable for every user, instead of the folders that other users may not enter."""
    hidden = {path: closed for path in paths if (closed := _find_closed(path))}
    handles = {path: os.open(path, os.O_PATH) for path in hidden}
    for folder in set(hidden.values()):
        _mount(libc, "cover", folder, "tmpfs", 2 | 4, "mode=755,size=65536")
    for path, handle in handles.items():
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            os.makedirs(path, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.close(os.open(path, os.O_CREAT))
        _mount(libc, f"/proc/self/fd/{handle}", path, None, _BIND | _REC)
        os.close(handle)


def _find_closed(path: str) -> str:
    """Return the first folder on the way to ``path`` that other users may not enter; empty if all are open."""
    parts = path.strip("/").split("/")
    for count in range(1, len(parts)):
        folder = "/" + "/".join(parts[:count])
        if not os.stat(folder).st_mode & 0o001:
            return folder
    return ""


def _mount(
    libc: ctypes.CDLL,
    source: str | None,
    target: str,
    kind: str | None,
    flags: int,
    options: str | None = None,
) -> None:
    encoded = [None if text is None else text.encode() for text in (source, target, kind)]
    if libc.mount(*encoded, flags, options and options.encode()) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"cannot mount {target}: {os.strerror(error)}")


def _start(libc: ctypes.CDLL, order: dict[str, object]) -> int:
    """Start the command in a session of its own, to be killed with this process. Return its process id."""
    command: list[str] = order["argv"]  # type: ignore[assignment]
    keep: list[int] = order["keep"]  # type: ignore[assignment]
    reading, writing = os.pipe()
    mine = os.getpid()
    child = os.fork()
    if child:
        os.close(writing)
        fault = os.read(reading, 1000)
        os.close(reading)
        for handle in keep:
            os.close(handle)
        if fault:
            os.waitpid(child, 0)
            raise OSError(f"cannot start {command[0]}: {fault.decode()}")
        return child
    try:
        libc.prctl(1, _KILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.getppid() != mine:
            os._exit(1)
        os.setsid()
        libc.signal(_BROKEN_PIPE, None)  # to its default
        for handle in keep:
            os.set_inheritable(handle, True)
        os.execve(command[0], command, order["environment"])  # type: ignore[arg-type]  # noqa: S606
    except OSError as error:
        os.write(writing, (error.strerror or "error").encode())
    finally:
        os._exit(127)


def _end(child: int) -> tuple[int, float, int]:
    """Kill and reap everything that is left. Return the child's wait status, CPU seconds and peak memory in bytes."""
    status, cpu, memory = 0, 0.0, 0
    deadline = time.monotonic() + 10
    if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        # The kernel does not add up the CPU time of processes that go down with their namespace.
        cpu = _measure_cpu(child)
        os.kill(child, _KILL)
    while time.monotonic() < deadline:
        try:
            process, code, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if process == 0:
            _kill_children()
            time.sleep(0.001)
            continue
        cpu += usage.ru_utime + usage.ru_stime
        memory = max(memory, usage.ru_maxrss * 1024)
        if process == child:
            status = code
    return status, cpu, memory


def _measure_cpu(process: int) -> float:
    """Return the seconds of CPU time of a process and its living descendants."""
    try:
        with open(f"/proc/{process}/stat") as file:
            # The name, in brackets, may contain anything.
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    ticks = sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK") + sum(_measure_cpu(child) for child in _list_children(process))


def _list_children(process: int) -> list[int]:
    try:
        with open(f"/proc/{process}/task/{process}/children") as file:
            return [int(number) for number in file.read().split()]
    except OSError:
        return []


def _kill_children() -> None:
    """Kill the children of this process: it has adopted those whose parents are gone."""
    for number in _list_children(os.getpid()):
        try:
            os.kill(number, _KILL)
        except OSError:
            continue


def _name_calls() -> dict[int, str]:
    machine = os.uname().machine
    names: dict[int, str] = {}
    for table in (ORDINARY, ATTRIBUTES, PROCESSES, CHECKED, REFUSED):
        names |= {number: name for name, number in read_numbers(table, machine).items()}
    return names


def _receive_handle(guard: _socket.socket) -> int:
    """Return the filter's listener; -1 if the worker has closed its end without sending it."""
    _, messages, _, _ = guard.recvmsg(1, 64)
    guard.close()
    for _, _, content in messages:
        return struct.unpack_from("i", content)[0]
    return -1


def _measure_folder(path: str) -> float:
    """Return the bytes of all files below ``path``, and 4 KiB for each name; infinity if a folder cannot be read.

    A program can make a folder that nobody may list, and one whose path is too long: either would hide its files.
    """
    total = 0
    folders = [path]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    total += 4096
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return float("inf")
    return total


def _measure_deleted(process: int) -> float:
    """Return the bytes of files without a name that a process has open; infinity if it keeps some in a socket.

    A thread may have descriptors of its own.
    """
    sizes: dict[tuple[int, int], int] = {}
    for task in _list_folder(f"/proc/{process}/task"):
        folder = f"/proc/{process}/task/{task}"
        for handle in _list_folder(f"{folder}/fd"):
            try:
                facts = os.stat(f"{folder}/fd/{handle}")
                if stat.S_ISREG(facts.st_mode) and facts.st_nlink == 0:
                    sizes[facts.st_dev, facts.st_ino] = facts.st_blocks * 512
                elif stat.S_ISSOCK(facts.st_mode):
                    with open(f"{folder}/fdinfo/{handle}") as file:
                        if any(line.startswith("scm_fds:") and int(line[8:]) for line in file):
                            return float("inf")
            except OSError:
                # The program has closed it.
                continue
    return sum(sizes.values())


def _list_folder(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _read_exactly(source: _socket.socket, size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = source.recv(size)
        if not part:
            os._exit(1)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
