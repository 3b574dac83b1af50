"""What both sides of a remote sandbox say: frames of JSON, each after its length in four bytes (docs/sandbox.md).

The side that asks trusts nothing that it reads here: a program may have taken over the other side.
"""

# What is read may be forged, so its parts are of any type.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import base64
import os
import struct
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

from bactrian.sandbox.artefacts import Artefact
from bactrian.sandbox.inside.values import Unsupported, unpack_frame
from bactrian.sandbox.limits import Limits
from bactrian.sandbox.orders import ProcessOrder
from bactrian.sandbox.outcome import ExitReport
from bactrian.sandbox.tiers import Tier

VERSION = 1
_HEAD = 4


class FrameReader:
    """Cuts a stream of bytes into frames of at most ``largest`` bytes."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._received = bytearray()

    def add(self, data: bytes) -> list[dict[str, object]]:
        """Add bytes that have arrived, and return the frames that are complete.

        Raises:
            Unsupported: a frame is too large or not JSON.
        """
        self._received += data
        frames: list[dict[str, object]] = []
        while len(self._received) >= _HEAD:
            size = struct.unpack_from(">I", self._received)[0]
            if size > self._largest:
                raise Unsupported(f"a message of {size:,} bytes")
            if len(self._received) < _HEAD + size:
                break
            frames.append(unpack_frame(bytes(self._received[_HEAD : _HEAD + size])))
            del self._received[: _HEAD + size]
        return frames


def write_order(order: ProcessOrder) -> dict[str, object]:
    """Return the first message: what to start."""
    return {
        "version": VERSION,
        "limits": asdict(order.limits),
        "files": {name: write_bytes(content) for name, content in order.files.items()},
        "packages": order.packages,
        "command": list(order.command),
        "wall": order.wall,
    }


def read_order(message: Mapping[str, Any], tier: Tier) -> ProcessOrder:
    """Return the order of a first message, for ``tier``.

    Raises:
        Unsupported: it is not such a message.
        InputError: a limit is out of range.
    """
    if message.get("version") != VERSION:
        raise Unsupported(f"version {message.get('version')} of the protocol; this side speaks {VERSION}")
    try:
        return ProcessOrder(
            tier,
            Limits(**message["limits"]),
            {name: read_bytes(text) for name, text in message["files"].items()},
            bool(message["packages"]),
            tuple(map(str, message["command"])),
            float(message["wall"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unsupported(f"an order that cannot be read: {error}") from error


def write_report(report: ExitReport) -> dict[str, object]:
    """Return how a sandbox ended, as JSON content."""
    return {**asdict(report), "refused": dict(report.refused)}


def read_report(content: object) -> ExitReport:
    """Return how a sandbox ended, as reported by the other side.

    Raises:
        Unsupported: the content is not a report.
    """
    match content:
        case {
            "status": int(status),
            "stopped": str(stopped),
            "cpu": int() | float() as cpu,
            "memory": int(memory),
            "wall": int() | float() as wall,
            "refused": dict() as refused,
        }:
            pass
        case _:
            raise Unsupported("garbled report")
    try:
        os.waitstatus_to_exitcode(status)
        calls = {str(name)[:60]: int(count) for name, count in cast("dict[object, Any]", refused).items()}
    except (TypeError, ValueError, OverflowError) as error:
        raise Unsupported("garbled report") from error
    return ExitReport(status, stopped, float(cpu), memory, float(wall), calls)


def write_file(one: Artefact) -> dict[str, object]:
    """Return a file of the scratch folder as JSON content."""
    content = None if one.content is None else write_bytes(one.content)
    return {"name": one.name, "size": one.size, "content": content}


def read_file(content: object) -> Artefact:
    """Return a file of the scratch folder.

    Raises:
        Unsupported: the content is not a file.
    """
    match content:
        case {"name": str(name), "size": int(size), "content": None}:
            return Artefact(name, size, None)
        case {"name": str(name), "size": int(size), "content": str(text)}:
            return Artefact(name, size, read_bytes(text))
        case _:
            raise Unsupported("garbled file")


def write_bytes(data: bytes) -> str:
    """Return bytes as text."""
    return base64.b64encode(data).decode()


def read_bytes(text: object) -> bytes:
    """Return the bytes that ``text`` stands for.

    Raises:
        Unsupported: it is not such a text.
    """
    if not isinstance(text, str):
        raise Unsupported("garbled bytes")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise Unsupported("garbled bytes") from error
