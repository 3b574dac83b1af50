"""One sandboxed process, as the trusted side sees it: its start, its messages, its output and its end."""

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
from collections.abc import Callable, Mapping

from bactrian.errors import SandboxError
from bactrian.sandbox.artefacts import Artefact, collect_artefacts, remove_folder
from bactrian.sandbox.inside.values import Unsupported, pack_frame, unpack_frame
from bactrian.sandbox.orders import (
    Handles,
    ProcessOrder,
    build_supervisor_order,
    build_worker_order,
    check_order,
)
from bactrian.sandbox.outcome import ExitReport
from bactrian.sandbox.payload import load_supervisor, load_worker
from bactrian.sandbox.tiers import find_view

_START = 20.0
"""Longest wait for a sandbox to start, in seconds."""
_CHUNK = 1 << 16


class SandboxProcess:
    """A process in a sandbox. One thread at a time may use it.

    Raises:
        SandboxError: the sandbox does not start.
        InputError: the order cannot be fulfilled on this tier, or a file's name leads out of the scratch folder.
    """

    def __init__(self, order: ProcessOrder) -> None:
        check_order(order)
        self._order = order
        self._overflow = False
        self._output = {"stdout": bytearray(), "stderr": bytearray()}
        self._received = bytearray()
        self._sending = bytearray()
        self._scratch = -1
        self._frames: list[dict[str, object]] = []
        self._report: ExitReport | None = None
        self._failure = ""
        self._temporary = "" if order.tier.scratch else tempfile.mkdtemp(prefix="sandbox-")
        self._selector = selectors.DefaultSelector()
        try:
            self._start()
            self._wait_ready()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        order = self._order
        view = find_view(packages=order.packages, programs=bool(order.command))
        worker, supervisor = load_worker(), load_supervisor()
        self._channel, channel = socket.socketpair()
        self._control, control = socket.socketpair()
        guard, guarded = socket.socketpair()
        pipes = {"stdout": os.pipe(), "stderr": os.pipe()}
        python = [view.interpreter, "-I", "-S", "-B", "-X", "utf8", "-c"]
        inside = [*python, worker.build_argument(), str(channel.fileno()), str(guarded.fileno())]
        keep = [channel.fileno(), guarded.fileno(), worker.handle]
        try:
            self._process = subprocess.Popen(  # noqa: S603
                [*python, supervisor.build_argument(), str(control.fileno()), str(guard.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=pipes["stdout"][1],
                stderr=pipes["stderr"][1],
                pass_fds=[control.fileno(), guard.fileno(), supervisor.handle, *keep],
                cwd="/",
                env={},
                start_new_session=True,
            )
        finally:
            for one in (channel, control, guard, guarded):
                one.close()
            for name, (reading, writing) in pipes.items():
                os.close(writing)
                os.set_blocking(reading, False)
                self._selector.register(reading, selectors.EVENT_READ, name)
            for one, name in ((self._channel, "channel"), (self._control, "control")):
                one.setblocking(False)
                self._selector.register(one, selectors.EVENT_READ, name)
        scratch = order.tier.scratch or self._temporary
        where = Handles(keep, scratch, self._temporary)
        self._control.setblocking(True)
        self._control.sendall(_pack_marshal(build_supervisor_order(order, view, where, inside)))
        self._control.setblocking(False)
        self._sending += _pack_marshal(build_worker_order(order, view, where))

    def _wait_ready(self) -> None:
        """Wait until the process has locked itself down. That message brings the descriptor of its scratch folder."""
        deadline = time.monotonic() + _START
        self.pump(lambda: bool(self._frames), deadline)
        frame = self._frames.pop(0) if self._frames else {}
        if not frame.get("ready") or self._scratch < 0:
            self.stop()
            said = self._output["stderr"].decode("utf-8", "replace").strip().splitlines()
            why = str(frame.get("failed") or self._failure or (said[-1] if said else "no answer"))
            raise SandboxError(
                f"The sandbox did not start: {why}",
                where=f"tier {self._order.tier.name}",
                next="`bactrian doctor --sandbox` shows what this computer can contain.",
            )

    @property
    def ended(self) -> bool:
        """True if the process has ended and its supervisor has reported."""
        return self._report is not None or bool(self._failure)

    @property
    def overflow(self) -> bool:
        """True if the process wrote more than it may."""
        return self._overflow

    def send(self, message: Mapping[str, object]) -> None:
        """Queue a message for the process; :meth:`pump` sends it."""
        self._sending += pack_frame(message)

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

    def fileno(self) -> int:
        """Return a descriptor that can be read when :meth:`pump` has something to do."""
        return self._selector.fileno()  # type: ignore[attr-defined,no-any-return]

    def pump(self, stop: Callable[[], bool], deadline: float) -> bool:
        """Exchange data until ``stop()`` is true. Returns False if ``deadline`` (monotonic) comes first, or the end.

        Everything that can be read at once is read before ``stop`` is asked.
        """
        while True:
            writing = selectors.EVENT_WRITE if self._sending else 0
            if self._channel.fileno() in self._selector.get_map():
                self._selector.modify(self._channel, selectors.EVENT_READ | writing, "channel")
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

    def _exchange(self, key: selectors.SelectorKey, events: int) -> None:
        try:
            match key.data:
                case "channel":
                    if events & selectors.EVENT_WRITE:
                        del self._sending[: self._channel.send(memoryview(self._sending)[:_CHUNK])]
                    if events & selectors.EVENT_READ:
                        self._read_channel()
                case "control":
                    self._read_report()
                case name:
                    self._read_output(key.fd, name)
        except BlockingIOError:
            return
        except OSError:
            self._sending.clear()
            self._selector.unregister(key.fileobj)

    def _read_output(self, handle: int, name: str) -> None:
        data = os.read(handle, _CHUNK)
        if not data:
            self._selector.unregister(handle)
            os.close(handle)
            return
        room = self._order.limits.output - sum(len(text) for text in self._output.values())
        self._output[name] += data[:room]
        if len(data) > room and not self._overflow:
            self._overflow = True
            self.ask_end()

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
            self._selector.unregister(self._channel)
            return
        self._received += data
        while len(self._received) >= 4:
            size = struct.unpack_from(">I", self._received)[0]
            if size > self._order.limits.answer:
                self._overflow = True
                self._received.clear()
                self.ask_end()
                return
            if len(self._received) < 4 + size:
                return
            body = bytes(self._received[4 : 4 + size])
            del self._received[: 4 + size]
            try:
                self._frames.append(unpack_frame(body))
            except Unsupported as error:
                self._frames.append({"done": True, "unsupported": str(error)})

    def _read_report(self) -> None:
        self._control.setblocking(True)
        try:
            head = _read_exactly(self._control, 4)
            body = head and _read_exactly(self._control, struct.unpack(">I", head)[0])
        finally:
            self._control.setblocking(False)
        self._selector.unregister(self._control)
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
        try:
            self._control.send(b"x")
        except OSError:
            return

    def stop(self) -> ExitReport:
        """End the process if it still runs, and return what its supervisor says.

        Raises:
            SandboxError: the supervisor is gone.
        """
        if not self.ended:
            self.ask_end()
        return self.wait()

    def wait(self) -> ExitReport:
        """Wait for the end of the process. Standard output and standard error are complete then.

        Raises:
            SandboxError: the supervisor is gone.
        """
        limit = self._order.wall + _START if self._order.wall else _START
        self.pump(lambda: self.ended, time.monotonic() + limit)
        self.pump(lambda: True, 0.0)
        if self._report is None:
            raise SandboxError(
                f"The sandbox was lost: {self._failure or 'no report'}.",
                where=f"tier {self._order.tier.name}",
                next="Run the same command again.",
            )
        return self._report

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
                self._process.wait(_START)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for key in list((self._selector.get_map() or {}).values()):
            if isinstance(key.fileobj, int):
                os.close(key.fileobj)
        self._selector.close()
        if self._scratch >= 0:
            os.close(self._scratch)
            self._scratch = -1
        if self._temporary:
            remove_folder(self._temporary)


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
