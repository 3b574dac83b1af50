"""One sandboxed process, as the trusted side sees it: its start, its messages, its output and its end."""

# What the far side of a remote sandbox says may be forged, so its parts are of any type.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import array
import marshal
import os
import selectors
import socket
import struct
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import cast

from bactrian.errors import SandboxError
from bactrian.sandbox.artefacts import Artefact, collect_artefacts, remove_folder
from bactrian.sandbox.inside.values import Unsupported, pack_frame, unpack_frame
from bactrian.sandbox.orders import (
    FrameReader,
    ProcessOrder,
    build_supervisor_order,
    build_worker_order,
    check_order,
    read_bytes,
    read_file,
    read_report,
    write_order,
)
from bactrian.sandbox.outcome import ExitReport
from bactrian.sandbox.payload import build_argument, load_supervisor, load_worker
from bactrian.sandbox.tiers import CommandTier, ContainerTier, find_view

_START = 20.0
"""Longest wait for a sandbox of this computer to start, in seconds."""
_REMOTE_START = 60.0
_END = 20.0
"""Longest wait for a report after the time that a program has, in seconds."""
_CHUNK = 1 << 16
_SAID = 4096
"""Most bytes of a far side's own messages that are kept."""


class SandboxProcess(ABC):
    """A process in a sandbox, wherever that is. One thread at a time may use it.

    Raises:
        SandboxError: the sandbox does not start.
        InputError: the order cannot be fulfilled on this tier, or a file's name leads out of the scratch folder.
    """

    def __init__(self, order: ProcessOrder) -> None:
        check_order(order)
        self._order = order
        self.overflow = False
        """True if the process wrote more than it may."""
        self._output = {"stdout": bytearray(), "stderr": bytearray()}
        self._frames: list[dict[str, object]] = []
        self._sending = bytearray()
        self._writer = -1
        """Descriptor that takes what is to be sent."""
        self._said = bytearray()
        """What the far side, and not the program, wrote to standard error."""
        self._report: ExitReport | None = None
        self._failure = ""
        self._selector = selectors.DefaultSelector()
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _start(self) -> None:
        """Start the process, and wait until it has locked itself down."""

    @abstractmethod
    def _read(self, handle: int, name: str) -> None:
        """Read what has arrived at the descriptor that is registered under ``name``."""

    @abstractmethod
    def send(self, message: Mapping[str, object]) -> None:
        """Queue a message for the process; :meth:`pump` sends it."""

    @abstractmethod
    def ask_end(self) -> None:
        """Ask the other side to end the process, and do not wait."""

    @abstractmethod
    def collect(self, most: int) -> list[Artefact]:
        """Return the files of the scratch folder, with up to ``most`` bytes of their content, until :meth:`close`."""

    @abstractmethod
    def close(self) -> None:
        """End the process and remove its scratch folder. Can be called twice, from any thread."""

    @property
    def ended(self) -> bool:
        """True if the process has ended and was reported, or is lost."""
        return self._report is not None or bool(self._failure)

    def take_frames(self) -> list[dict[str, object]]:
        """Return the messages that have arrived since the last call. The program may have forged them."""
        frames, self._frames = self._frames, []
        return frames

    def take_output(self) -> tuple[str, str]:
        """Return standard output and standard error since the last call."""
        taken = self.take_bytes()
        return taken["stdout"].decode("utf-8", "replace"), taken["stderr"].decode("utf-8", "replace")

    def take_bytes(self) -> dict[str, bytes]:
        """Return ``stdout`` and ``stderr`` since the last call."""
        self.pump(lambda: True, 0.0)
        taken = {name: bytes(data) for name, data in self._output.items()}
        for data in self._output.values():
            data.clear()
        return taken

    def pump(self, stop: Callable[[], bool], deadline: float) -> bool:
        """Exchange data until ``stop()`` is true. Returns False if ``deadline`` (monotonic) comes first, or the end.

        Everything that can be read at once is read before ``stop`` is asked.
        """
        while True:
            self._watch_writing()
            ready = self._selector.select(0)
            if not ready:
                if stop():
                    return True
                left = deadline - time.monotonic()
                if self.ended or left <= 0:
                    return False
                ready = self._selector.select(left)
            for key, events in ready:
                self._exchange(key, events)

    def _watch_writing(self) -> None:
        """Wait until the other side takes more, but only while there is more to send."""
        key = self._selector.get_map().get(self._writer)
        before = key.events if key else 0
        events = before & selectors.EVENT_READ | (selectors.EVENT_WRITE if self._sending else 0)
        if key is None and events:
            self._selector.register(self._writer, events, "writer")
        elif key is not None and not events:
            self._selector.unregister(self._writer)
        elif key is not None and events != before:
            self._selector.modify(self._writer, events, key.data)

    def _exchange(self, key: selectors.SelectorKey, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                del self._sending[: os.write(key.fd, memoryview(self._sending)[:_CHUNK])]
            if events & selectors.EVENT_READ:
                self._read(key.fd, key.data)
        except BlockingIOError:
            return
        except OSError:
            # The other side is gone. What it still said arrives at the other descriptors.
            self._sending.clear()
            with suppress(KeyError):
                self._selector.unregister(key.fd)

    def _add_output(self, name: str, data: bytes) -> None:
        room = self._order.limits.output - sum(map(len, self._output.values()))
        self._output[name] += data[: max(room, 0)]
        if len(data) > room and not self.overflow:
            self.overflow = True
            self.ask_end()

    def stop(self) -> ExitReport:
        """End the process if it still runs, and return how it ended.

        Raises:
            SandboxError: it is lost.
        """
        if not self.ended:
            self.ask_end()
        return self.wait()

    def wait(self) -> ExitReport:
        """Wait for the end of the process. Standard output and standard error are complete then.

        Raises:
            SandboxError: it is lost, or its end is not reported in time.
        """
        self.pump(lambda: self.ended, time.monotonic() + self._order.wall + _END)
        self.pump(lambda: True, 0.0)
        if self._report is None:
            raise SandboxError(
                f"The sandbox was lost: {self._explain()}.",
                where=f"tier {self._order.tier.name}",
                next="Run the same command again.",
            )
        return self._report

    def _refuse_start(self, hint: str) -> SandboxError:
        return SandboxError(
            f"The sandbox did not start: {self._explain()}",
            where=f"tier {self._order.tier.name}",
            next=hint,
        )

    def _explain(self) -> str:
        lines = self._said.decode("utf-8", "replace").strip().splitlines()
        if self._failure or not lines:
            return self._failure or "no answer"
        return lines[-1] if lines[0].startswith("Traceback") else lines[0]


class LocalProcess(SandboxProcess):
    """A process in a sandbox of this computer, with a supervisor between it and the trusted side."""

    def __init__(self, order: ProcessOrder) -> None:
        self._scratch = -1
        self._received = FrameReader(order.limits.answer)
        self._temporary = "" if order.tier.scratch else tempfile.mkdtemp(prefix="sandbox-")
        super().__init__(order)

    def _start(self) -> None:
        order = self._order
        view = find_view(packages=order.packages, programs=bool(order.command))
        worker, supervisor = load_worker(), load_supervisor()
        self._channel, channel = socket.socketpair()
        self._control, control = socket.socketpair()
        guard, guarded = socket.socketpair()
        pipes = {"stdout": os.pipe(), "stderr": os.pipe()}
        python = [view.interpreter, "-I", "-S", "-B", "-X", "utf8", "-c"]
        inside = [*python, build_argument(worker), str(channel.fileno()), str(guarded.fileno())]
        keep = [channel.fileno(), guarded.fileno(), worker]
        try:
            self._process = subprocess.Popen(  # noqa: S603
                [*python, build_argument(supervisor), str(control.fileno()), str(guard.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=pipes["stdout"][1],
                stderr=pipes["stderr"][1],
                pass_fds=[control.fileno(), guard.fileno(), supervisor, *keep],
                cwd="/",
                env={},
                start_new_session=True,
            )
        finally:
            for end in (channel, control, guard, guarded):
                end.close()
            for name, (reading, writing) in pipes.items():
                os.close(writing)
                os.set_blocking(reading, False)
                self._selector.register(reading, selectors.EVENT_READ, name)
            self._selector.register(self._channel.fileno(), selectors.EVENT_READ, "channel")
            self._selector.register(self._control.fileno(), selectors.EVENT_READ, "control")
        supervised = build_supervisor_order(order, view, self._temporary, keep, inside)
        self._control.sendall(_pack_marshal(supervised))
        for connection in (self._channel, self._control):
            connection.setblocking(False)
        self._writer = self._channel.fileno()
        self._sending += _pack_marshal(build_worker_order(order, view, self._temporary))
        self._wait_ready()

    def _wait_ready(self) -> None:
        """Wait until the process has locked itself down. That message brings the descriptor of its scratch folder."""
        self.pump(lambda: bool(self._frames), time.monotonic() + _START)
        frame = self._frames.pop(0) if self._frames else {}
        if not frame.get("ready") or self._scratch < 0:
            with suppress(SandboxError):
                self.stop()
            self._failure = str(frame.get("failed") or self._failure)
            self._said = self._output["stderr"]
            raise self._refuse_start("`bactrian doctor --sandbox` shows what this computer can contain.")

    def fileno(self) -> int:
        """Return a descriptor that can be read when :meth:`pump` has something to do."""
        return self._selector.fileno()  # type: ignore[attr-defined,no-any-return]

    def send(self, message: Mapping[str, object]) -> None:
        """Queue a message for the process; :meth:`pump` sends it."""
        self._sending += pack_frame(message)

    def _read(self, handle: int, name: str) -> None:
        if name == "channel":
            self._read_channel()
        elif name == "control":
            self._read_report()
        elif data := os.read(handle, _CHUNK):
            self._add_output(name, data)
        else:
            self._selector.unregister(handle)
            os.close(handle)

    def _read_channel(self) -> None:
        if self._scratch < 0:
            data, messages, _, _ = self._channel.recvmsg(_CHUNK, socket.CMSG_SPACE(4))
            for _, _, content in messages:
                handles = array.array("i")
                handles.frombytes(content[:4])
                self._scratch = handles[0]
        else:
            # Without room for them, the kernel drops descriptors that a program sends.
            data = self._channel.recv(_CHUNK)
        if not data:
            self._selector.unregister(self._channel.fileno())
        try:
            for body in self._received.add(data):
                try:
                    self._frames.append(unpack_frame(body))
                except Unsupported as error:
                    self._frames.append({"done": True, "unsupported": str(error)})
        except Unsupported:
            self.overflow = True
            self.ask_end()

    def _read_report(self) -> None:
        self._control.setblocking(True)
        try:
            head = _read_exactly(self._control, 4)
            body = head and _read_exactly(self._control, struct.unpack(">I", head)[0])
        finally:
            self._control.setblocking(False)
        self._selector.unregister(self._control.fileno())
        if not body:
            self._failure = self._failure or "its supervisor is gone"
            return
        report = marshal.loads(body)  # noqa: S302 - the supervisor is ours, and no sandboxed process has this end
        if "failed" in report:
            self._failure = report["failed"]
        else:
            self._report = ExitReport(**report)

    def ask_end(self) -> None:
        """Ask the supervisor to end the process, and do not wait."""
        with suppress(OSError):
            self._control.send(b"x")

    def collect(self, most: int) -> list[Artefact]:
        """Return the files of the scratch folder, with up to ``most`` bytes of their content, until :meth:`close`."""
        return collect_artefacts(self._scratch, most)

    def close(self) -> None:
        """End the process and remove its scratch folder. Can be called twice, from any thread."""
        if hasattr(self, "_control"):
            self._control.close()
            self._channel.close()
        if hasattr(self, "_process"):
            try:
                self._process.wait(_END)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for key in list((self._selector.get_map() or {}).values()):
            if key.data in self._output:
                os.close(key.fd)
        self._selector.close()
        if self._scratch >= 0:
            os.close(self._scratch)
            self._scratch = -1
        if self._temporary:
            remove_folder(self._temporary)


class RemoteProcess(SandboxProcess):
    """A process in a sandbox that is reached through the standard streams of a command.

    Nothing that the far side says is trusted: it can only spoil the outcome of its own program.
    """

    def __init__(self, order: ProcessOrder, tier: ContainerTier | CommandTier) -> None:
        limits = order.limits
        self._received = FrameReader(2 * (limits.answer + limits.output + limits.disk) + (1 << 20))
        self._files: list[Artefact] | None = None
        self._ready = False
        self._remote = tier.prepare(limits)
        super().__init__(order)

    def _start(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603
            self._remote.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            # The tier that this process's environment names is not meant for the far side.
            env={name: value for name, value in os.environ.items() if name != "BACTRIAN_TIER"},
        )
        streams = self._process.stdin, self._process.stdout, self._process.stderr
        self._writer, self._frames_of, self._words_of = (stream.fileno() for stream in streams if stream)
        for handle in (self._writer, self._frames_of, self._words_of):
            os.set_blocking(handle, False)
        self._selector.register(self._frames_of, selectors.EVENT_READ, "frames")
        self._selector.register(self._words_of, selectors.EVENT_READ, "words")
        self._sending += self._remote.greeting + pack_frame(write_order(self._order))
        if not self.pump(lambda: self._ready, time.monotonic() + _REMOTE_START):
            raise self._refuse_start(self._remote.hint)

    def send(self, message: Mapping[str, object]) -> None:
        """Queue a message for the process; :meth:`pump` sends it."""
        self._sending += pack_frame({"message": dict(message)})

    def ask_end(self) -> None:
        """Ask the far side to end the process, and do not wait."""
        self._sending += pack_frame({"stop": True})

    def _read(self, handle: int, name: str) -> None:
        data = os.read(handle, _CHUNK)
        if not data:
            self._selector.unregister(handle)
            if name == "frames" and not self.ended:
                self.pump(lambda: self._words_of not in self._selector.get_map(), time.monotonic() + 1)
                self._failure = self._explain()
        elif name == "words":
            self._said = (self._said + data)[-_SAID:]
        else:
            try:
                for body in self._received.add(data):
                    self._take(unpack_frame(body))
            except Unsupported as error:
                self._failure = f"the far side sends nonsense ({error})"

    def _take(self, frame: dict[str, object]) -> None:
        """Act on a message of the far side.

        Raises:
            Unsupported: it is garbled.
        """
        match frame:
            case {"ready": True}:
                self._ready = True
            case {"message": dict() as inner}:
                self._frames.append(cast("dict[str, object]", inner))
            case {"output": "stdout" | "stderr" as name, "data": text}:
                self._add_output(str(name), read_bytes(text))
            case {"files": list() as rows}:
                self._files = [read_file(row) for row in cast("list[object]", rows)]
            case {"failed": str(why)}:
                self._failure = why or "no reason given"
            case {"ended": report}:
                self.overflow = self.overflow or frame.get("overflow") is True
                self._report = read_report(report)
            case _:
                raise Unsupported("a message of no known kind")

    def collect(self, most: int) -> list[Artefact]:
        """Return the files of the scratch folder, with up to ``most`` bytes of their content; none if it is lost."""
        self._files = None
        self._sending += pack_frame({"collect": most})
        deadline = time.monotonic() + _END
        while self._files is None and self._frames_of in self._selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                break
            self._watch_writing()
            for key, events in self._selector.select(left):
                self._exchange(key, events)
        return self._files or []

    def close(self) -> None:
        """End the far side. Can be called twice, from any thread."""
        self._selector.close()
        if not hasattr(self, "_process"):
            return
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        try:
            self._process.wait(_END if self._ready else 1)
        except subprocess.TimeoutExpired:
            if self._remote.end:
                with suppress(OSError, subprocess.TimeoutExpired):
                    subprocess.run(self._remote.end, capture_output=True, check=False, timeout=_END)  # noqa: S603
            self._process.kill()
            self._process.wait()


def start_process(order: ProcessOrder) -> SandboxProcess:
    """Start the process that ``order`` describes: on this computer, in a container, or behind a command.

    Raises:
        SandboxError: the sandbox does not start.
        InputError: the order cannot be fulfilled on this tier, or a file's name leads out of the scratch folder.
    """
    match order.tier:
        case ContainerTier() | CommandTier() as tier:
            return RemoteProcess(order, tier)
        case _:
            return LocalProcess(order)


def _pack_marshal(content: dict[str, object]) -> bytes:
    body = marshal.dumps(content)
    return struct.pack(">I", len(body)) + body


def _read_exactly(source: socket.socket, size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = source.recv(size)
        if not part:
            return b""
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
