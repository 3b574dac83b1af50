"""The process that draws a map: ``python -m bactrian.explore.map_drawing RUN INDEX NUMBER WHAT``.

It makes vectors of the words of short texts, arranges them in the plane by PaCMAP (Wang et al. 2021), groups them into
topics by k-means, with numpy alone, and stores places, topics and its progress in the index.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bactrian.amounts import write_percent
from bactrian.explore.library_index import MAP_WIDTH, write_index, write_meta
from bactrian.protocol.markers import read_instruction
from bactrian.store import RunStore, open_store

Points = NDArray[np.float32]
Numbers = NDArray[np.int64]
_NEIGHBOURS, _MIDDLE, _FAR = 10, 5, 20
_PHASES = (100, 100, 250)
_CHUNK = 2048
# Rounds of k-means.
_ROUNDS = 12
_SEED = 20230331


def arrange_points(vectors: Points, report: Callable[[float], None] = lambda _: None) -> Points:
    """Return a place in the plane for each vector; near vectors are near. ``report`` receives the share that is done.

    Three kinds of pairs pull or push: near neighbours, the second nearest of six random others, and random others.
    """
    count = len(vectors)
    if count < 2 * _NEIGHBOURS or vectors.shape[1] < 2:
        return np.pad(vectors[:, :2], ((0, 0), (0, max(0, 2 - vectors.shape[1]))))
    draw = np.random.default_rng(_SEED)
    near = find_neighbours(vectors, _NEIGHBOURS)
    report(0.2)
    pairs = (near, _draw_middle(vectors, draw), draw.integers(0, count, (count, _FAR)))
    centred = vectors - vectors.mean(axis=0)
    places = centred @ np.linalg.eigh(centred.T @ centred)[1][:, -2:]
    places = (0.01 * places / (places.std(axis=0) + 1e-9)).astype(np.float32)
    first, second = np.zeros_like(places), np.zeros_like(places)
    steps = sum(_PHASES)
    for step in range(steps):
        slope = np.zeros_like(places)
        for kind, (others, weight) in enumerate(zip(pairs, _weigh(step), strict=True)):
            if weight:
                _pull(places, others, kind, weight, slope)
        first += 0.1 * (slope - first)
        second += 0.001 * (slope**2 - second)
        rate = np.sqrt(1 - 0.999 ** (step + 1)) / (1 - 0.9 ** (step + 1))
        places -= rate * first / (np.sqrt(second) + 1e-7)
        if step % 10 == 9:
            report(0.2 + 0.8 * (step + 1) / steps)
    return places


def _weigh(step: int) -> tuple[float, float, float]:
    """Return the weights of near, middle and far pairs at a step."""
    if step < _PHASES[0]:
        done = step / _PHASES[0]
        return 2.0, 1000 * (1 - done) + 3 * done, 1.0
    return (3.0, 3.0, 1.0) if step < _PHASES[0] + _PHASES[1] else (1.0, 0.0, 1.0)


def _pull(places: Points, others: Numbers, kind: int, weight: float, slope: Points) -> None:
    """Add the slope of one kind of pairs: each row of ``others`` are the partners of one point."""
    apart = places[:, None, :] - places[others]
    square = 1 + np.einsum("ijk,ijk->ij", apart, apart)
    if kind == 2:
        force = -2 / (1 + square) ** 2
    else:
        scale = (10.0, 10_000.0)[kind]
        force = 2 * scale / (scale + square) ** 2
    apart *= (weight * force)[:, :, None]
    slope += apart.sum(axis=1)
    flat = others.ravel()
    for axis in range(2):
        slope[:, axis] -= np.bincount(flat, apart[:, :, axis].ravel(), len(places)).astype(np.float32)


def _draw_middle(vectors: Points, draw: np.random.Generator) -> Numbers:
    """Return for each vector, several times, the second nearest of six random others."""
    middle = np.empty((len(vectors), _MIDDLE), np.int64)
    for column in range(_MIDDLE):
        some = draw.integers(0, len(vectors), (len(vectors), 6))
        for first in range(0, len(vectors), _CHUNK):
            part = slice(first, first + _CHUNK)
            alike = np.einsum("id,ijd->ij", vectors[part], vectors[some[part]])
            second = np.argsort(-alike, axis=1)[:, 1:2]
            middle[part, column] = np.take_along_axis(some[part], second, axis=1)[:, 0]
    return middle


def find_neighbours(vectors: Points, count: int, cells: int | None = None) -> Numbers:
    """Return the ``count`` nearest others of each vector of length 1, looked for in the eight nearest of ``cells``."""
    total = len(vectors)
    cells = cells or max(1, min(256, total // 200))
    groups, centres = group_points(vectors, cells)
    close = np.argsort(-(centres @ centres.T), axis=1)[:, : min(8, cells)]
    members: list[Numbers] = [np.flatnonzero(groups == cell) for cell in range(cells)]
    nearest = np.empty((total, count), np.int64)
    for cell, mine in enumerate(members):
        pool = np.flatnonzero(np.isin(groups, close[cell]))
        if len(pool) <= count:
            pool = np.arange(total)
        for first in range(0, len(mine), _CHUNK):
            some = mine[first : first + _CHUNK]
            alike = vectors[some] @ vectors[pool].T
            alike[some[:, None] == pool[None, :]] = -2
            nearest[some] = pool[np.argpartition(-alike, count - 1, axis=1)[:, :count]]
    return nearest


def group_points(vectors: Points, count: int) -> tuple[Numbers, Points]:
    """Return the group of each vector and the centres of the groups, by k-means on a sample."""
    draw = np.random.default_rng(_SEED)
    sample = vectors[draw.permutation(len(vectors))[: max(20_000, 10 * count)]]
    centres = sample[draw.choice(len(sample), count, replace=False)].copy()
    for _ in range(_ROUNDS):
        groups = _find_nearest(sample, centres)
        for group in range(count):
            inside = sample[groups == group]
            if len(inside):
                centres[group] = inside.mean(axis=0)
    return _find_nearest(vectors, centres), centres


def _find_nearest(vectors: Points, centres: Points) -> Numbers:
    offset = (centres**2).sum(axis=1) / 2
    return np.concatenate(
        [
            np.argmax(vectors[first : first + _CHUNK] @ centres.T - offset, axis=1)
            for first in range(0, len(vectors), _CHUNK)
        ]
        or [np.empty(0, np.int64)]
    )


# Points of short texts without a model: TF-IDF and a truncated singular value decomposition.


# Most words that count; the commonest in at least two texts.
_WORDS = 8192
# Rows at a time, which bounds the memory.
_ROWS = 4096


@dataclass(frozen=True, slots=True)
class WordTable:
    """Weighted words of each text, as a sparse matrix in rows."""

    # A readable form of each column.
    words: tuple[str, ...]
    # Where each row begins, and the end of the last one.
    starts: NDArray[np.int64]
    columns: NDArray[np.int32]
    weights: Points


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
    columns_of = {key: number for number, key in enumerate(kept)}
    rarity = [log((1 + len(texts)) / (1 + seen[key])) + 1 for key in kept]
    starts, columns, weights = [0], list[int](), list[float]()
    for row in rows:
        known = [
            (columns_of[key], (1 + log(count)) * rarity[columns_of[key]])
            for key, count in row.items()
            if key in columns_of
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


def compute_vectors(table: WordTable, size: int = 64) -> Points:
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


def _multiply(sparse: tuple[NDArray[np.int64], NDArray[np.int32], Points], dense: Points) -> Points:
    """Multiply a sparse matrix, as starts, columns and weights, by a dense one."""
    starts, columns, weights = sparse
    made = np.zeros((len(starts) - 1, dense.shape[1]), np.float32)
    for first in range(0, len(made), _ROWS):
        last = min(first + _ROWS, len(made))
        inside = slice(starts[first], starts[last])
        terms = weights[inside, None] * dense[columns[inside]]
        filled = np.flatnonzero(np.diff(starts[first : last + 1]))
        if len(filled):
            made[first + filled] = np.add.reduceat(terms, starts[first + filled] - starts[first], axis=0)
    return made


# The drawing of a map.


_PAGE = 1000
# Texts of a topic, on average, at least.
_SMALLEST = 15


def main() -> None:
    """Draw the map that the arguments name."""
    os.nice(10)
    run, index, number, what = sys.argv[1:]
    draw_map(Path(run), Path(index), int(number), what)


def draw_map(run: Path, index: Path, number: int, what: str) -> None:
    """Draw the map of the tasks or the first instructions of ``run``, which has this ``number`` in the index."""
    with write_index(index, [number]) as connection:

        def tell(progress: str) -> None:
            write_meta(connection, number, {f"drawing of {what}": progress})

        rows, texts = asyncio.run(_read_texts(run, what))
        tell(f"{len(texts):,} texts read")
        table = count_words(texts)
        vectors = compute_vectors(table)
        tell("vectors made")
        places = arrange_points(vectors, lambda share: tell(f"{write_percent(share, 0)} of the places found"))
        count = max(1, min(24, len(texts) // _SMALLEST))
        topics, _ = (
            group_points(_scale(places).astype(np.float32), count) if len(texts) else (np.zeros(0, int), None)
        )
        names = name_topics(table, topics, count)
        _store(connection, number, what, rows, _scale(places), topics, names)


async def _read_texts(run: Path, what: str) -> tuple[list[int], list[str]]:
    """Return the rows and the texts of the sessions: their tasks, or their first instructions."""
    rows: list[int] = []
    texts: list[str] = []
    async with open_store(run, read_only=True) as store:
        after = 0
        while outlines := await store.outlines(after, _PAGE):
            after = outlines[-1].row
            if what == "task":
                shown = {outline.id: outline.specified_task or outline.original_task for outline in outlines}
            else:
                shown = await _read_first(store, [outline.id for outline in outlines])
            rows += [outline.row for outline in outlines if outline.id in shown]
            texts += [shown[outline.id] for outline in outlines if outline.id in shown]
    return rows, texts


async def _read_first(store: RunStore, ids: Sequence[str]) -> dict[str, str]:
    """Return the first instructions by session."""
    first: dict[str, str] = {}
    for text in await store.texts(ids):
        if text.number == 1 and (parsed := read_instruction(text.text)) is not None:
            first[text.session] = parsed.instruction
    return first


def _scale(places: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return places as whole numbers; a hundredth of the points at each edge may lie outside and is moved to it."""
    if not len(places):
        return np.zeros((0, 2), np.int64)
    low, high = np.quantile(places, [0.002, 0.998], axis=0)
    middle, half = (low + high) / 2, max(float((high - low).max()) / 2, 1e-6) * 1.05
    return np.clip((places - middle) / half * MAP_WIDTH / 2 + MAP_WIDTH / 2, 0, MAP_WIDTH).astype(np.int64)


def name_topics(table: WordTable, topics: NDArray[np.int64], count: int) -> list[str]:
    """Return three words for each topic: those that are much commoner in it than elsewhere."""
    rows = np.repeat(topics, np.diff(table.starts))
    everywhere: Counter[int] = Counter(table.columns.tolist())
    names: list[str] = []
    for topic in range(count):
        inside: Counter[int] = Counter(table.columns[rows == topic].tolist())
        scores = {column: times * times / everywhere[column] for column, times in inside.items()}
        best = sorted(scores, key=lambda column: (-scores[column], column))[:3]
        names.append(", ".join(table.words[column] for column in best) or "without words")
    return names


def _store(
    connection: sqlite3.Connection,
    run: int,
    what: str,
    rows: Sequence[int],
    places: NDArray[np.int64],
    topics: NDArray[np.int64],
    names: Sequence[str],
) -> None:
    numbers = [(run << 32) + row for row in rows]
    points = zip(numbers, places[:, 0].tolist(), places[:, 1].tolist(), topics.tolist(), strict=True)
    with connection:
        connection.execute("DELETE FROM main.points WHERE what = ? AND row >> 32 = ?", (what, run))
        connection.executemany(
            "INSERT INTO main.points VALUES (?, ?, ?, ?, ?)", ((what, *point) for point in points)
        )
    write_meta(connection, run, {f"drawing of {what}": "", f"map of {what}": json.dumps(list(names))})


# Words of a text.


STOP_WORDS = frozenset(
    (
        "a an the and or but of to in on at by for from with without into onto as is are was were be been "
        "being am it its this that these those i you he she we they me him her us them my your his our their "
        "so then than too also not no do does did done has have had will would can could may might shall "
        "should must there here which who whom whose what when where how if please each every all any some "
        "more most very just only own same such up out about per none"
    ).split()
)

_ENDINGS = "ations ation ments ment ings ing ions ion ies ers ed es ly er s e".split()
_STEM = 6
_TOKEN = re.compile(r"[^\W_]+")
# Chinese, Japanese, Thai, Lao and Khmer have no spaces between words.
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")


def tokenize(text: str) -> list[str]:
    """Return the words of ``text`` in lower case; for scripts without spaces, pairs of adjacent characters."""
    tokens: list[str] = []
    for token in _TOKEN.findall(text.lower()):
        if len(token) == 1 or token.isascii() or _UNSPACED.search(token) is None:
            tokens.append(token)
        else:
            tokens += [token[i : i + 2] for i in range(len(token) - 1)]
    return tokens


def stem(word: str) -> str:
    """Return an approximate stem of an English word: ``evaluate`` and ``evaluation`` give ``evalu``."""
    # British and American spelling; analysis, analyse, analyze.
    word = word.replace("z", "s")
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            break
    # write, writing; plan, planned
    if len(word) > 3 and word[-1] == word[-2]:
        word = word[:-1]
    return word[:_STEM]


if __name__ == "__main__":
    main()
