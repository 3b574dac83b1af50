"""What must be known of a GGUF file before llama.cpp gets it.

A window larger than the model was trained for is of no use, and asking llama.cpp for a huge one can end the process.
The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
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
_LONGEST_KEY = 1 << 16


def trained_window(path: Path) -> int:
    """Tokens of context that the model at ``path`` was trained for.

    Raises:
        InputError: the file cannot be read, is no GGUF file or is damaged.
    """
    try:
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise InputError(
                    "Not a GGUF file.", where=str(path), next="Give a model in the format of llama.cpp, GGUF."
                )
            return _find_window(file)
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


def _find_window(file: BinaryIO) -> int:
    _version, _tensors = _number(file, "<I"), _number(file, "<Q")
    for _ in range(_number(file, "<Q")):
        key = _string(file)
        kind = _number(file, "<I")
        if key.endswith(b".context_length"):
            return int(_number(file, _NUMBERS[kind]))
        _skip(file, kind)
    raise ValueError("no context length")


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


def _string(file: BinaryIO) -> bytes:
    size = _number(file, "<Q")
    if size > _LONGEST_KEY:
        raise ValueError("a key is too long")
    return file.read(size)


def _number(file: BinaryIO, form: str) -> int:
    return struct.unpack(form, file.read(struct.calcsize(form)))[0]
