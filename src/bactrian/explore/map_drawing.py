"""The process that draws a map: ``python -m bactrian.explore.map_drawing RUN INDEX NUMBER WHAT``.

It stores places, topics and its progress in the index.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import astuple
from pathlib import Path

from bactrian.api.map_texts import MapText, read_map_texts
from bactrian.explore.library_index import write_index, write_meta
from bactrian.figures.text_map import arrange_texts
from bactrian.store import open_store


def main() -> None:
    """Draw the map that the arguments name."""
    os.nice(10)
    run, index, number, what = sys.argv[1:]
    draw_map(Path(run), Path(index), int(number), what)


def draw_map(run: Path, index: Path, number: int, what: str) -> None:
    """Draw the map of the tasks or the instructions of ``run``, which has this ``number`` in the index."""
    with write_index(index, [number]) as connection:

        def tell(progress: str) -> None:
            write_meta(connection, number, {f"drawing of {what}": progress})

        tell("texts are being read")
        texts = asyncio.run(_read(run, what))
        made = arrange_texts(
            [text.text for text in texts], lambda step: tell(f"{len(texts):,} texts; {step}")
        )
        stored = zip(texts, made.places, made.topics, strict=True)
        with connection:
            connection.execute("DELETE FROM main.points WHERE what = ? AND row >> 32 = ?", (what, number))
            connection.executemany(
                "INSERT INTO main.points VALUES (?, ?, ?, ?, ?, ?)",
                (
                    (what, (number << 32) + text.row, text.turn, *place, topic)
                    for text, place, topic in stored
                ),
            )
        drawn = {"names": made.names, "labels": [astuple(label) for label in made.labels]}
        write_meta(connection, number, {f"drawing of {what}": "", f"map of {what}": json.dumps(drawn)})


async def _read(run: Path, what: str) -> list[MapText]:
    async with open_store(run, read_only=True) as store:
        return [text async for text in read_map_texts(store, what)]


if __name__ == "__main__":
    main()
