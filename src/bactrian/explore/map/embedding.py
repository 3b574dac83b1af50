"""Vectors of short texts without a model: TF-IDF and a truncated singular value decomposition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from bactrian.language.words import STOP_WORDS, stem, tokenize

Vectors = NDArray[np.float32]
_WORDS = 8192
"""Most words that count; the commonest in at least two texts."""
_CHUNK = 4096
"""Rows at a time, which bounds the memory."""
_SEED = 20230331


@dataclass(frozen=True, slots=True)
class WordTable:
    """Weighted words of each text, as a sparse matrix in rows."""

    words: tuple[str, ...]
    """A readable form of each column."""
    starts: NDArray[np.int64]
    """Where each row begins, and the end of the last one."""
    columns: NDArray[np.int32]
    weights: Vectors


def count_words(texts: Sequence[str]) -> WordTable:
    """Return the TF-IDF weights of the words of each text; rows have length 1, or 0 without a known word."""
    spellings: dict[str, Counter[str]] = {}
    rows: list[Counter[str]] = []
    for text in texts:
        row: Counter[str] = Counter()
        for word in tokenize(text):
            if word in STOP_WORDS or (len(word) < 2 and word.isascii()) or word.isdecimal():
                continue
            key = stem(word)
            row[key] += 1
            spellings.setdefault(key, Counter())[word] += 1
        rows.append(row)
    seen = Counter(key for row in rows for key in row)
    kept = [key for key, count in seen.most_common(_WORDS) if count > 1 or len(texts) < 50]
    place = {key: number for number, key in enumerate(kept)}
    rarity = [log((1 + len(texts)) / (1 + seen[key])) + 1 for key in kept]
    starts, columns, weights = [0], list[int](), list[float]()
    for row in rows:
        known = [
            (place[key], (1 + log(count)) * rarity[place[key]]) for key, count in row.items() if key in place
        ]
        length = sum(weight**2 for _, weight in known) ** 0.5 or 1.0
        columns += [column for column, _ in known]
        weights += [weight / length for _, weight in known]
        starts.append(len(columns))
    return WordTable(
        tuple(spellings[key].most_common(1)[0][0] for key in kept),
        np.array(starts),
        np.array(columns, np.int32),
        np.array(weights, np.float32),
    )


def compute_vectors(table: WordTable, size: int = 64) -> Vectors:
    """Return vectors of length 1, at most ``size`` numbers each, by a randomized decomposition (Halko 2011)."""
    draw = np.random.default_rng(_SEED)
    width = min(size + 8, max(len(table.words), 1))
    # Columns in order, for the products with the transpose.
    order = np.argsort(table.columns, kind="stable")
    ends = np.searchsorted(table.columns[order], np.arange(len(table.words) + 1))
    rows = np.repeat(np.arange(len(table.starts) - 1), np.diff(table.starts)).astype(np.int32)
    turned = (ends, rows[order], table.weights[order])
    straight = (table.starts, table.columns, table.weights)
    basis = draw.standard_normal((len(table.words), width), np.float32)
    for _ in range(2):
        across = np.linalg.qr(_multiply(straight, basis))[0]
        basis = np.linalg.qr(_multiply(turned, across))[0]
    left, values, _ = np.linalg.svd(_multiply(straight, basis), full_matrices=False)
    vectors = (left * values)[:, :size]
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0).astype(np.float32)


def _multiply(sparse: tuple[NDArray[np.int64], NDArray[np.int32], Vectors], dense: Vectors) -> Vectors:
    """Multiply a sparse matrix, as starts, columns and weights, by a dense one."""
    starts, columns, weights = sparse
    made = np.zeros((len(starts) - 1, dense.shape[1]), np.float32)
    for first in range(0, len(made), _CHUNK):
        last = min(first + _CHUNK, len(made))
        inside = slice(starts[first], starts[last])
        terms = weights[inside, None] * dense[columns[inside]]
        filled = np.flatnonzero(np.diff(starts[first : last + 1]))
        if len(filled):
            made[first + filled] = np.add.reduceat(terms, starts[first + filled] - starts[first], axis=0)
    return made
