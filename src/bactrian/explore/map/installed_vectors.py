"""Vectors by the meaning of words, from weights that are installed; nothing is downloaded.

WordLlama's package holds a table with a vector for each token (MIT licence, distilled from Llama 2) and its tokenizer.
The vector of a text is the mean of its tokens' vectors.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from bactrian.explore.map.embedding import Vectors

NAME = "wordllama"
"""The package."""
_WEIGHTS, _TOKENIZER = "weights/*.safetensors", "tokenizers/*_tokenizer_config.json"
_TABLE = "embedding.weight"
_CHUNK = 2000
"""Texts at a time."""
_LONGEST = 4000
"""Characters of a text that count."""


def find_weights() -> tuple[Path, Path] | None:
    """Return the files of weights and tokenizer; None if the package, or the reader of its tokenizer, is missing."""
    if find_spec("tokenizers") is None or (package := find_spec(NAME)) is None:
        return None
    for folder in map(Path, package.submodule_search_locations or ()):
        weights, tokenizer = sorted(folder.glob(_WEIGHTS)), sorted(folder.glob(_TOKENIZER))
        if weights and tokenizer:
            return weights[0], tokenizer[0]
    return None


def compute_installed_vectors(
    texts: Sequence[str], weights: Path, tokenizer: Path, size: int = 64
) -> Vectors:
    """Return vectors of length 1 with at most ``size`` numbers, their principal components; 0 for an empty text.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file has another form.
    """
    table = _read_table(weights)
    reader: Any = import_module("tokenizers").Tokenizer.from_file(str(tokenizer))
    made = np.zeros((len(texts), table.shape[1]), np.float32)
    for first in range(0, len(texts), _CHUNK):
        some = [text[:_LONGEST] for text in texts[first : first + _CHUNK]]
        for row, one in enumerate(reader.encode_batch(some, add_special_tokens=False), start=first):
            if one.ids:
                made[row] = table[one.ids].mean(axis=0, dtype=np.float32)
    return _scale(_project(_scale(made), size))


def _project(vectors: Vectors, size: int) -> Vectors:
    """Return the components of ``vectors`` along the directions in which they differ most."""
    centred = vectors - vectors.mean(axis=0)
    directions = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :size]
    return (centred @ directions).astype(np.float32)


def _scale(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)


def _read_table(path: Path) -> Vectors:
    """Return the table of a file in the format safetensors: the length of a JSON header, the header, the numbers."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header: dict[str, Any] = json.loads(file.read(length)) if length < 1 << 20 else {}
        form: dict[str, Any] = header.get(_TABLE, {})
        if form.get("dtype") != "F16" or len(form.get("shape", ())) != 2:
            raise ValueError(f"{path.name} has no table {_TABLE!r} of half-precision numbers")
        begin, end = form["data_offsets"]
        file.seek(8 + length + begin)
        return np.frombuffer(file.read(end - begin), np.float16).reshape(form["shape"]).astype(np.float32)
