"""``sharegpt``: chats as JSON lines, with the speakers called ``system``, ``human`` and ``gpt``."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bactrian.export.dialogue import dialogue
from bactrian.export.format import Add, Format, Frame
from bactrian.export.formats import messages
from bactrian.export.writers.json_lines import json_lines
from bactrian.records.session import Session
from bactrian.tables.lineage import trace

NAMES = {"system": "system", "user": "human", "assistant": "gpt"}


@contextmanager
def opened(path: Path, frame: Frame) -> Generator[Add]:
    """Open ``path`` for one chat a line."""
    with json_lines(path) as write:

        def add(session: Session) -> int:
            said = dialogue(session, frame.side, frame.prompts)
            if not said:
                return 0
            conversation = [{"from": NAMES[one.role], "value": str(one.text)} for one in said]
            write(
                {
                    "conversations": conversation,
                    "original_task": session.task.original,
                    "specified_task": session.task.specified or session.task.original,
                    "side": frame.side,
                    **trace(session, frame.run),
                }
            )
            return 1

        yield add


FORMAT = Format("sharegpt", opened, kinds=messages.FORMAT.kinds, sides=True)
