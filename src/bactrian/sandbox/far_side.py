"""The far side of a remote sandbox: starts one sandbox and connects it to a pair of streams.

It runs in a container, from the code that ``payload.py`` sends there, or on another computer as
``bactrian sandbox serve``.
"""

# What is read may be forged, so its parts are of any type.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import os
import selectors
from collections.abc import Sequence
from typing import cast

from bactrian.errors import BactrianError, SandboxError
from bactrian.sandbox.inside.values import Unsupported, pack_frame, unpack_frame
from bactrian.sandbox.orders import FrameReader, read_order, write_bytes, write_file, write_report
from bactrian.sandbox.sandbox_process import LocalProcess
from bactrian.sandbox.tiers import LandlockOnly, Tier, Unsafe

_CHUNK = 1 << 16
_LARGEST = 1 << 30


class _Connection:
    """The streams to the side that asks."""

    def __init__(self, reading: int, writing: int) -> None:
        self.reading = reading
        self._writing = writing
        self._frames = FrameReader(_LARGEST)

    def receive(self) -> list[dict[str, object]] | None:
        """Wait for bytes and return the messages that are complete; None if the other side is gone."""
        try:
            data = os.read(self.reading, _CHUNK)
            return [unpack_frame(body) for body in self._frames.add(data)] if data else None
        except (OSError, Unsupported):
            return None

    def send(self, message: dict[str, object]) -> None:
        """Send a message."""
        frame = memoryview(pack_frame(message))
        while frame:
            frame = frame[os.write(self._writing, frame) :]


def provide_sandbox(reading: int, writing: int, tiers: Sequence[Tier]) -> None:
    """Serve one sandbox through two descriptors, until the side that asks closes its own.

    Args:
        reading: Where messages come from.
        writing: Where messages go to.
        tiers: The ways to contain programs here; the first that works is used.
    """
    connection = _Connection(reading, writing)
    messages: list[dict[str, object]] = []
    while not messages:
        received = connection.receive()
        if received is None:
            return
        messages += received
    try:
        process, tier = _start(messages.pop(0), tiers)
    except (BactrianError, Unsupported) as error:
        connection.send({"failed": error.what if isinstance(error, BactrianError) else str(error)})
        return
    try:
        connection.send({"ready": True, "tier": tier.name})
        _relay(connection, process, messages)
    except BrokenPipeError:
        return
    finally:
        process.close()


def _start(message: dict[str, object], tiers: Sequence[Tier]) -> tuple[LocalProcess, Tier]:
    """Start the sandbox that ``message`` orders, in the first tier that works."""
    failure: BactrianError = SandboxError("No sandbox works here.")
    for tier in tiers:
        try:
            return LocalProcess(read_order(message, tier)), tier
        except SandboxError as error:
            failure = error
    raise failure


def _relay(connection: _Connection, process: LocalProcess, messages: list[dict[str, object]]) -> None:
    """Pass messages on in both directions until the other side closes its end."""
    reported = False
    with selectors.DefaultSelector() as selector:
        selector.register(connection.reading, selectors.EVENT_READ)
        selector.register(process.fileno(), selectors.EVENT_READ)
        while True:
            for message in messages:
                match message:
                    case {"message": dict() as inner}:
                        process.send(cast("dict[str, object]", inner))
                    case {"collect": int(most)}:
                        artefacts = process.collect(most)
                        connection.send({"files": [write_file(artefact) for artefact in artefacts]})
                    case {"stop": True} if not process.ended:
                        process.ask_end()
                    case _:
                        continue
            process.pump(lambda: True, 0.0)
            # What the process wrote goes before its message. Unsent output stays under its limit.
            if frames := process.take_frames():
                _send_output(connection, process)
                for frame in frames:
                    connection.send({"message": frame})
            if process.ended and not reported:
                reported = True
                selector.unregister(process.fileno())
                _tell_end(connection, process)
            ready = {key.fd for key, _ in selector.select()}
            received = connection.receive() if connection.reading in ready else []
            if received is None:
                return
            messages = received


def _send_output(connection: _Connection, process: LocalProcess) -> None:
    for name, data in process.take_bytes().items():
        if data:
            connection.send({"output": name, "data": write_bytes(data)})


def _tell_end(connection: _Connection, process: LocalProcess) -> None:
    try:
        report = process.wait()
    except SandboxError as error:
        connection.send({"failed": error.what})
        return
    _send_output(connection, process)
    for frame in process.take_frames():
        connection.send({"message": frame})
    connection.send({"ended": write_report(report), "overflow": process.overflow})


def provide_in_container() -> None:
    """Serve a container through its standard streams: Landlock and seccomp inside it, where its kernel has them."""
    provide_sandbox(0, 1, (LandlockOnly(), Unsafe()))
