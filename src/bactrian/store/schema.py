"""The tables of a run and their records.

A new field of a record becomes a column automatically, and needs a migration in :mod:`bactrian.store.migrations`.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from sqlalchemy import TableClause, column, table

from bactrian.records.candidate import Decision, Proposal
from bactrian.records.ending import Ending
from bactrian.records.finding import Confirmation
from bactrian.records.run import Call, Command, ItemList, Mark, Progress, Vote
from bactrian.records.session import Session
from bactrian.records.tool import ToolCall, ToolResult
from bactrian.records.turn import Turn
from bactrian.records.usage import Usage
from bactrian.store.mapping import Derived, Embedded, Json, RecordMapping, declare_table


def compute_checksum(text: str) -> int:
    """Compute the CRC-32 of a text; SQLite does not detect flipped bytes."""
    return zlib.crc32(text.encode())


SESSIONS = declare_table(
    Session,
    leave=("turns", "ending", "pending"),
    assistant=Embedded({"name": "assistant_role", "description": "assistant_description"}),
    user=Embedded({"name": "user_role", "description": "user_description"}),
    task=Embedded({"original": "original_task", "specified": "specified_task", "planned": "planned_task"}),
    provenance=Json(),
    preparation=Json(),
    values=Json("axis_values"),
)
PREPARATION = SESSIONS.pick("specified_task", "planned_task", "preparation")
"""Columns of a session that the steps before the conversation fill."""
ENDINGS = declare_table(
    Ending, code="ending", turn="ending_turn", speaker="ending_speaker", evidence="ending_evidence"
)
TOTALS = declare_table(
    Usage,
    leave=("estimated",),
    prompt="prompt_tokens",
    completion="completion_tokens",
    cached="cached_tokens",
)
"""Total usage of a session, in its row once it has ended."""
PROGRESS = declare_table(
    Progress,
    turns="ending_turn",
    prompt="prompt_tokens",
    completion="completion_tokens",
    cached="cached_tokens",
)
"""Columns of the index ``sessions_progress``, so that resuming a run need not read the wide rows."""
TURNS = declare_table(
    Turn, leave=("uses",), said=Json(), derived={"checksum": Derived("text", "INTEGER", compute_checksum)}
)
PROPOSALS = declare_table(Proposal)
DECISIONS = declare_table(Decision, kept=Json())
TOOL_CALLS = declare_table(
    ToolCall, wanted=Embedded({"id": "call", "name": "name", "arguments": "arguments"})
)
TOOL_RESULTS = declare_table(ToolResult, text="result", seconds="tool_seconds")
"""Stored in the row of the call."""
RESULT = TOOL_RESULTS.pick("result", "problem", "tool_seconds", "cut")
"""Columns of a call that its result fills."""
CONFIRMATIONS = declare_table(Confirmation)
COMMANDS = declare_table(Command, options=Json())
MARKS = declare_table(Mark)
VOTES = declare_table(Vote)
CALLS = declare_table(Call, usage=Json())
LISTS = declare_table(ItemList, items=Json(), usage=Json())


def _make_table(name: str, more: Sequence[str], *mappings: RecordMapping[Any]) -> TableClause:
    names = [*more, *(name for mapping in mappings for name in mapping.names)]
    return table(name, *map(column, dict.fromkeys(names)))


sessions = _make_table("sessions", ("row", "created"), SESSIONS, ENDINGS, TOTALS)
turns = _make_table("turns", ("row", "session"), TURNS)
run = _make_table("run", ("row", "recipe", "created"))
lists = _make_table("lists", ("row",), LISTS)
calls = _make_table("calls", ("row",), CALLS)
proposals = _make_table("proposals", ("row", "session"), PROPOSALS)
verdicts = _make_table("verdicts", ("row", "session"), DECISIONS)
tools = _make_table("tools", ("row", "session"), TOOL_CALLS, TOOL_RESULTS)
confirmations = _make_table("confirmations", ("row",), CONFIRMATIONS)
marks = _make_table("marks", ("row",), MARKS)
commands = _make_table("commands", ("row",), COMMANDS)
votes = _make_table("votes", ("row",), VOTES)

TABLES = (
    sessions,
    turns,
    run,
    lists,
    calls,
    proposals,
    verdicts,
    tools,
    confirmations,
    marks,
    commands,
    votes,
)
"""In the order in which they can be filled: a turn references its session."""
