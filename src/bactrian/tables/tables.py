"""A run as tables, with one row per session, message or finding and the origin of each row."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from bactrian.protocol.markers import DONE
from bactrian.records.run import Finding
from bactrian.records.session import (
    ENDING_CODES,
    Ending,
    EndingCode,
    Session,
    find_author,
    list_people,
    name_models,
    name_sides,
)
from bactrian.records.turn import Instruction, Sampling, Solution, Speaker, Turn, Use, read_arguments

if TYPE_CHECKING:
    import polars


# Analysis and export both need these tables; they stand apart because the two do not import each other.


# The origin of a row: columns that every export format has if it allows further columns.


COLUMNS = (
    "run",
    "session",
    "assistant_role",
    "user_role",
    "models",
    "authors",
    "prompts",
    "prompts_hash",
    "protocol",
    "sampling",
    "values",
    "ending",
    "mark",
)


def trace_source(session: Session, run: str) -> dict[str, str]:
    """Return the origin of a row. All values are strings, so that tools that infer types from the first rows agree.

    ``models`` and ``sampling`` are JSON objects by agent, and ``values`` is one by axis; a model whose part a person
    played is ``human``, and ``authors`` has the numbers of the turns that a person wrote; ``ending`` and ``mark`` are
    empty if not set, and so are the roles in a group chat, whose agents have names of their own.
    """
    origin = session.provenance
    return {
        "run": run,
        "session": session.id,
        **{name: role or "" for name, role in name_sides(session).items()},
        "models": to_compact_json(name_models(session)),
        "authors": to_compact_json(list_people(session)),
        "prompts": origin.prompts,
        "prompts_hash": origin.prompts_hash,
        "protocol": origin.protocol,
        "sampling": to_compact_json({agent: list_set(values) for agent, values in origin.sampling.items()}),
        "values": to_compact_json(dict(session.values)),
        "ending": session.ending.code if session.ending else "",
        "mark": session.mark or "",
    }


def name_tasks(session: Session) -> dict[str, str]:
    """Return the task in both forms; the specified one is the original if it was used unchanged."""
    return {
        "original_task": session.task.original,
        "specified_task": session.task.specified or session.task.original,
    }


def add_extra(row: dict[str, Any], session: Session, number: int = 0) -> dict[str, Any]:
    """Return ``row`` with the keys that the imported file had besides: the conversation's, or those of a message."""
    extra = session.provenance.extra.get(str(number), {})
    return {**row, **{key: value for key, value in extra.items() if key not in row}} if extra else row


def write_extra(session: Session, number: int = 0) -> str:
    """Return the same keys as a JSON object for a column; empty without any."""
    extra = session.provenance.extra.get(str(number))
    return to_compact_json(dict(extra)) if extra else ""


def write_message_extras(session: Session) -> str:
    """Return those of all messages as a JSON object by the number of the message; empty without any."""
    extras = {number: dict(keys) for number, keys in session.provenance.extra.items() if number.isdecimal()}
    extras.pop("0", None)
    return to_compact_json(extras) if extras else ""


def list_set(sampling: Sampling) -> dict[str, object]:
    """Return the parameters that were set, without those left to the model."""
    values = {field.name: getattr(sampling, field.name) for field in fields(sampling)}
    return {name: value for name, value in values.items() if value is not None and value not in ((), {})}


def to_compact_json(values: object) -> str:
    """Serialize ``values`` as JSON on one line with sorted keys."""
    return json.dumps(values, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


Row = dict[str, object]
Table = Mapping[str, Literal["text", "whole", "real", "truth"]]  # Types of the columns by name

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
        "tier": "text",
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
    known = usage.total > 0 or not session.provenance.is_imported  # Of another program's nobody knows.
    return {
        **trace_source(session, run),
        "assistant_description": "" if session.provenance.cast else session.assistant.description,
        "user_description": "" if session.provenance.cast else session.user.description,
        "original_task": session.task.original,
        "specified_task": session.task.specified,
        "planned_task": session.task.planned,
        "language": session.provenance.language,
        "ending_turn": ending and ending.turn,
        "ending_speaker": ending and ending.speaker,
        "ending_evidence": ending and ending.evidence,
        "messages": len(session.turns),
        "prompt_tokens": usage.prompt if known else None,
        "completion_tokens": usage.completion if known else None,
        "cached_tokens": usage.cached if known else None,
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
            "tier": turn.usage.tier,
            "seconds": turn.seconds,
            "first_token": turn.first_token,
            "model": find_author(session, turn),
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
    parsed = turn.said
    ask = parsed if isinstance(parsed, Instruction) else None
    answer = parsed if isinstance(parsed, Solution) else None
    return {
        "instruction": ask and ask.instruction,
        "input": ask and ask.input,
        "solution": answer and answer.solution,
        "asks_next": answer and answer.asks_next,
        "preface": parsed and parsed.preface,
    }


# Endings and roles under the names that CAMEL's files use.


_TOKEN_LIMIT = "max_tokens_exceeded"  # noqa: S105
_NAMES: Mapping[EndingCode, str] = MappingProxyType(
    {
        "task_done": DONE,
        "user_no_instruct": "user_no_instruct_threshold",
        "assistant_instruct": "assistant_instruct_threshold",
        "max_messages": "max_num_messages",
        "repeat_loop": "repeat_word_threshold",
    }
)
_CODES: Mapping[str, EndingCode] = MappingProxyType(
    {**{code: code for code in ENDING_CODES}, **{name: code for code, name in _NAMES.items()}}
)
_SPEAKERS: Mapping[EndingCode, Speaker] = MappingProxyType(
    {"task_done": "user", "user_no_instruct": "user", "assistant_instruct": "assistant"}
)


# The axes of the Code data set, whose items are its roles in CAMEL's files (`Java_RoleType.ASSISTANT`).
CODE_AXES = ("programming_language", "domain")
_ROLE = re.compile(r"(.*)_roletype\.(assistant|user)\s*", re.IGNORECASE | re.DOTALL)


def name_roles(session: Session) -> tuple[str, str]:
    """Return the names of assistant and user as CAMEL's files have them, without their suffix."""
    language, field = (session.values.get(axis) for axis in CODE_AXES)
    return (language, field) if language and field else (session.assistant.name, session.user.name)


def write_roles(session: Session) -> dict[str, str]:
    """Return ``role_1`` and ``role_2`` of a session."""
    assistant, user = name_roles(session)
    return {"role_1": f"{assistant}_RoleType.ASSISTANT", "role_2": f"{user}_RoleType.USER"}


def read_role(text: object) -> tuple[object, Speaker | None]:
    """Return the name in ``role_1`` or ``role_2``, and the speaker that its suffix names; None without a suffix."""
    match = _ROLE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return text, None
    return match[1], "assistant" if match[2].lower() == "assistant" else "user"


def write_termination(ending: Ending | None) -> str:
    """Return CAMEL's name of an ending; ours if CAMEL has none, ``unknown`` for a session without an ending."""
    if ending is None:
        return "unknown"
    if ending.code == "token_limit":
        return f"RoleType.{ending.speaker.upper()}: {_TOKEN_LIMIT}"
    return _NAMES.get(ending.code, ending.code)


def read_termination(reason: str, last: int) -> Ending | None:
    """Return the ending that ``reason`` names, in CAMEL's names or ours, for a session of ``last`` turns.

    None if the name is unknown.
    """
    reason = reason.strip()
    if reason.endswith(_TOKEN_LIMIT):
        return Ending("token_limit", last, "user" if ".USER" in reason.upper() else "assistant", reason)
    code = _CODES.get(reason)
    if code is None:
        return None
    return Ending(code, last, _SPEAKERS.get(code, "user" if last % 2 else "assistant"), reason)
