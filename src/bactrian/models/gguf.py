"""What must be known of a GGUF file before llama.cpp gets it.

A window larger than the model was trained for is of no use, and asking llama.cpp for a huge one can end the process.
What its control tokens are called, llama.cpp's server does not tell.
The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
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
_UNKNOWN, _CONTROL = 2, 3
"""Kinds of token that are read only where control tokens are."""
_NAMED_LIKE_CONTROL = re.compile(rb"<(?:\||\xef\xbd\x9c).+(?:\||\xef\xbd\x9c)>")
"""llama.cpp takes some of these for control tokens whatever the file says."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a GGUF file says of its model."""

    window: int
    """Tokens of context that it was trained for."""
    controls: tuple[str, ...]
    """The names of its control tokens, such as ``<|im_end|>``."""


def read_facts(path: Path) -> Facts:
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
            return _find_facts(file)
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


def _find_facts(file: BinaryIO) -> Facts:
    _version, _tensors = _number(file, "<I"), _number(file, "<Q")
    window: int | None = None
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
        else:
            _skip(file, kind)
        if window is not None and names and kinds:
            break  # What follows is long, and of no use here.
    if window is None:
        raise ValueError("no context length")
    kinds += (0,) * (len(names) - len(kinds))
    controls = [
        name.decode("utf-8", "replace")
        for name, kind in zip(names, kinds, strict=False)
        if name and (kind in (_UNKNOWN, _CONTROL) or _NAMED_LIKE_CONTROL.fullmatch(name))
    ]
    return Facts(window, tuple(controls))


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
