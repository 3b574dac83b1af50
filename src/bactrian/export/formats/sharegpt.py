"""``sharegpt``: chats as JSON lines, with the speakers called ``system``, ``human`` and ``gpt``."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bactrian.export.dialogue import add_message_extra, build_dialogue
from bactrian.export.format import Add, ExportContext, Format, Sample
from bactrian.export.formats import messages
from bactrian.export.writers.json_lines import open_json_lines
from bactrian.tables.lineage import add_extra, trace_source

NAMES = {"system": "system", "user": "human", "assistant": "gpt"}


@contextmanager
def open_sharegpt(path: Path, context: ExportContext) -> Generator[Add]:
    """Open ``path`` for one chat a line."""
    with open_json_lines(path) as write:

        def add(sample: Sample) -> int:
            session = sample.session
            said = build_dialogue(session, context.side, context.prompts, plain=context.plain)
            if not said:
                return 0
            conversation: list[dict[str, Any]] = [
                {"from": NAMES[one.role], "value": str(one.text)} for one in said
            ]
            row = {
                "conversations": add_message_extra(conversation, session, context.side),
                "original_task": session.task.original,
                "specified_task": session.task.specified or session.task.original,
                "side": context.side,
                **trace_source(session, context.run),
            }
            write(add_extra(row, session))
            return 1

        yield add


FORMAT = Format("sharegpt", open_sharegpt, kinds=messages.FORMAT.kinds, sides=True, plain=True)
