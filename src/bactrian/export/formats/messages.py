"""``messages``: chats as JSON lines, as TRL, Axolotl and most chat templates take them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bactrian.export.dialogue import add_thoughts, build_dialogue, to_plain_text
from bactrian.export.format import Add, ExportContext, Format, Sample
from bactrian.export.writers.json_lines import open_json_lines
from bactrian.models.openai.tool_calls import to_wire_tools
from bactrian.records.session import Session
from bactrian.tables.lineage import to_compact_json, trace_source


def build_row(session: Session, context: ExportContext, *, tools: bool = False) -> dict[str, object] | None:
    """The chat of a session as ``context.side`` had it, with its source; None if that side never spoke.

    With ``tools`` also what it called, and in ``tools`` what it could call: a JSON text, because the schemas of two
    tools have no columns in common.
    """
    messages = build_dialogue(session, context.side, context.prompts, tools=tools)
    if not messages:
        return None
    kit = session.provenance.tools.get(context.side) if tools else None
    rows = to_plain_text(messages)
    if context.thoughts:
        add_thoughts(rows, session, context.side)
    return {
        "messages": rows,
        **({"tools": to_compact_json(to_wire_tools(kit.tools))} if kit else {}),
        "original_task": session.task.original,
        "specified_task": session.task.specified or session.task.original,
        "side": context.side,
        "system_prompt": "as said" if context.prompts.is_known(session) else "stand-in",
        **trace_source(session, context.run),
    }


@contextmanager
def open_messages(path: Path, context: ExportContext) -> Generator[Add]:
    """Open ``path`` for one chat a line."""
    with open_json_lines(path) as write:

        def add(sample: Sample) -> int:
            made = build_row(sample.session, context, tools=True)
            if made is not None:
                write(made)
            return int(made is not None)

        yield add


FORMAT = Format(
    "messages",
    open_messages,
    kinds=frozenset(("role-play", "translation", "answer")),
    sides=True,
    tools=True,
    thoughts=True,
)
