"""What must be known of a GGUF file before llama.cpp gets it.

A window larger than the model was trained for is of no use, and asking llama.cpp for a huge one can end the process.
What its control tokens are called, llama.cpp's server does not tell.
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
_BLOCKS = {
    0: (1, 4), 1: (1, 2), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 30: (1, 2),
    2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36), 20: (32, 18),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 21: (256, 110), 22: (256, 82),
    23: (256, 136), 29: (256, 56),
}
# fmt: on
"""Numbers in a block of each kind of tensor, and bytes that the block takes. Kinds that are newer count as nothing."""
LEAST_WINDOW = 1024
"""Tokens that the prompts of a session, an instruction and its answer take together, if they are short."""
_LONGEST_KEY = 1 << 16
_UNKNOWN, _CONTROL = 2, 3
"""Kinds of token that are read only where control tokens are."""
_NAMED_LIKE_CONTROL = re.compile(rb"<(?:\||\xef\xbd\x9c).+(?:\||\xef\xbd\x9c)>")
"""llama.cpp takes some of these for control tokens whatever the file says."""


@dataclass(frozen=True, slots=True)
class GgufInfo:
    """What a GGUF file says of its model."""

    window: int
    """Tokens of context that it was trained for."""
    controls: tuple[str, ...]
    """The names of its control tokens, such as ``<|im_end|>``."""
    size: int
    """Bytes that the file has at least."""


def check_gguf(path: Path) -> None:
    """Refuse a file that no conversation can be had with. Raises InputError."""
    window = read_info(path).window
    if window < LEAST_WINDOW:
        raise InputError(
            f"The model has a window of {window:,} tokens; a conversation needs {LEAST_WINDOW:,} or more.",
            where=str(path),
            next="Give a model with a larger context.",
        )


def read_info(path: Path) -> GgufInfo:
    """What the GGUF file at ``path`` says of its model.

    Raises:
        InputError: the file cannot be read, is no GGUF file or is damaged.
    """
    try:
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise InputError(
                    "Not a GGUF file.", where=str(path), next="Give a model in the format of llama.cpp, GGUF."
                )
            facts = _find_facts(file)
            size = file.seek(0, 2)
            if size < facts.size:
                raise InputError(
                    f"The model's file is cut short: it has {size:,} bytes of {facts.size:,}.",
                    where=str(path),
                    next="Fetch it again, and compare its SHA-256 with the original's.",
                )
            return facts
    except OSError as error:
        raise InputError(
            f"The model cannot be read: {error.strerror}.", where=str(path), next="Check the path."
        ) from error
    except (struct.error, KeyError, ValueError) as error:
        raise InputError(
            "The model's file is damaged or cut short.",
            where=str(path),
            next="Compare its size and SHA-256 with the original's, and fetch it again.",
        ) from error


def _find_facts(file: BinaryIO) -> GgufInfo:
    _version, tensors = _number(file, "<I"), _number(file, "<Q")
    window: int | None = None
    alignment = 32
    names: list[bytes] = []
    kinds: tuple[int, ...] = ()
    for _ in range(_number(file, "<Q")):
        key = _string(file)
        kind = _number(file, "<I")
        if key.endswith(b".context_length"):
            window = int(_number(file, _NUMBERS[kind]))
        elif key == b"tokenizer.ggml.tokens":
            names = _strings(file)
        elif key == b"tokenizer.ggml.token_type":
            kinds = _numbers(file)
        elif key == b"general.alignment":
            alignment = int(_number(file, _NUMBERS[kind]))
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
    return GgufInfo(window, tuple(controls), _end(file, tensors, max(1, alignment)))


def _end(file: BinaryIO, tensors: int, alignment: int) -> int:
    """Where the last tensor ends, from the list of all."""
    ends = [0]
    for _ in range(tensors):
        _string(file)
        shape = [_number(file, "<Q") for _ in range(_number(file, "<I"))]
        kind, offset = _number(file, "<I"), _number(file, "<Q")
        numbers, size = _BLOCKS.get(kind, (1, 0))
        ends.append(offset + prod(shape) // numbers * size)
    begin = -(-file.tell() // alignment) * alignment
    return begin + max(ends)


def _skip(file: BinaryIO, kind: int) -> None:
    if kind == _STRING:
        file.seek(_number(file, "<Q"), 1)
    elif kind == _ARRAY:
        inner, count = _number(file, "<I"), _number(file, "<Q")
        if inner in _NUMBERS:
            file.seek(count * struct.calcsize(_NUMBERS[inner]), 1)
        else:
            for _ in range(count):
                _skip(file, inner)
    else:
        file.seek(struct.calcsize(_NUMBERS[kind]), 1)


def _strings(file: BinaryIO) -> list[bytes]:
    _inner, count = _number(file, "<I"), _number(file, "<Q")
    return [_string(file) for _ in range(count)]


def _numbers(file: BinaryIO) -> tuple[int, ...]:
    inner, count = _number(file, "<I"), _number(file, "<Q")
    form = f"<{count}{_NUMBERS[inner][1]}"
    return struct.unpack(form, file.read(struct.calcsize(form)))


def _string(file: BinaryIO) -> bytes:
    size = _number(file, "<Q")
    if size > _LONGEST_KEY:
        raise ValueError("a key or a token is too long")
    return file.read(size)


def _number(file: BinaryIO, form: str) -> int:
    return struct.unpack(form, file.read(struct.calcsize(form)))[0]
