"""The far side of every sandbox: starts it, watches it, passes on what it says, ends it and reaps what it leaves.

It speaks frames over its standard input and output (docs/sandbox.md), and is a process of its own with one thread, for
two reasons: the kernel ties "die with your parent" to the parent's thread, and a parent that is killed can clean up
nothing. On this computer it runs without the package (see ``payload.py``) and starts with each sandbox, so it imports
little: ``signal`` and ``array`` would take as long as the interpreter.
"""

from __future__ import annotations

import _socket
import ctypes
import fcntl
import marshal
import os
import select
import struct
import time

from bactrian.sandbox.inside.values import (
    FrameReader,
    Unsupported,
    pack_bytes,
    pack_frame,
    unpack_forged,
    unpack_frame,
)
from bactrian.sandbox.measures import CpuClock, list_children, measure_deleted, measure_memory
from bactrian.sandbox.scratch import collect_files, measure_folder, remove_folder

# Requests of a seccomp listener: SECCOMP_IOCTL_NOTIF_RECV and _SEND.
_RECEIVE, _ANSWER = 0xC0502100, 0xC0182101
_CALLS = 2000  # most refused calls; a program that makes more is ended
_EPERM, _ENOSYS = 1, 38
_TICK = 0.1  # seconds between looks at the parent and at the size of the scratch folder
_KILL, _BROKEN_PIPE = 9, 13  # SIGKILL and SIGPIPE
_NEWNS, _BIND, _REC, _SLAVE = 0x20000, 0x1000, 0x4000, 0x80000
# Bytes that are read at once: as many as a pipe holds, so that one read takes all that was written before.
_CHUNK = 1 << 16
# Bytes for the side that asks from which on nothing more is read from the sandbox, which then waits, too.
_FULL = 1 << 20


class _Sandbox:
    """One sandbox, from its start until the side that asks is gone."""

    def __init__(self, order: dict[str, object]) -> None:
        self._order = order
        self._parent = os.getppid()
        self._from_asker = FrameReader(1 << 30)
        self._from_worker = FrameReader(order["answer"])  # type: ignore[arg-type]
        self._to_asker, self._to_worker = bytearray(), bytearray()
        self._outputs: dict[int, str] = {}
        self._listener = self._scratch = -1
        tables: dict[str, dict[str, int]] = order["calls"]  # type: ignore[assignment]
        self._names = {number: name for table in tables.values() for name, number in table.items()}
        # True once the worker has tried the filter itself, by one call that is refused.
        self._checked = False
        self._refused: dict[str, int] = {}
        self._ready = self._gone = self._overflow = self._reported = False
        self._stopped = ""  # why the sandbox had to end; empty if it ended by itself
        self._words = b""  # what the programs that start it wrote: the reason if it does not start
        self._failure = ""

    def start(self, libc: ctypes.CDLL, clock: CpuClock) -> None:
        """Start the process inside, and what is around it. ``clock`` has begun already."""
        self._clock = clock
        self._channel, channel = _make_pair()
        self._guard, guard = _make_pair()
        pipes = {name: os.pipe() for name in ("stdout", "stderr")}
        self._started = time.monotonic()
        wall = float(self._order["wall"])  # type: ignore[arg-type]
        self._deadline = self._started + wall if wall else float("inf")
        self._next_look = 0.0
        streams = [os.open("/dev/null", os.O_RDONLY), pipes["stdout"][1], pipes["stderr"][1]]
        self._child = _start(libc, self._order, streams, [channel.fileno(), guard.fileno()])
        for handle in streams:
            os.close(handle)
        for connection in (channel, guard):
            connection.close()
        self._ended = os.pidfd_open(self._child)
        self._outputs = {pipe[0]: name for name, pipe in pipes.items()}
        worker: bytes = self._order["worker"]  # type: ignore[assignment]
        self._to_worker += struct.pack(">I", len(worker)) + worker
        for handle in (0, 1, self._channel.fileno(), *self._outputs):
            os.set_blocking(handle, False)

    def serve(self) -> str:
        """Serve the side that asks until it is gone. Return why the sandbox did not start; else nothing."""
        while not self._gone and not self._failure:
            self._exchange()
            if os.getppid() != self._parent:
                # Who was killed is told nothing, and neither is its asker, for whom the sandbox is lost.
                self._gone = True
            if not self._reported:
                self._look()
                if self._stopped or self._gone:
                    self._finish()
        return self._failure

    def _exchange(self) -> None:
        """Wait for a moment, and move what can be moved."""
        wanted = {0: select.POLLIN, 1: select.POLLOUT if self._to_asker else 0}
        if not self._reported:
            # A process with much to say waits, as at a full pipe, until the side that asks has read.
            reading = select.POLLIN if len(self._to_asker) < _FULL else 0
            wanted |= dict.fromkeys((self._ended, self._guard.fileno(), self._listener), select.POLLIN)
            wanted |= dict.fromkeys(self._outputs, reading)
            wanted[self._channel.fileno()] = reading | (select.POLLOUT if self._to_worker else 0)
        poll = select.poll()
        for handle, events in wanted.items():
            if handle >= 0:
                poll.register(handle, events)
        for handle, events in poll.poll(1000 * _TICK):
            if handle == 0:
                self._read_asker()
            elif handle == 1:
                self._write_asker()
            elif handle == self._ended:
                self._stopped = self._stopped or "itself"
            elif handle == self._listener:
                self._answer(events)
            elif handle == self._guard.fileno():
                self._listener = _receive_handle(self._guard.recvmsg(1, 64)[1])
                self._guard.close()
            elif handle in self._outputs:
                self._read_output(handle)
            elif handle == self._channel.fileno():
                self._exchange_worker(events)

    def _send(self, frame: dict[str, object]) -> None:
        self._to_asker += pack_frame(frame)

    def _write_asker(self) -> None:
        try:
            del self._to_asker[: os.write(1, memoryview(self._to_asker)[:_CHUNK])]
        except BlockingIOError:
            return
        except OSError:
            self._gone = True

    def _read_asker(self) -> None:
        try:
            data = os.read(0, _CHUNK)
            frames = [unpack_frame(body) for body in self._from_asker.add(data)]
        except BlockingIOError:
            return
        except (OSError, Unsupported):
            data, frames = b"", []
        self._gone = self._gone or not data
        for frame in frames:
            if "message" in frame:
                if len(self._to_worker) <= _FULL + self._order["answer"]:  # type: ignore[operator]
                    self._to_worker += pack_frame(frame["message"])
                else:
                    self._stop_flood()
            elif "collect" in frame:
                self._send({"files": collect_files(self._scratch, int(frame["collect"]))})  # type: ignore[call-overload]
            elif "stop" in frame:
                self._stopped = self._stopped or "asked"

    def _exchange_worker(self, events: int) -> None:
        try:
            if events & select.POLLOUT:
                del self._to_worker[: self._channel.send(memoryview(self._to_worker)[:_CHUNK])]
            if events & ~select.POLLOUT:
                self._read_worker()
        except BlockingIOError:
            return
        except OSError:
            # It has closed its end, or was killed. What it said before arrives at the other descriptors.
            self._channel.close()

    def _read_worker(self) -> bool:
        """Read messages of the process inside; return False if there are no more."""
        if self._scratch < 0:
            data, messages, _, _ = self._channel.recvmsg(_CHUNK, 64)
            self._scratch = _receive_handle(messages)
        else:
            # Without room for them, the kernel drops descriptors that a program sends.
            data = self._channel.recv(_CHUNK)
        if not data:
            self._channel.close()
            return False
        # What was written before a message goes before it. The message has arrived, so that is in the pipes by now.
        for handle in list(self._outputs):
            self._read_output(handle)
        try:
            for body in self._from_worker.add(data):
                self._pass_on(body)
        except Unsupported:
            self._stop_flood()
        return True

    def _stop_flood(self) -> None:
        """End a process that says more than it may, or does not listen."""
        self._overflow = True
        self._stopped = self._stopped or "asked"

    def _pass_on(self, body: bytes) -> None:
        try:
            # Read and written again: a program that forges the text of a message must not end it, and begin another.
            content = unpack_forged(body)
            frame = pack_frame({"message": content})
        except (Unsupported, RecursionError) as error:
            self._send({"message": {"done": True, "unsupported": str(error)}})
            return
        if self._ready:
            self._to_asker += frame
        elif content.get("ready") and self._scratch >= 0:
            self._ready = True
            self._send({"ready": True, "tier": self._order["tier"]})
        else:
            self._failure = str(content.get("failed") or "no answer")

    def _read_output(self, handle: int) -> bool:
        """Pass on what has been written; return False if there is no more."""
        try:
            data = os.read(handle, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            del self._outputs[handle]
            os.close(handle)
            return False
        if self._ready:
            self._send({"output": self._outputs[handle], "data": pack_bytes(data)})
        else:
            self._words += data
        return True

    def _look(self) -> None:
        """Set the reason to stop if a limit is reached."""
        now, order = time.monotonic(), self._order
        if now < self._next_look or self._stopped:
            return
        self._next_look = now + _TICK
        folder = str(order["measure"])
        if now > self._deadline:
            self._stopped = "wall"
        elif sum(self._refused.values()) > _CALLS:
            self._stopped = "calls"
        elif self._clock.measure() > order["cpu"]:  # type: ignore[operator]
            self._stopped = "cpu"
        # The address space of a single process is limited by the kernel.
        elif order["several"] and measure_memory(order["memory"]) > order["memory"]:  # type: ignore[arg-type,operator]
            self._stopped = "memory"
        elif folder and measure_folder(folder) + measure_deleted(folder) > order["disk"]:  # type: ignore[operator]
            self._stopped = "disk"

    def _finish(self) -> None:
        """End the sandbox, and report how it ended."""
        # The kernel does not add up the CPU time of processes that go down with their namespace.
        before = self._clock.measure()
        status, reaped, memory = end_processes(self._child)
        cpu = max(before, reaped, self._clock.measure())
        while self._channel.fileno() >= 0 and not self._failure:
            try:
                if not self._read_worker():
                    break
            except OSError:
                break
        for handle in list(self._outputs):
            while self._read_output(handle):
                pass
        self._reported = True
        if not self._ready:
            lines = self._words.decode("utf-8", "replace").strip().splitlines() or ["no answer"]
            self._failure = self._failure or lines[-1 if lines[0].startswith("Traceback") else 0]
        report = {
            "status": status,
            "stopped": "" if self._stopped == "itself" else self._stopped,
            "cpu": cpu,
            "memory": memory,
            "wall": time.monotonic() - self._started,
            "refused": self._refused,
        }
        self._send({"ended": report, "overflow": self._overflow})

    def _answer(self, events: int) -> None:
        """Refuse a call, and write its name down."""
        if not events & select.POLLIN:
            self._listener = -1
            return
        request = bytearray(80)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, request)
            number, _pid, _flags, call = struct.unpack_from("QIIi", request)
            name = self._names.get(call)
            error = _ENOSYS if name is None else _EPERM
            known = name or f"call {call}"
            if self._checked:
                self._refused[known] = self._refused.get(known, 0) + 1
            self._checked = True
            fcntl.ioctl(self._listener, _ANSWER, struct.pack("QqiI", number, 0, -error, 0))
        except OSError:
            # The caller was killed while it waited.
            return


def run_sandbox(order: dict[str, object]) -> str:
    """Run the sandbox that is ordered, for the side that asks. Return why it did not start; else nothing."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    sandbox = _Sandbox(order)
    try:
        # Root may count what others may not.
        clock = CpuClock(libc, several=bool(order["several"]))
        if os.geteuid() == 0 and order["contain"]:
            _leave_root(libc, order)
        sandbox.start(libc, clock)
        return sandbox.serve()
    except OSError as error:
        return str(error.strerror or error)
    finally:
        # Here, too: the side that asks may have been killed.
        if order["measure"]:
            remove_folder(str(order["measure"]))


def main() -> None:
    """Run the sandbox that the parent orders on standard input."""
    order: dict[str, object] = marshal.loads(read_frame())  # noqa: S302 - the parent is trusted
    try:
        if failure := run_sandbox(order):
            refuse_start(failure)
    finally:
        # Even if the parent is gone. An interpreter that takes itself apart is waited for.
        os._exit(0)


def read_frame() -> bytes:
    """Wait for the first frame of the side that asks. Ends the process if there is none."""
    return _read_exactly(struct.unpack(">I", _read_exactly(4))[0])


def refuse_start(why: str) -> None:
    """Tell the side that asks why there is no sandbox."""
    os.set_blocking(1, True)
    os.write(1, pack_frame({"failed": why}))


def _leave_root(libc: ctypes.CDLL, order: dict[str, object]) -> None:
    """Become a user that owns nothing, to whom the interpreter's files are shown in a mount namespace of this process.

    Raises:
        OSError: root may not do that here, as in many containers.
    """
    mounts: dict[str, bool] = order["mounts"]  # type: ignore[assignment]
    user = (1 << 30) + os.getpid()
    if libc.unshare(_NEWNS) == 0:
        _mount(libc, None, "/", None, _REC | _SLAVE)
        _show_paths(libc, [path for path, shown in mounts.items() if shown])
        for path in [path for path, shown in mounts.items() if not shown]:
            _mount(libc, "cover", path, "tmpfs", 2 | 4, "mode=755,size=65536")
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


def _start(libc: ctypes.CDLL, order: dict[str, object], streams: list[int], channels: list[int]) -> int:
    """Start the command in a session of its own, to be killed with this process. Return its process id."""
    command: list[str] = [*order["argv"], *map(str, channels)]  # type: ignore[misc]
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
        for number, handle in enumerate(streams):
            os.dup2(handle, number)
        for handle in (*keep, *channels):
            os.set_inheritable(handle, True)
        os.execve(command[0], command, order["environment"])  # type: ignore[arg-type]  # noqa: S606
    except OSError as error:
        os.write(writing, (error.strerror or "error").encode())
    finally:
        os._exit(127)


def end_processes(child: int) -> tuple[int, float, int]:
    """Kill and reap everything that is left. Return the child's wait status, CPU seconds and peak memory in bytes."""
    status, cpu, memory = 0, 0.0, 0
    deadline = time.monotonic() + 10
    if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        os.kill(child, _KILL)
    while time.monotonic() < deadline:
        try:
            process, code, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if process == 0:
            # This process has adopted those whose parents are gone.
            for number in list_children(os.getpid()):
                try:
                    os.kill(number, _KILL)
                except OSError:
                    continue
            time.sleep(0.001)
            continue
        cpu += usage.ru_utime + usage.ru_stime
        memory = max(memory, usage.ru_maxrss * 1024)
        if process == child:
            status = code
    return status, cpu, memory


def _make_pair() -> tuple[_socket.socket, _socket.socket]:
    return _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)


def _receive_handle(messages: list[tuple[int, int, bytes]]) -> int:
    """Return the first descriptor that came with a message; -1 if none did."""
    for _, _, content in messages:
        return int(struct.unpack_from("i", content)[0])
    return -1


def _read_exactly(size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = os.read(0, size)
        if not part:
            os._exit(1)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
