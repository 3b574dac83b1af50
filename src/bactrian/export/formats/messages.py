"""``messages``: chats as JSON lines, as TRL, Axolotl and most chat templates take them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bactrian.export.dialogue import dialogue, plain
from bactrian.export.format import Add, Format, Frame
from bactrian.export.writers.json_lines import json_lines
from bactrian.models.openai.tool_calls import offered
from bactrian.records.session import Session
from bactrian.tables.lineage import compact, trace


def row(session: Session, frame: Frame, *, tools: bool = False) -> dict[str, object] | None:
    """The chat of a session as ``frame.side`` had it, with its source; None if that side never spoke.

    With ``tools`` also what it called, and in ``tools`` what it could call: a JSON text, because the schemas of two
    tools have no columns in common.
    """
    messages = dialogue(session, frame.side, frame.prompts, tools=tools)
    if not messages:
        return None
    kit = session.provenance.tools.get(frame.side) if tools else None
    return {
        "messages": plain(messages),
        **({"tools": compact(offered(kit.tools))} if kit else {}),
        "original_task": session.task.original,
        "specified_task": session.task.specified or session.task.original,
        "side": frame.side,
        "system_prompt": "as said" if frame.prompts.known(session) else "stand-in",
        **trace(session, frame.run),
    }


@contextmanager
def opened(path: Path, frame: Frame) -> Generator[Add]:
    """Open ``path`` for one chat a line."""
    with json_lines(path) as write:

        def add(session: Session) -> int:
            made = row(session, frame, tools=True)
            if made is not None:
                write(made)
            return int(made is not None)

        yield add


FORMAT = Format(
    "messages", opened, kinds=frozenset(("role-play", "translation", "answer")), sides=True, tools=True
)
