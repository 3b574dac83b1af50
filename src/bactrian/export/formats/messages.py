"""``messages``: chats as JSON lines, as TRL, Axolotl and most chat templates take them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bactrian.export.dialogue import build_dialogue, to_plain_text
from bactrian.export.format import Add, ExportContext, Format
from bactrian.export.writers.json_lines import open_json_lines
from bactrian.models.openai.tool_calls import to_wire_tools
from bactrian.records.session import Session
from bactrian.tables.lineage import to_compact_json, trace_source


def build_row(session: Session, frame: ExportContext, *, tools: bool = False) -> dict[str, object] | None:
    """The chat of a session as ``frame.side`` had it, with its source; None if that side never spoke.

    With ``tools`` also what it called, and in ``tools`` what it could call: a JSON text, because the schemas of two
    tools have no columns in common.
    """
    messages = build_dialogue(session, frame.side, frame.prompts, tools=tools)
    if not messages:
        return None
    kit = session.provenance.tools.get(frame.side) if tools else None
    return {
        "messages": to_plain_text(messages),
        **({"tools": to_compact_json(to_wire_tools(kit.tools))} if kit else {}),
        "original_task": session.task.original,
        "specified_task": session.task.specified or session.task.original,
        "side": frame.side,
        "system_prompt": "as said" if frame.prompts.is_known(session) else "stand-in",
        **trace_source(session, frame.run),
    }


@contextmanager
def open_messages(path: Path, frame: ExportContext) -> Generator[Add]:
    """Open ``path`` for one chat a line."""
    with open_json_lines(path) as write:

        def add(session: Session) -> int:
            made = build_row(session, frame, tools=True)
            if made is not None:
                write(made)
            return int(made is not None)

        yield add


FORMAT = Format(
    "messages", open_messages, kinds=frozenset(("role-play", "translation", "answer")), sides=True, tools=True
)
