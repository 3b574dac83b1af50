"""``messages``: chats as JSON lines, in the format of TRL, Axolotl and most chat templates."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bactrian.export.dialogue import add_message_extra, add_thoughts, build_dialogue, to_plain_text
from bactrian.export.format import Add, ExportContext, Format, Sample
from bactrian.export.writers.json_lines import open_json_lines
from bactrian.models.openai.tool_calls import to_wire_tools
from bactrian.records.session import Session
from bactrian.tables.lineage import add_extra, to_compact_json, trace_source


def build_row(session: Session, context: ExportContext, *, tools: bool = False) -> dict[str, Any] | None:
    """Return the chat of a session from ``context.side``, with its source; None if that side has no turn.

    With ``tools``, and unless the chat is to be plain, tool calls are included, and the column ``tools`` has the
    available tools as JSON text, because the schemas of different tools share no columns.
    """
    messages = build_dialogue(session, context.side, context.prompts, tools=tools, plain=context.plain)
    if not messages:
        return None
    kit = session.provenance.tools.get(context.side) if tools and not context.plain else None
    rows = to_plain_text(messages)
    if context.thoughts:
        add_thoughts(rows, session, context.side)
    return {
        "messages": add_message_extra(rows, session, context.side),
        **({"tools": to_compact_json(to_wire_tools(kit.tools))} if kit else {}),
        "original_task": session.task.original,
        "specified_task": session.task.specified or session.task.original,
        "side": context.side,
        "system_prompt": "left out"
        if context.plain
        else "as said"
        if context.prompts.is_known(session, context.side)
        else "stand-in",
        **trace_source(session, context.run),
    }


@contextmanager
def open_messages(path: Path, context: ExportContext) -> Generator[Add]:
    """Open ``path`` for one chat a line."""
    with open_json_lines(path) as write:

        def add(sample: Sample) -> int:
            made = build_row(sample.session, context, tools=True)
            if made is not None:
                write(add_extra(made, sample.session))
            return int(made is not None)

        yield add


FORMAT = Format(
    "messages",
    open_messages,
    kinds=frozenset(("role-play", "translation", "answer")),
    sides=True,
    tools=True,
    thoughts=True,
    plain=True,
)
