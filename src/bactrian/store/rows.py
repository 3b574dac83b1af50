"""Records as rows."""

from __future__ import annotations

import zlib
from typing import Any

from pydantic_core import to_json

from bactrian.records.candidate import Decision, Proposal
from bactrian.records.ending import Ending
from bactrian.records.finding import Confirmation
from bactrian.records.run import Call, ItemList
from bactrian.records.session import Session
from bactrian.records.tool import ToolCall, ToolResult
from bactrian.records.turn import Instruction, Solution, Turn
from bactrian.records.usage import Usage

Values = dict[str, Any]


def write_session(session: Session, created: float) -> Values:
    """The row of a session; its turns are rows of their own."""
    return {
        "id": session.id,
        "assistant_role": session.assistant.name,
        "assistant_description": session.assistant.description,
        "user_role": session.user.name,
        "user_description": session.user.description,
        "original_task": session.task.original,
        **write_task(session),
        "provenance": _json(session.provenance),
        "axis_values": _json(session.values),
        "mark": session.mark,
        "created": created,
    }


def write_task(session: Session) -> Values:
    """What the steps before the conversation add to the row of a session."""
    return {
        "specified_task": session.task.specified,
        "planned_task": session.task.planned,
        "preparation": _json(session.preparation),
    }


def write_ending(ending: Ending, usage: Usage) -> Values:
    """What an ending adds to the row of a session that used ``usage`` in all."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "cached_tokens": usage.cached,
        "ending": ending.code,
        "ending_turn": ending.turn,
        "ending_speaker": ending.speaker,
        "ending_evidence": ending.evidence,
    }


def write_turn(session: str, turn: Turn) -> Values:
    """The row of a turn."""
    return {
        "session": session,
        "number": turn.number,
        "speaker": turn.speaker,
        "role": turn.role,
        "text": turn.text,
        "said": _said(turn.said),
        **_usage_columns(turn.usage),
        "seconds": turn.seconds,
        "first_token": turn.first_token,
        "model": turn.model,
        "finish": turn.finish,
        "lossy": turn.lossy,
        "checksum": zlib.crc32(turn.text.encode()),
        "fingerprint": turn.fingerprint,
        "thought": turn.thought or None,
    }


def write_proposal(session: str, proposal: Proposal) -> Values:
    """The row of a proposal."""
    return {
        "session": session,
        "number": proposal.number,
        "round": proposal.round,
        "place": proposal.place,
        "speaker": proposal.speaker,
        "text": proposal.text,
        **_usage_columns(proposal.usage),
        "seconds": proposal.seconds,
        "model": proposal.model,
        "finish": proposal.finish,
        "lossy": proposal.lossy,
        "parent": proposal.parent,
        "fingerprint": proposal.fingerprint,
        "thought": proposal.thought or None,
    }


def write_decision(session: str, verdict: Decision) -> Values:
    """The row of a verdict."""
    return {
        "session": session,
        "number": verdict.number,
        "round": verdict.round,
        "attempt": verdict.attempt,
        "speaker": verdict.speaker,
        "chooser": verdict.chooser,
        "text": verdict.text,
        "place": verdict.place,
        "reason": verdict.reason,
        "feedback": verdict.feedback,
        "instead": verdict.instead,
        "problem": verdict.problem,
        **_usage_columns(verdict.usage),
        "seconds": verdict.seconds,
        "model": verdict.model,
        "kept": to_json(verdict.kept).decode(),
    }


def write_tool_call(session: str, call: ToolCall) -> Values:
    """The row of a tool call that has no result yet."""
    return {
        "session": session,
        "number": call.number,
        "round": call.round,
        "place": call.place,
        "speaker": call.speaker,
        "name": call.wanted.name,
        "call": call.wanted.id,
        "arguments": call.wanted.arguments,
        "text": call.text,
        **_usage_columns(call.usage),
        "seconds": call.seconds,
        "model": call.model,
    }


def write_tool_result(session: str, result: ToolResult) -> Values:
    """What a result adds to the row of its call, and the key of that row."""
    return {
        "key_session": session,
        "key_number": result.number,
        "key_round": result.round,
        "key_place": result.place,
        "result": result.text,
        "problem": result.problem,
        "tool_seconds": result.seconds,
        "cut": result.cut,
    }


def write_confirmation(confirmation: Confirmation) -> Values:
    """The row of a judge's answer."""
    return {
        "session": confirmation.session,
        "turn": confirmation.turn,
        "behaviour": confirmation.behaviour,
        "judge": confirmation.judge,
        "holds": confirmation.holds,
        "text": confirmation.text,
        **_usage_columns(confirmation.usage),
        "seconds": confirmation.seconds,
        "model": confirmation.model,
    }


def write_call(call: Call) -> Values:
    """The row of a call."""
    return {
        "session": call.session,
        "agent": call.agent,
        "ordinal": call.ordinal,
        "model": call.model,
        "seconds": call.seconds,
        "raw": call.raw,
        "error": call.error,
        "usage": None if call.usage is None else _json(call.usage),
    }


def write_list(items: ItemList) -> Values:
    """The row of a list of items."""
    return {
        "id": items.id,
        "items": to_json(items.items).decode(),
        "complete": items.complete,
        "usage": _json(items.usage),
        "calls": items.calls,
    }


def _usage_columns(usage: Usage) -> Values:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "cached_tokens": usage.cached,
        "estimated": usage.estimated,
    }


def _said(said: Instruction | Solution | None) -> str | None:
    return None if said is None else _json(said)


def _json(values: object) -> str:
    return to_json(values).decode()
