"""One process in a remote sandbox, as the trusted side sees it."""

# What is read may be forged, so its parts are of any type.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import cast

from bactrian.errors import SandboxError
from bactrian.sandbox.artefacts import Artefact
from bactrian.sandbox.inside.values import Unsupported, pack_frame
from bactrian.sandbox.orders import ProcessOrder, check_order
from bactrian.sandbox.outcome import ExitReport
from bactrian.sandbox.remote.protocol import FrameReader, read_bytes, read_file, read_report, write_order
from bactrian.sandbox.remote.tiers import RemoteStart, RemoteTier

_START = 60.0
"""Longest wait for a sandbox to start, in seconds."""
_END = 20.0
"""Longest wait for a report after the time that a program has, in seconds."""
_CHUNK = 1 << 16
_SAID = 4096
"""Most bytes of the command's own messages that are kept."""


class RemoteProcess:
    """A process in a remote sandbox. One thread at a time may use it.

    Nothing that the far side says is trusted: it can only spoil the outcome of its own program.

    Raises:
        SandboxError: the sandbox does not start.
        InputError: the order cannot be fulfilled on this tier, or its program is not installed.
    """

    def __init__(self, order: ProcessOrder, tier: RemoteTier) -> None:
        check_order(order)
        self._order = order
        limits = order.limits
        self._reader = FrameReader(2 * (limits.answer + limits.output + limits.disk) + (1 << 20))
        self._output = {"stdout": bytearray(), "stderr": bytearray()}
        self._frames: list[dict[str, object]] = []
        self._files: list[Artefact] | None = None
        self._said = bytearray()
        self._ready = False
        self._overflow = False
        self._failure = ""
        self._report: ExitReport | None = None
        self._start: RemoteStart = tier.prepare(limits)
        self._process = subprocess.Popen(  # noqa: S603
            self._start.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env=_build_environment(),
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdin, self._stdout, self._stderr = (
            self._process.stdin.fileno(), self._process.stdout.fileno(), self._process.stderr.fileno()
        )  # fmt: skip
        self._selector = selectors.DefaultSelector()
        for handle in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(handle, False)
        self._selector.register(self._stdout, selectors.EVENT_READ)
        self._selector.register(self._stderr, selectors.EVENT_READ)
        self._sending = bytearray(self._start.greeting + pack_frame(write_order(order)))
        try:
            self._wait_ready()
        except BaseException:
            self.close()
            raise

    def _wait_ready(self) -> None:
        if not self.pump(lambda: self._ready, time.monotonic() + _START):
            raise SandboxError(
                f"The sandbox did not start: {self._explain()}",
                where=f"tier {self._order.tier.name}",
                next=self._start.hint,
            )

    def _explain(self) -> str:
        if self._failure or not self._said.strip():
            return self._failure or "no answer"
        lines = self._said.decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines[0].startswith("Traceback") else lines[0]

    @property
    def ended(self) -> bool:
        """True if the process has ended and the far side has reported, or is gone."""
        return self._report is not None or bool(self._failure)

    @property
    def overflow(self) -> bool:
        """True if the process wrote more than it may."""
        return self._overflow

    def send(self, message: Mapping[str, object]) -> None:
        """Queue a message for the process; :meth:`pump` sends it."""
        self._say({"message": dict(message)})

    def _say(self, message: dict[str, object]) -> None:
        self._sending += pack_frame(message)

    def take_frames(self) -> list[dict[str, object]]:
        """Return the messages that have arrived since the last call. The program may have forged them."""
        frames, self._frames = self._frames, []
        return frames

    def take_output(self) -> tuple[str, str]:
        """Return standard output and standard error since the last call."""
        self.pump(lambda: True, 0.0)
        texts = [bytes(one).decode("utf-8", "replace") for one in self._output.values()]
        for one in self._output.values():
            one.clear()
        return texts[0], texts[1]

    def pump(self, stop: Callable[[], bool], deadline: float) -> bool:
        """Exchange data until ``stop()`` is true. Returns False if ``deadline`` (monotonic) comes first, or the end."""
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
            for key, _ in ready:
                self._exchange(key.fd)

    def _watch_writing(self) -> None:
        watched = self._stdin in self._selector.get_map()
        if self._sending and not watched:
            self._selector.register(self._stdin, selectors.EVENT_WRITE)
        elif watched and not self._sending:
            self._selector.unregister(self._stdin)

    def _exchange(self, handle: int) -> None:
        try:
            if handle == self._stdin:
                del self._sending[: os.write(handle, memoryview(self._sending)[:_CHUNK])]
                return
            data = os.read(handle, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            self._sending.clear()
            return
        if not data:
            self._selector.unregister(handle)
            if handle == self._stdout and not self.ended:
                self.pump(lambda: self._stderr not in self._selector.get_map(), time.monotonic() + 1)
                self._failure = self._explain()
        elif handle == self._stderr:
            self._said = (self._said + data)[-_SAID:]
        else:
            self._read(data)

    def _read(self, data: bytes) -> None:
        try:
            for frame in self._reader.add(data):
                self._take(frame)
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
                self._overflow = self._overflow or frame.get("overflow") is True
                self._report = read_report(report)
            case _:
                raise Unsupported("a message of no known kind")

    def _add_output(self, name: str, data: bytes) -> None:
        room = self._order.limits.output - sum(map(len, self._output.values()))
        self._output[name] += data[: max(room, 0)]
        if len(data) > room and not self._overflow:
            self._overflow = True
            self._say({"stop": True})

    def collect(self, most: int) -> list[Artefact]:
        """Return the files of the scratch folder, with up to ``most`` bytes of their content; none if it is lost."""
        self._files = None
        self._say({"collect": most})
        deadline = time.monotonic() + _END
        while self._files is None and self._stdout in self._selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                break
            self._watch_writing()
            for key, _ in self._selector.select(left):
                self._exchange(key.fd)
        return self._files or []

    def stop(self) -> ExitReport:
        """End the process if it still runs, and return what the far side says.

        Raises:
            SandboxError: the far side is gone.
        """
        if not self.ended:
            self._say({"stop": True})
        return self.wait()

    def wait(self) -> ExitReport:
        """Wait for the end of the process. Standard output and standard error are complete then.

        Raises:
            SandboxError: the far side is gone, or does not report in time.
        """
        self.pump(lambda: self.ended, time.monotonic() + self._order.wall + _END)
        if self._report is None:
            raise SandboxError(
                f"The sandbox was lost: {self._explain()}.",
                where=f"tier {self._order.tier.name}",
                next="Run the same command again.",
            )
        return self._report

    def close(self) -> None:
        """End the far side. Can be called twice, from any thread."""
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        self._selector.close()
        try:
            self._process.wait(_END if self._ready else 1)
        except subprocess.TimeoutExpired:
            self._end_by_force()

    def _end_by_force(self) -> None:
        if self._start.end:
            with suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(self._start.end, capture_output=True, check=False, timeout=_END)  # noqa: S603
        self._process.kill()
        self._process.wait()


def _build_environment() -> dict[str, str]:
    """Return this process's environment without the tier that it names, which is not meant for the far side."""
    return {name: value for name, value in os.environ.items() if name != "BACTRIAN_TIER"}
