"""Metadata of GGUF files that is needed before llama.cpp loads them.

A window larger than the trained one is useless, and requesting a huge one can crash llama.cpp. The names of the control
tokens are read here because llama.cpp's server does not report them.
The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from bactrian.errors import InputError, explain_os_errors

_MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
# By type, as the module struct writes them
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
# fmt: off
# Values per block and bytes per block, by tensor type. Unknown, newer types count as 0 bytes.
_BLOCKS = {
    0: (1, 4), 1: (1, 2), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 30: (1, 2),
    2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36), 20: (32, 18),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 21: (256, 110), 22: (256, 82),
    23: (256, 136), 29: (256, 56),
}
# fmt: on
LEAST_WINDOW = 1024  # Minimum window: tokens of short prompts, an instruction and its answer together
_LONGEST_VALUE = 1 << 24  # Bytes: a longer one means that the file is damaged
_UNKNOWN, _CONTROL = 2, 3  # Token types that are parsed only where control tokens are allowed
# llama.cpp treats some of these as control tokens regardless of their type.
_NAMED_LIKE_CONTROL = re.compile(rb"<(?:\||\xef\xbd\x9c).+(?:\||\xef\xbd\x9c)>")


@dataclass(frozen=True, slots=True)
class GgufInfo:
    """Metadata of a GGUF file."""

    window: int  # Tokens of context that the model was trained with
    controls: tuple[str, ...]  # Names of the control tokens, such as `<|im_end|>`
    size: int  # Minimum size of the complete file, in bytes


def check_gguf(path: Path) -> None:
    """Check that a file is usable for conversations. Raises InputError if not."""
    window = read_info(path).window
    if window < LEAST_WINDOW:
        raise InputError(
            f"The model has a window of {window:,} tokens; a conversation needs {LEAST_WINDOW:,} or more.",
            where=str(path),
            next="Choose a model with a larger context.",
        )


def read_info(path: Path) -> GgufInfo:
    """Read the metadata of the GGUF file at ``path``.

    Raises:
        InputError: the file cannot be read, is not a GGUF file or is damaged.
    """
    with explain_os_errors("The model cannot be read", path, "Check the path."):
        try:
            with path.open("rb") as file:
                if file.read(len(_MAGIC)) != _MAGIC:
                    raise InputError(
                        "Not a GGUF file.",
                        where=str(path),
                        next="Choose a model in llama.cpp's format, GGUF.",
                    )
                info = _read_metadata(file)
                size = file.seek(0, 2)
                if size < info.size:
                    raise InputError(
                        f"The model's file is truncated: it has {size:,} bytes of {info.size:,}.",
                        where=str(path),
                        next="Download it again, and compare its SHA-256 with the original's.",
                    )
                return info
        except (struct.error, KeyError, ValueError) as error:
            raise InputError(
                "The model's file is damaged or truncated.",
                where=str(path),
                next="Compare its size and SHA-256 with the original's, and download it again.",
            ) from error


def read_vocabulary(path: Path) -> tuple[list[bytes], list[bytes]]:
    """Return the tokens of a whole GGUF file by their ids, and the merges that make them, the first ones first."""
    with path.open("rb") as file:
        file.read(len(_MAGIC))
        _, values = _read_values(file)
    return values.get(b"tokenizer.ggml.tokens", []), values.get(b"tokenizer.ggml.merges", [])


def _read_values(file: BinaryIO) -> tuple[int, dict[bytes, Any]]:
    """Return the number of tensors, and the metadata; vocabularies of names and their merges are a few megabytes."""
    _version, tensors, count = _read_numbers(file, "<IQQ")
    values: dict[bytes, Any] = {}
    for _ in range(count):
        key = _read_value(file, _STRING)
        values[key] = _read_value(file, *_read_numbers(file, "<I"))
    return tensors, values


def _read_metadata(file: BinaryIO) -> GgufInfo:
    tensors, values = _read_values(file)
    window = next((value for key, value in values.items() if key.endswith(b".context_length")), None)
    if window is None:
        raise ValueError("no context length")
    names: list[bytes] = values.get(b"tokenizer.ggml.tokens", [])
    kinds: tuple[int, ...] = values.get(b"tokenizer.ggml.token_type", ()) + (0,) * len(names)
    controls = [
        name.decode("utf-8", "replace")
        for name, kind in zip(names, kinds, strict=False)
        if name and (kind in (_UNKNOWN, _CONTROL) or _NAMED_LIKE_CONTROL.fullmatch(name))
    ]
    ends = [0]  # Of each tensor's values, behind the list of tensors
    for _ in range(tensors):
        _read_value(file, _STRING)
        (dimensions,) = _read_numbers(file, "<I")
        *shape, kind, offset = _read_numbers(file, f"<{dimensions}QIQ")
        numbers, size = _BLOCKS.get(kind, (1, 0))
        ends.append(offset + prod(shape) // numbers * size)
    alignment = max(1, values.get(b"general.alignment", 32))
    return GgufInfo(int(window), tuple(controls), -(-file.tell() // alignment) * alignment + max(ends))


def _read_value(file: BinaryIO, kind: int) -> Any:
    """Read a value of a type; strings stay bytes. Raises ValueError or struct.error where the file is damaged."""
    if kind == _STRING:
        return _read_bytes(file, *_read_numbers(file, "<Q"))
    if kind != _ARRAY:
        return _read_numbers(file, f"<{_NUMBERS[kind]}")[0]
    inner, count = _read_numbers(file, "<IQ")
    if inner in _NUMBERS:
        return _read_numbers(file, f"<{count}{_NUMBERS[inner]}")
    return [_read_value(file, inner) for _ in range(count)]


def _read_numbers(file: BinaryIO, form: str) -> tuple[Any, ...]:
    return struct.unpack(form, _read_bytes(file, struct.calcsize(form)))


def _read_bytes(file: BinaryIO, size: int) -> bytes:
    if size > _LONGEST_VALUE:
        raise ValueError("a value is too long")
    return file.read(size)
