"""Plain values as JSON: what may cross the border of a sandbox.

None, booleans, numbers, strings, bytes, lists, tuples, sets and dictionaries of these, and nothing that carries code.
A container is a JSON list that begins with a letter for its type; scalars are as they are.
"""

# Values are of any type here, and what is decoded may be forged.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import binascii
import struct

DEPTH = 200  # most levels of containers in one another
# Longer integers cross as hexadecimal digits: Python limits the conversion from decimal ones.
_DIGITS = 4000
_PARTS = 500_000  # most brackets in a message of a sandbox: each list takes many times the bytes that it is written in
_COLLISIONS = 100  # most keys of a dictionary or a set with one hash

_LETTERS: dict[type, str] = {list: "l", tuple: "t", set: "s", frozenset: "f"}


class Unsupported(ValueError):
    """A value of a type that cannot cross."""


def encode_value(value: object, depth: int = 0) -> object:
    """Return ``value`` as JSON content.

    Raises:
        Unsupported: it contains something that is not plain.
    """
    if depth > DEPTH:
        raise Unsupported(f"more than {DEPTH} levels")
    if value is None or value is True or value is False:
        return value
    for base, letter in _LETTERS.items():
        if isinstance(value, base):
            # The methods of the base class: a subclass may have its own.
            return [letter, *(encode_value(item, depth + 1) for item in base.__iter__(value))]
    match value:
        case int():
            number = int.__index__(value)
            return ["i", hex(number)] if number.bit_length() > _DIGITS * 3 else number
        case float():
            return float.__float__(value)
        case str():
            return str.__str__(value)
        case complex():
            return ["c", value.real, value.imag]
        case bytes() | bytearray():
            return ["b", pack_bytes(value)]
        case dict():
            pairs = dict.items(value)
            return [
                "d",
                *([encode_value(key, depth + 1), encode_value(item, depth + 1)] for key, item in pairs),
            ]
        case _:
            raise Unsupported(type(value).__qualname__)


def decode_value(content: object, depth: int = 0) -> object:
    """Return the value of JSON content that :func:`encode_value` made. The content may be forged.

    Raises:
        Unsupported: it is not content of that form.
    """
    if depth > DEPTH + 1:
        raise Unsupported(f"more than {DEPTH} levels")
    match content:
        case None | bool() | int() | float() | str():
            return content
        case [str() as kind, *rest]:
            try:
                return _decode_container(kind, rest, depth)
            except (TypeError, ValueError, OverflowError) as error:
                raise Unsupported(f"garbled value: {error}") from error
        case _:
            raise Unsupported("garbled value")


def _decode_container(kind: str, rest: list[object], depth: int) -> object:
    match kind, rest:
        case "i", [str() as digits]:
            return int(digits, 16)
        case "c", [int() | float() as real, int() | float() as imaginary]:
            return complex(real, imaginary)
        case "b", [str() as text]:
            return unpack_bytes(text)
        case "d", _:
            keys: list[object] = []
            values: list[object] = []
            for pair in rest:
                match pair:
                    case [key, value]:
                        keys.append(decode_value(key, depth + 1))
                        values.append(decode_value(value, depth + 1))
                    case _:
                        raise Unsupported("garbled value")
            _refuse_collisions(keys)
            return dict(zip(keys, values, strict=True))
        case (("l" | "t" | "s" | "f"), _):
            items = [decode_value(item, depth + 1) for item in rest]
            if kind in "sf":
                _refuse_collisions(items)
            make = {"l": list[object], "t": tuple[object, ...], "s": set[object], "f": frozenset[object]}[
                kind
            ]
            return make(items)
        case _:
            raise Unsupported("garbled value")


def _refuse_collisions(keys: list[object]) -> None:
    """Refuse keys that were made to be slow: one that hashes as many others do is compared with each of them.

    Raises:
        Unsupported: they are such keys.
    """
    counts: dict[int, int] = {}
    for key in keys:
        number = hash(key)
        counts[number] = counts.get(number, 0) + 1
    if max(counts.values(), default=0) > _COLLISIONS:
        raise Unsupported("too many keys with one hash")


def pack_bytes(data: bytes | bytearray) -> str:
    """Return bytes as text in base64."""
    return binascii.b2a_base64(data, newline=False).decode()


def unpack_bytes(text: object) -> bytes:
    """Return the bytes that ``text`` stands for.

    Raises:
        Unsupported: it is not such a text.
    """
    try:
        return binascii.a2b_base64(text, strict_mode=True)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise Unsupported("garbled bytes") from error


def pack_frame(content: object) -> bytes:
    """Return a message as bytes: its length in four bytes, and its JSON."""
    # Imported here, because the far side of a sandbox starts the process inside before it needs any JSON.
    import json

    body = json.dumps(content).encode()
    return struct.pack(">I", len(body)) + body


def unpack_frame(body: bytes) -> dict[str, object]:
    """Return the message in ``body``.

    Raises:
        Unsupported: it is not a JSON object.
    """
    import json

    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Unsupported("garbled message") from error
    if not isinstance(content, dict):
        raise Unsupported("garbled message")
    return content


def unpack_forged(body: bytes) -> dict[str, object]:
    """Return the message in ``body``, which a program may have made to take much time and memory to be read.

    Raises:
        Unsupported: it is not a JSON object, or has too many parts.
    """
    if body.count(b"[") + body.count(b"{") > _PARTS:
        raise Unsupported("a message of too many parts")
    return unpack_frame(body)


class FrameReader:
    """Cuts a stream of bytes into frames of at most ``largest`` bytes."""

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self._received = bytearray()

    def add(self, data: bytes) -> list[bytes]:
        """Add bytes that have arrived, and return the frames that are complete, without their lengths.

        Raises:
            Unsupported: a frame is too large.
        """
        self._received += data
        frames: list[bytes] = []
        while len(self._received) >= 4:
            size = struct.unpack_from(">I", self._received)[0]
            if size > self.largest:
                self._received.clear()
                raise Unsupported(f"a message of {size:,} bytes")
            if len(self._received) < 4 + size:
                break
            frames.append(bytes(self._received[4 : 4 + size]))
            del self._received[: 4 + size]
        return frames
