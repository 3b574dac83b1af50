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
from typing import BinaryIO

from bactrian.errors import InputError

_MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_NUMBERS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
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
_LONGEST_KEY = 1 << 16
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
    try:
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise InputError(
                    "Not a GGUF file.", where=str(path), next="Choose a model in llama.cpp's format, GGUF."
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
    except OSError as error:
        raise InputError(
            f"The model cannot be read: {error.strerror}.", where=str(path), next="Check the path."
        ) from error
    except (struct.error, KeyError, ValueError) as error:
        raise InputError(
            "The model's file is damaged or truncated.",
            where=str(path),
            next="Compare its size and SHA-256 with the original's, and download it again.",
        ) from error


def _read_metadata(file: BinaryIO) -> GgufInfo:
    _version, tensors = _read_number(file, "<I"), _read_number(file, "<Q")
    window: int | None = None
    alignment = 32
    names: list[bytes] = []
    kinds: tuple[int, ...] = ()
    for _ in range(_read_number(file, "<Q")):
        key = _read_string(file)
        kind = _read_number(file, "<I")
        if key.endswith(b".context_length"):
            window = int(_read_number(file, _NUMBERS[kind]))
        elif key == b"tokenizer.ggml.tokens":
            names = _read_strings(file)
        elif key == b"tokenizer.ggml.token_type":
            kinds = _read_numbers(file)
        elif key == b"general.alignment":
            alignment = int(_read_number(file, _NUMBERS[kind]))
        else:
            _skip(file, kind)
    if window is None:
        raise ValueError("no context length")
    kinds += (0,) * (len(names) - len(kinds))
    controls = [
        name.decode("utf-8", "replace")
        for name, kind in zip(names, kinds, strict=False)
        if name and (kind in (_UNKNOWN, _CONTROL) or _NAMED_LIKE_CONTROL.fullmatch(name))
    ]
    return GgufInfo(window, tuple(controls), _find_end(file, tensors, max(1, alignment)))


def _find_end(file: BinaryIO, tensors: int, alignment: int) -> int:
    """Return the end of the last tensor in the list of tensors."""
    ends = [0]
    for _ in range(tensors):
        _read_string(file)
        shape = [_read_number(file, "<Q") for _ in range(_read_number(file, "<I"))]
        kind, offset = _read_number(file, "<I"), _read_number(file, "<Q")
        numbers, size = _BLOCKS.get(kind, (1, 0))
        ends.append(offset + prod(shape) // numbers * size)
    begin = -(-file.tell() // alignment) * alignment
    return begin + max(ends)


def _skip(file: BinaryIO, kind: int) -> None:
    if kind == _STRING:
        file.seek(_read_number(file, "<Q"), 1)
    elif kind == _ARRAY:
        inner, count = _read_number(file, "<I"), _read_number(file, "<Q")
        if inner in _NUMBERS:
            file.seek(count * struct.calcsize(_NUMBERS[inner]), 1)
        else:
            for _ in range(count):
                _skip(file, inner)
    else:
        file.seek(struct.calcsize(_NUMBERS[kind]), 1)


def _read_strings(file: BinaryIO) -> list[bytes]:
    _inner, count = _read_number(file, "<I"), _read_number(file, "<Q")
    return [_read_string(file) for _ in range(count)]


def _read_numbers(file: BinaryIO) -> tuple[int, ...]:
    inner, count = _read_number(file, "<I"), _read_number(file, "<Q")
    form = f"<{count}{_NUMBERS[inner][1]}"
    return struct.unpack(form, file.read(struct.calcsize(form)))


def _read_string(file: BinaryIO) -> bytes:
    size = _read_number(file, "<Q")
    if size > _LONGEST_KEY:
        raise ValueError("a key or a token is too long")
    return file.read(size)


def _read_number(file: BinaryIO, form: str) -> int:
    return struct.unpack(form, file.read(struct.calcsize(form)))[0]
