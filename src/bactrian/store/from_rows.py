"""Rows as records."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pydantic_core import from_json
from sqlalchemy import Row

from bactrian.errors import StoreError
from bactrian.records.candidate import CriticSettings, Decision, Proposal
from bactrian.records.ending import Ending
from bactrian.records.finding import Confirmation
from bactrian.records.message import Invocation
from bactrian.records.run import ItemList
from bactrian.records.sampling import Sampling
from bactrian.records.session import Provenance, Role, Session, Task
from bactrian.records.text import Text
from bactrian.records.tool import Tool, ToolCall, Toolkit, ToolResult, Use
from bactrian.records.turn import Instruction, Solution, Turn
from bactrian.records.usage import Usage


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
        thought=row.thought or "",
    )


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


def read_decision(row: Row[Any]) -> Decision:
    """The verdict of a row."""
    return Decision(
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


def read_list(row: Row[Any]) -> ItemList:
    """The list of a row."""
    return ItemList(
        row.id, tuple(from_json(row.items)), bool(row.complete), Usage(**from_json(row.usage)), row.calls
    )


def attach_uses(session: Session, uses: Iterable[Use]) -> Session:
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
        origin["critic"] = CriticSettings(**origin["critic"])
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
        thought=row.thought or "",
    )


def _usage(row: Row[Any]) -> Usage:
    return Usage(row.prompt_tokens, row.completion_tokens, row.cached_tokens, bool(row.estimated))


def _read_said(said: str | None) -> Instruction | Solution | None:
    if said is None:
        return None
    values = from_json(said)
    return Instruction(**values) if "instruction" in values else Solution(**values)


def _sampling(values: dict[str, Any]) -> Sampling:
    values["stop"] = tuple(values["stop"])
    return Sampling(**values)


def _toolkit(values: dict[str, Any]) -> Toolkit:
    values["tools"] = tuple(Tool(**tool) for tool in values["tools"])
    return Toolkit(**values)
