"""The texts of a map: the tasks of a run, or all instructions that its AI users gave."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple

from bactrian.protocol.markers import read_instruction
from bactrian.store import RunStore

MAP_TEXTS: Mapping[str, str] = {"task": "Tasks", "instruction": "Instructions"}
_PAGE = 500


class MapText(NamedTuple):
    """A text of a map, with the session that it is from."""

    row: int
    session: str
    # The turn of an instruction; 0 for a task.
    turn: int
    text: str


async def read_map_texts(store: RunStore, what: str) -> AsyncIterator[MapText]:
    """Yield the task of each session, specified if it was, or every instruction of its AI user."""
    after = 0
    while outlines := await store.outlines(after, _PAGE):
        after = outlines[-1].row
        if what == "task":
            for outline in outlines:
                yield MapText(outline.row, outline.id, 0, outline.specified_task or outline.original_task)
            continue
        known = {outline.id: outline for outline in outlines}
        for turn in await store.texts(list(known)):
            outline = known[turn.session]
            if turn.speaker != "assistant" and (parsed := read_instruction(turn.text, outline.language)):
                yield MapText(outline.row, turn.session, turn.number, parsed.instruction)
