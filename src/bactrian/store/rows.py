"""Records as rows, and back."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from pydantic_core import from_json, to_json
from sqlalchemy import Row

from bactrian.errors import StoreError
from bactrian.records.call import Call
from bactrian.records.confirmation import Confirmation
from bactrian.records.criticism import Criticism
from bactrian.records.ending import Ending
from bactrian.records.message import Invocation
from bactrian.records.proposal import Proposal, Verdict
from bactrian.records.sampling import Sampling
from bactrian.records.session import Provenance, Session
from bactrian.records.task import Role, Task
from bactrian.records.text import Text
from bactrian.records.tool import Tool, ToolCall, Toolkit, ToolResult, Use
from bactrian.records.turn import Instruction, Solution, Turn
from bactrian.records.usage import Usage

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ItemList:
    """The items of an axis, as far as they are known."""

    id: str
    items: tuple[str, ...]
    complete: bool
    """False while some are missing; they were given up if no call brings new ones."""
    usage: Usage
    calls: int


@dataclass(frozen=True, slots=True)
class Progress:
    """What has become of a session."""

    id: str
    ending: str | None
    turns: int | None
    """Turns at its ending; None if it has not ended."""
    prompt: int | None
    """Tokens in all, once it has ended."""
    completion: int | None
    cached: int | None


@dataclass(frozen=True, slots=True)
class Failure:
    """A session that failed, and what came back instead of its next turn."""

    session: str
    turns: int
    """That it has."""
    reason: str
    error: str | None
    """What went wrong at its last call that failed; None if none did."""
    raw: bytes
    """Up to 2 KB of what that call was answered with."""


def session_row(session: Session, created: float) -> Values:
    """The row of a session; its turns are rows of their own."""
    return {
        "id": session.id,
        "assistant_role": session.assistant.name,
        "assistant_description": session.assistant.description,
        "user_role": session.user.name,
        "user_description": session.user.description,
        "original_task": session.task.original,
        **task_row(session),
        "provenance": _json(session.provenance),
        "axis_values": _json(session.values),
        "mark": session.mark,
        "created": created,
    }


def task_row(session: Session) -> Values:
    """What the steps before the conversation add to the row of a session."""
    return {
        "specified_task": session.task.specified,
        "planned_task": session.task.planned,
        "preparation": _json(session.preparation),
    }


def ending_row(ending: Ending, usage: Usage) -> Values:
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


def turn_row(session: str, turn: Turn) -> Values:
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
    }


def proposal_row(session: str, proposal: Proposal) -> Values:
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
    }


def verdict_row(session: str, verdict: Verdict) -> Values:
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


def tool_row(session: str, call: ToolCall) -> Values:
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


def result_row(session: str, result: ToolResult) -> Values:
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


def read_use(row: Row[Any]) -> Use:
    """The tool call of a row, with its result if there is one."""
    place = (row.number, row.round, row.place, row.speaker)
    wanted = Invocation(row.call, row.name, row.arguments)
    call = ToolCall(*place, wanted, Text(row.text), _usage(row), row.seconds, row.model)
    if row.result is None:
        return Use(call)
    return Use(
        call, ToolResult(*place, row.name, Text(row.result), row.problem, row.tool_seconds, bool(row.cut))
    )


def read_proposal(row: Row[Any]) -> Proposal:
    """The proposal of a row."""
    return Proposal(
        number=row.number,
        round=row.round,
        place=row.place,
        speaker=row.speaker,
        text=Text(row.text),
        usage=_usage(row),
        seconds=row.seconds,
        model=row.model,
        finish=row.finish,
        lossy=bool(row.lossy),
        parent=row.parent,
        fingerprint=row.fingerprint,
    )


def confirmation_row(confirmation: Confirmation) -> Values:
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


def read_confirmation(row: Row[Any]) -> Confirmation:
    """The judge's answer of a row."""
    return Confirmation(
        session=row.session,
        turn=row.turn,
        behaviour=row.behaviour,
        judge=row.judge,
        holds=None if row.holds is None else bool(row.holds),
        text=row.text,
        usage=_usage(row),
        seconds=row.seconds,
        model=row.model,
    )


def read_verdict(row: Row[Any]) -> Verdict:
    """The verdict of a row."""
    return Verdict(
        number=row.number,
        round=row.round,
        attempt=row.attempt,
        speaker=row.speaker,
        chooser=row.chooser,
        text=Text(row.text),
        place=row.place,
        reason=row.reason,
        feedback=row.feedback,
        instead=None if row.instead is None else Text(row.instead),
        problem=row.problem,
        usage=_usage(row),
        seconds=row.seconds,
        model=row.model,
        kept=tuple(from_json(row.kept)),
    )


def call_row(call: Call) -> Values:
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


def list_row(items: ItemList) -> Values:
    """The row of a list of items."""
    return {
        "id": items.id,
        "items": to_json(items.items).decode(),
        "complete": items.complete,
        "usage": _json(items.usage),
        "calls": items.calls,
    }


def read_list(row: Row[Any]) -> ItemList:
    """The list of a row."""
    return ItemList(
        row.id, tuple(from_json(row.items)), bool(row.complete), Usage(**from_json(row.usage)), row.calls
    )


def with_uses(session: Session, uses: Iterable[Use]) -> Session:
    """``session`` with the tools that were called for its turns."""
    by_turn: defaultdict[int, list[Use]] = defaultdict(list)
    for use in uses:
        by_turn[use.call.number].append(use)
    turns = tuple(
        replace(turn, uses=tuple(by_turn.pop(turn.number))) if turn.number in by_turn else turn
        for turn in session.turns
    )
    return replace(session, turns=turns, pending=tuple(by_turn.get(len(turns) + 1, ())))


def read_session(row: Row[Any], turns: Iterable[Row[Any]]) -> Session:
    """The session of a row and of its turns' rows.

    Raises:
        StoreError: a turn's text is not what was written.
    """
    origin = from_json(row.provenance)
    origin["sampling"] = {agent: _sampling(values) for agent, values in origin["sampling"].items()}
    if origin.get("critic"):
        origin["critic"] = Criticism(**origin["critic"])
    origin["cast"] = {name: Role(**role) for name, role in origin.get("cast", {}).items()}
    origin["tools"] = {agent: _toolkit(values) for agent, values in origin.get("tools", {}).items()}
    ending = (
        None
        if row.ending is None
        else Ending(row.ending, row.ending_turn, row.ending_speaker, row.ending_evidence)
    )
    return Session(
        id=row.id,
        assistant=Role(row.assistant_role, row.assistant_description),
        user=Role(row.user_role, row.user_description),
        task=Task(row.original_task, row.specified_task, row.planned_task),
        provenance=Provenance(**origin),
        turns=tuple(_turn(turn) for turn in turns),
        ending=ending,
        preparation=Usage(**from_json(row.preparation)),
        values=from_json(row.axis_values),
        mark=row.mark,
    )


def _turn(row: Row[Any]) -> Turn:
    if zlib.crc32(row.text.encode()) != row.checksum:
        raise StoreError(
            f"Turn {row.number} of session {row.session} is damaged: its text is not what was written.",
            next="Save what is whole: bactrian recover RUN --out NEW.db",
        )
    return Turn(
        number=row.number,
        speaker=row.speaker,
        role=row.role,
        text=Text(row.text),
        said=_read_said(row.said),
        usage=_usage(row),
        seconds=row.seconds,
        first_token=row.first_token,
        model=row.model,
        finish=row.finish,
        lossy=bool(row.lossy),
        fingerprint=row.fingerprint,
    )


def _usage_columns(usage: Usage) -> Values:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "cached_tokens": usage.cached,
        "estimated": usage.estimated,
    }


def _usage(row: Row[Any]) -> Usage:
    return Usage(row.prompt_tokens, row.completion_tokens, row.cached_tokens, bool(row.estimated))


def _said(said: Instruction | Solution | None) -> str | None:
    return None if said is None else _json(said)


def _read_said(said: str | None) -> Instruction | Solution | None:
    if said is None:
        return None
    values = from_json(said)
    return Instruction(**values) if "instruction" in values else Solution(**values)


def _sampling(values: Values) -> Sampling:
    values["stop"] = tuple(values["stop"])
    return Sampling(**values)


def _toolkit(values: Values) -> Toolkit:
    values["tools"] = tuple(Tool(**tool) for tool in values["tools"])
    return Toolkit(**values)


def _json(values: object) -> str:
    return to_json(values).decode()
