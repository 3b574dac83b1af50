"""One sandboxed process, as the trusted side sees it: its start, its messages, its output and its end.

The far side, which contains the process, is reached through the standard streams of a command: the supervisor on this
computer, a container, or a command of the user. Nothing that it says is trusted: it can only spoil the outcome of its
own program.
"""

# What the far side says may be forged, so its parts are of any type.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import marshal
import os
import selectors
import struct
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import cast

from bactrian.errors import SandboxError
from bactrian.sandbox import orders
from bactrian.sandbox.inside.values import FrameReader, Unsupported, pack_frame, unpack_bytes, unpack_forged
from bactrian.sandbox.payload import build_command, load_supervisor, load_worker
from bactrian.sandbox.tiers import Artefact, CommandTier, ContainerTier, ExitReport, RemoteStart, find_view

_START = 60.0  # longest wait for a sandbox to start, in seconds
_END = 20.0  # longest wait for a report after the time that a program has, in seconds
_CHUNK = 1 << 16
_MOST_WORDS = 4096  # most bytes of a far side's own messages that are kept
# Messages of the process, and bytes for it, that wait at once. The process inside waits for an answer to each message
# before it sends the next, so a program that sends more has taken its place.
_MOST_MESSAGES = 16
_ROOM = 8 << 20  # bytes of a message besides what is asked for, such as the names of files
_MOST_WAITING = 1 << 20


class SandboxLost(SandboxError):
    """A sandbox that had started is gone. A program may have brought that about."""


class SandboxProcess:
    """A process in a sandbox, wherever that is. One thread at a time may use it.

    Raises:
        SandboxError: the sandbox does not start.
        InputError: the order cannot be fulfilled on this tier, or a file's name leads out of the scratch folder.
    """

    def __init__(self, order: orders.ProcessOrder) -> None:
        self._order = order
        self.tier = order.tier.name  # with the tier of the far side, if that is elsewhere
        self.overflow = False  # True if the process wrote more than it may
        limits = order.limits
        # A character of an answer may be written as six.
        self._received = FrameReader(6 * limits.answer + _ROOM)
        self._output = {"stdout": bytearray(), "stderr": bytearray()}
        self._frames: list[dict[str, object]] = []
        self._files: list[Artefact] | None = None
        self._ready = False
        self._words = bytearray()  # what the far side, and not the program, wrote to standard error
        self._report: ExitReport | None = None
        self._failure = ""
        self._closing = ExitStack()
        self._selector = selectors.DefaultSelector()
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        """Start the far side, and wait until the process inside has locked itself down."""
        tier = self._order.tier
        if isinstance(tier, ContainerTier | CommandTier):
            self._launch = tier.prepare(self._order.limits)
            self._sending = bytearray(self._launch.greeting + pack_frame(orders.write_order(self._order)))
            # The tier that this process's environment names is not meant for the far side.
            environment = {name: value for name, value in os.environ.items() if name != "BACTRIAN_TIER"}
            handles: tuple[int, ...] = ()
        else:
            temporary = self._closing.enter_context(orders.make_scratch(tier))
            body = marshal.dumps(orders.resolve_order(self._order, temporary))
            self._sending = bytearray(struct.pack(">I", len(body)) + body)
            handles, environment = (load_supervisor(), load_worker()), {}
            self._launch = RemoteStart(
                tuple(build_command(find_view().interpreter, handles[0])),
                hint="`bactrian doctor --sandbox` shows what this computer can contain.",
            )
        self._process = subprocess.Popen(  # noqa: S603
            self._launch.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=handles,
            cwd="/",
            env=environment,
            # Ctrl-C is for this process, which ends the sandbox. A command such as ssh may ask for a password.
            start_new_session=bool(handles),
        )
        streams = self._process.stdin, self._process.stdout, self._process.stderr
        self._writer, self._frames_of, self._words_of = (stream.fileno() for stream in streams if stream)
        for handle in (self._writer, self._frames_of, self._words_of):
            os.set_blocking(handle, False)
        self._selector.register(self._frames_of, selectors.EVENT_READ, "frames")
        self._selector.register(self._words_of, selectors.EVENT_READ, "words")
        if not self.pump(lambda: self._ready, time.monotonic() + _START) or self._failure:
            raise SandboxError(
                f"The sandbox did not start: {self._explain()}",
                where=f"tier {tier.name}",
                next=self._launch.hint,
            )

    def send(self, message: Mapping[str, object]) -> None:
        """Queue a message for the process; :meth:`pump` sends it."""
        if len(self._sending) > self._order.limits.answer + _MOST_WAITING:
            self._stop_flood()
        else:
            self._sending += pack_frame({"message": dict(message)})

    def ask_end(self) -> None:
        """Ask the far side to end the process, and do not wait."""
        self._sending += pack_frame({"stop": True})

    def _stop_flood(self) -> None:
        """End a process that says, or lets others say, more than it may."""
        if not self.overflow:
            self.overflow = True
            self.ask_end()

    @property
    def ended(self) -> bool:
        """True if the process has ended and was reported, or is lost."""
        return self._report is not None or bool(self._failure)

    def take_frames(self) -> list[dict[str, object]]:
        """Return the messages that have arrived since the last call. The program may have forged them."""
        frames, self._frames = self._frames, []
        return frames

    def take_output(self) -> tuple[str, str]:
        """Return standard output and standard error since the last call, up to the last message."""
        texts = [data.decode("utf-8", "replace") for data in self._output.values()]
        for data in self._output.values():
            data.clear()
        return texts[0], texts[1]

    def pump(self, stop: Callable[[], bool], deadline: float) -> bool:
        """Exchange data until ``stop()`` is true. Returns False if ``deadline`` (monotonic) comes first, or the end.

        Both are looked at after each read, so a far side that never falls silent holds nobody up.
        """
        while not stop():
            left = deadline - time.monotonic()
            if self.ended or left <= 0:
                return False
            self._exchange_ready(left)
        return True

    def _exchange_ready(self, seconds: float) -> None:
        """Wait until something can be read or written, and do so once."""
        # It is asked whether the far side takes more only while there is more to send.
        watched = self._writer in self._selector.get_map()
        if self._sending and not watched:
            self._selector.register(self._writer, selectors.EVENT_WRITE, "writer")
        elif watched and not self._sending:
            self._selector.unregister(self._writer)
        for key, _ in self._selector.select(seconds):
            self._exchange(key)

    def _exchange(self, key: selectors.SelectorKey) -> None:
        try:
            if key.fd == self._writer:
                del self._sending[: os.write(key.fd, memoryview(self._sending)[:_CHUNK])]
            else:
                self._read(key.fd, key.data)
        except BlockingIOError:
            return
        except OSError:
            # The far side is gone. What it still said arrives at the other descriptors.
            self._sending.clear()
            with suppress(KeyError):
                self._selector.unregister(key.fd)

    def _read(self, handle: int, name: str) -> None:
        data = os.read(handle, _CHUNK)
        if not data:
            self._selector.unregister(handle)
            if name == "frames" and not self.ended:
                self.pump(lambda: self._words_of not in self._selector.get_map(), time.monotonic() + 1)
                self._failure = self._explain()
        elif name == "words":
            self._words = (self._words + data)[-_MOST_WORDS:]
        else:
            try:
                for body in self._received.add(data):
                    self._take(unpack_forged(body))
            except Unsupported as error:
                self._failure = f"the far side sends nonsense ({error})"

    def _take(self, frame: dict[str, object]) -> None:
        """Act on a message of the far side.

        Raises:
            Unsupported: it is garbled.
        """
        match frame:
            case {"ready": True}:
                if not self._ready:
                    self._note_tier(frame.get("tier"))
                self._ready = True
            case {"message": dict() as inner}:
                if len(self._frames) < _MOST_MESSAGES:
                    self._frames.append(cast("dict[str, object]", inner))
                else:
                    self._stop_flood()
            case {"output": "stdout" | "stderr" as name, "data": text}:
                self._add_output(str(name), unpack_bytes(text))
            case {"files": list() as rows}:
                self._files = [orders.read_file(row) for row in cast("list[object]", rows)]
            case {"failed": str(why)}:
                self._failure = why or "no reason given"
            case {"ended": report}:
                self.overflow = self.overflow or frame.get("overflow") is True
                self._report = orders.read_report(report)
            case _:
                raise Unsupported("a message of no known kind")

    def _note_tier(self, inner: object) -> None:
        """Add the tier of the far side; it may contain less than was asked for only if that is the name."""
        name = self._order.tier.name
        if isinstance(inner, str) and inner.isalpha() and inner != name:
            self.tier = f"{name} ({inner[:20]})"
            if inner == "unsafe" and not name.partition(":")[0].endswith("-bare"):
                self._failure = "it contains nothing"

    def _add_output(self, name: str, data: bytes) -> None:
        room = self._order.limits.output - sum(map(len, self._output.values()))
        self._output[name] += data[: max(room, 0)]
        if len(data) > room:
            self._stop_flood()

    def stop(self) -> ExitReport:
        """End the process if it still runs, and return how it ended.

        Raises:
            SandboxLost: it is lost.
        """
        if not self.ended:
            self.ask_end()
        return self.wait()

    def wait(self) -> ExitReport:
        """Wait for the end of the process. Standard output and standard error are complete then.

        Raises:
            SandboxLost: it is lost, or its end is not reported in time.
        """
        self.pump(lambda: self.ended, time.monotonic() + self._order.wall + _END)
        if self._report is None:
            raise SandboxLost(
                f"The sandbox was lost: {self._explain()}.",
                where=f"tier {self._order.tier.name}",
                next="Run the same command again.",
            )
        return self._report

    def _explain(self) -> str:
        lines = self._words.decode("utf-8", "replace").strip().splitlines()
        if self._failure or not lines:
            return self._failure or "no answer"
        return lines[-1] if lines[0].startswith("Traceback") else lines[0]

    def collect(self, most: int) -> list[Artefact]:
        """Return the files of the scratch folder, with up to ``most`` bytes of their content; none if it is lost."""
        self._files = None
        self._received.largest = 6 * self._order.limits.answer + 2 * most + _ROOM
        self._sending += pack_frame({"collect": most})
        deadline = time.monotonic() + _END
        while self._files is None and self._frames_of in self._selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                break
            self._exchange_ready(left)
        return self._files or []

    def close(self) -> None:
        """End the process and remove its scratch folder. Can be called twice, from any thread."""
        with self._closing:
            self._selector.close()
            if hasattr(self, "_process"):
                self._end_far_side()

    def _end_far_side(self) -> None:
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        try:
            self._process.wait(_END if self._ready else 1)
        except subprocess.TimeoutExpired:
            if self._launch.end:
                with suppress(OSError, subprocess.TimeoutExpired):
                    subprocess.run(self._launch.end, capture_output=True, check=False, timeout=_END)  # noqa: S603
            self._process.kill()
            self._process.wait()
