"""The process that draws a map: ``python -m bactrian.explore.map.worker RUN SIDE WHAT``.

It stores places, topics and its progress in the side file. It ends with its parent.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bactrian.explore.index.side import write_meta
from bactrian.explore.map.embedding import Vectors, WordTable, compute_vectors, count_words
from bactrian.explore.map.installed_vectors import NAME, compute_installed_vectors, find_weights
from bactrian.explore.map.projection import arrange_points, group_points
from bactrian.language.protocol import read_instruction
from bactrian.store import RunReader, open_store

WORDS = "words"
"""What vectors are made from without installed weights."""
WIDTH = 10_000
"""Places are whole numbers from 0 to this."""
_PAGE = 1000
_SMALLEST = 15
"""Texts of a topic, on average, at least."""


def main() -> None:
    """Draw the map that the arguments name."""
    os.nice(10)
    draw_map(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])


def draw_map(run: Path, side: Path, what: str) -> None:
    """Draw the map of the tasks or the first instructions of ``run``, and store it in the side file."""
    with closing(sqlite3.connect(side, timeout=60)) as connection:
        rows, texts = asyncio.run(_read_texts(run, what))
        _tell(connection, what, f"{len(texts):,} texts read")
        table = count_words(texts)
        vectors, name = _compute_vectors(texts, table)
        _tell(connection, what, "vectors made")
        places = arrange_points(
            vectors, lambda share: _tell(connection, what, f"{share:.0%} of the places found")
        )
        count = max(1, min(24, len(texts) // _SMALLEST))
        topics, _ = (
            group_points(_scale(places).astype(np.float32), count) if len(texts) else (np.zeros(0, int), None)
        )
        names = name_topics(table, topics, count)
        _store(connection, what, rows, _scale(places), topics, names)
        write_meta(connection, {f"vectors_{what}": name})


def _compute_vectors(texts: Sequence[str], table: WordTable) -> tuple[Vectors, str]:
    """Return vectors, and what they were made from: installed weights, or else the words of the texts."""
    if (files := find_weights()) is not None:
        with suppress(OSError, ValueError):  # Of another version: the words will do.
            return compute_installed_vectors(texts, *files), NAME
    return compute_vectors(table), WORDS


async def _read_texts(run: Path, what: str) -> tuple[list[int], list[str]]:
    """Return the rows and the texts of the sessions: their tasks, or their first instructions."""
    rows: list[int] = []
    texts: list[str] = []
    async with open_store(run, read_only=True) as store:
        after = 0
        while outlines := await store.outlines(after, _PAGE):
            after = outlines[-1].row
            if what == "task":
                rows += [one.row for one in outlines]
                texts += [one.specified_task or one.original_task for one in outlines]
                continue
            first = await _read_first(store, [one.id for one in outlines])
            rows += [one.row for one in outlines if one.id in first]
            texts += [first[one.id] for one in outlines if one.id in first]
    return rows, texts


async def _read_first(store: RunReader, ids: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in await store.texts(ids):
        if one.number == 1 and (said := read_instruction(one.text)) is not None:
            found[one.session] = said.instruction
    return found


def _scale(places: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return places as whole numbers; a hundredth of the points at each edge may lie outside and is moved to it."""
    if not len(places):
        return np.zeros((0, 2), np.int64)
    low, high = np.quantile(places, [0.002, 0.998], axis=0)
    middle, half = (low + high) / 2, max(float((high - low).max()) / 2, 1e-6) * 1.05
    return np.clip((places - middle) / half * WIDTH / 2 + WIDTH / 2, 0, WIDTH).astype(np.int64)


def name_topics(table: WordTable, topics: NDArray[np.int64], count: int) -> list[str]:
    """Return three words for each topic: those that are much commoner in it than elsewhere."""
    rows = np.repeat(topics, np.diff(table.starts))
    everywhere: Counter[int] = Counter(table.columns.tolist())
    names: list[str] = []
    for topic in range(count):
        inside: Counter[int] = Counter(table.columns[rows == topic].tolist())
        scores = {column: found * found / everywhere[column] for column, found in inside.items()}
        best = sorted(scores, key=lambda column: (-scores[column], column))[:3]
        names.append(", ".join(table.words[column] for column in best) or "without words")
    return names


def _tell(connection: sqlite3.Connection, what: str, progress: str) -> None:
    with connection:
        connection.execute(
            "INSERT INTO maps (what, progress) VALUES (?, ?)"
            " ON CONFLICT (what) DO UPDATE SET progress = excluded.progress",
            (what, progress),
        )


def _store(
    connection: sqlite3.Connection,
    what: str,
    rows: Sequence[int],
    places: NDArray[np.int64],
    topics: NDArray[np.int64],
    names: Sequence[str],
) -> None:
    points = zip(rows, places[:, 0].tolist(), places[:, 1].tolist(), topics.tolist(), strict=True)
    with connection:
        connection.execute("DELETE FROM points WHERE what = ?", (what,))
        connection.executemany(
            "INSERT INTO points VALUES (?, ?, ?, ?, ?)", ((what, *point) for point in points)
        )
        connection.execute(
            "UPDATE maps SET progress = '', topics = ? WHERE what = ?", (json.dumps(list(names)), what)
        )


if __name__ == "__main__":
    main()
