"""A run as tables, with one row per session, message or finding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from bactrian.records.finding import Finding
from bactrian.records.session import Session
from bactrian.records.tool import Use, read_arguments
from bactrian.records.turn import Instruction, Solution, Turn
from bactrian.tables.lineage import COLUMNS, to_compact_json, trace_source, write_extra

if TYPE_CHECKING:
    import polars

Row = dict[str, object]
Table = Mapping[str, Literal["text", "whole", "real", "truth"]]
"""Types of the columns by name."""

_USAGE: Table = dict.fromkeys(("prompt_tokens", "completion_tokens", "cached_tokens"), "whole")

SESSIONS: Table = MappingProxyType(
    {
        **dict.fromkeys(COLUMNS, "text"),
        **dict.fromkeys(("assistant_description", "user_description"), "text"),
        **dict.fromkeys(("original_task", "specified_task", "planned_task", "language"), "text"),
        "ending_turn": "whole",
        **dict.fromkeys(("ending_speaker", "ending_evidence"), "text"),
        "messages": "whole",
        **_USAGE,
        "extra": "text",
    }
)
MESSAGES: Table = MappingProxyType(
    {
        **dict.fromkeys(("run", "session"), "text"),
        "turn": "whole",
        **dict.fromkeys(("speaker", "role", "text", "instruction", "input", "solution"), "text"),
        "asks_next": "truth",
        "preface": "text",
        **_USAGE,
        "estimated": "truth",
        "seconds": "real",
        "first_token": "real",
        **dict.fromkeys(("model", "finish"), "text"),
        "lossy": "truth",
        "tools": "text",
        **dict.fromkeys(("prompts_hash", "sampling", "mark"), "text"),
        "extra": "text",
    }
)
FINDINGS: Table = MappingProxyType(
    {
        **dict.fromkeys(("run", "session"), "text"),
        "turn": "whole",
        "behaviour": "text",
        "confidence": "real",
        **dict.fromkeys(("quote", "mark"), "text"),
    }
)


def build_schema(table: Table) -> dict[str, polars.DataType]:
    """Return the schema of ``table`` for polars."""
    import polars as pl

    kinds = {"text": pl.String(), "whole": pl.Int64(), "real": pl.Float64(), "truth": pl.Boolean()}
    return {name: kinds[kind] for name, kind in table.items()}


def make_session_row(session: Session, run: str) -> Row:
    """Make the row of a session."""
    ending, usage = session.ending, session.usage
    return {
        **trace_source(session, run),
        "assistant_description": session.assistant.description,
        "user_description": session.user.description,
        "original_task": session.task.original,
        "specified_task": session.task.specified,
        "planned_task": session.task.planned,
        "language": session.provenance.language,
        "ending_turn": ending and ending.turn,
        "ending_speaker": ending and ending.speaker,
        "ending_evidence": ending and ending.evidence,
        "messages": len(session.turns),
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "cached_tokens": usage.cached,
        "extra": write_extra(session),
    }


def make_message_rows(session: Session, run: str) -> Iterator[Row]:
    """Yield the rows of a session's messages."""
    source = trace_source(session, run)
    for turn in session.turns:
        yield {
            **{name: source[name] for name in ("run", "session")},
            "turn": turn.number,
            "speaker": turn.speaker,
            "role": turn.role,
            "text": str(turn.text),
            **_split_text(turn),
            "prompt_tokens": turn.usage.prompt,
            "completion_tokens": turn.usage.completion,
            "cached_tokens": turn.usage.cached,
            "estimated": turn.usage.estimated,
            "seconds": turn.seconds,
            "first_token": turn.first_token,
            "model": turn.model,
            "finish": turn.finish,
            "lossy": turn.lossy,
            "tools": list_tool_uses(turn),
            **{name: source[name] for name in ("prompts_hash", "sampling", "mark")},
            "extra": write_extra(session, turn.number),
        }


def list_tool_uses(turn: Turn) -> str | None:
    """Return the tools that were called for a turn, as a JSON list; None if no tool was called."""
    return to_compact_json([_make_use(use) for use in turn.uses]) if turn.uses else None


def _make_use(use: Use) -> Row:
    call, result = use.call, use.result
    return {
        "round": call.round,
        "place": call.place,
        "text": call.text,
        "name": call.wanted.name,
        "arguments": read_arguments(call.wanted.arguments),
        "result": result and result.text,
        "problem": result and result.problem,
        "seconds": result and result.seconds,
    }


def make_finding_row(session: Session, finding: Finding, run: str) -> Row:
    """Make the row of a finding."""
    return {
        "run": run,
        "session": session.id,
        "turn": finding.turn,
        "behaviour": finding.behaviour,
        "confidence": finding.confidence,
        "quote": finding.quote,
        "mark": session.mark or "",
    }


def _split_text(turn: Turn) -> Row:
    said = turn.said
    ask = said if isinstance(said, Instruction) else None
    answer = said if isinstance(said, Solution) else None
    return {
        "instruction": ask and ask.instruction,
        "input": ask and ask.input,
        "solution": answer and answer.solution,
        "asks_next": answer and answer.asks_next,
        "preface": said and said.preface,
    }
