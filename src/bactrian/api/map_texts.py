"""Maps of runs: the texts, which are the tasks or all instructions of AI users, and their picture."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bactrian.errors import InputError
from bactrian.figures.chart import list_group_colours
from bactrian.figures.text_map import LegendEntry, TextMap, arrange_texts, draw_map_picture
from bactrian.protocol.markers import read_instruction
from bactrian.store import RunStore, open_store

MAP_TEXTS: Mapping[str, str] = {"task": "Tasks", "instruction": "Instructions"}
_PAGE = 500


class MapText(NamedTuple):
    """A text of a map, with the session that it is from."""

    row: int
    session: str
    # The turn of an instruction; 0 for a task.
    turn: int
    text: str
    # True if it was made to study misuse.
    is_red: bool


async def read_map_texts(store: RunStore, what: str) -> AsyncIterator[MapText]:
    """Yield the task of each session, specified if it was, or every instruction of its AI user."""
    after = 0
    while outlines := await store.outlines(after, _PAGE):
        after = outlines[-1].row
        if what == "task":
            for outline in outlines:
                yield MapText(
                    outline.row,
                    outline.id,
                    0,
                    outline.specified_task or outline.original_task,
                    outline.mark is not None,
                )
            continue
        known = {outline.id: outline for outline in outlines}
        for turn in await store.texts(list(known)):
            outline = known[turn.session]
            if turn.speaker != "assistant" and (parsed := read_instruction(turn.text, outline.language)):
                yield MapText(
                    outline.row, turn.session, turn.number, parsed.instruction, outline.mark is not None
                )


async def make_map(
    runs: Sequence[Path],
    what: str,
    report: Callable[[str], None] = lambda _: None,
    only: Collection[str] | None = None,
) -> tuple[list[MapText], TextMap]:
    """Return the texts of runs, or of ``only`` these sessions, and the map of them.

    ``report`` receives what is being done.

    Raises:
        InputError: the runs have no such text.
        MissingExtra: scikit-learn is not installed.
        StoreError: a run cannot be read.
    """
    texts: list[MapText] = []
    for run in runs:
        report(f"{run.name} is being read")
        async with open_store(run, read_only=True) as store:
            texts += [
                text async for text in read_map_texts(store, what) if only is None or text.session in only
            ]
    if not texts:
        raise InputError(
            f"There are no {MAP_TEXTS[what].lower()} to draw.",
            where=", ".join(map(str, runs)),
            next="Name a run with conversations.",
        )
    made = await asyncio.to_thread(
        arrange_texts, [text.text for text in texts], lambda step: report(f"{len(texts):,} texts; {step}")
    )
    return texts, made


def list_topics(made: TextMap) -> list[LegendEntry]:
    """Return the legend of a map that is coloured by topics: the largest ones, and the others in one."""
    counts, last = Counter(made.topics), len(list_group_colours()) - 1
    legend = [
        LegendEntry(name, counts[topic], topic)
        for topic, name in enumerate(made.names[:last])
        if counts[topic]
    ]
    rest = sum(counts[topic] for topic in range(last, len(made.names)))
    return [*legend, *([LegendEntry("others", rest, last)] if rest else [])]


def draw_topics(made: TextMap, title: str) -> str:
    """Return the picture (SVG) of a map that is coloured by topics."""
    last = len(list_group_colours()) - 1
    points = [(*place, min(topic, last)) for place, topic in zip(made.places, made.topics, strict=True)]
    return draw_map_picture(points, made.labels, made.names, list_topics(made), title)
