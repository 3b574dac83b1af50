"""Events of a session while it is played; the terminal, the store, web pages and tests all consume them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, get_type_hints

from pydantic_core import from_json, to_json, to_jsonable_python

from bactrian.errors import BactrianError
from bactrian.records.session import Ending, Provenance, Role, Session, Task
from bactrian.records.text import find_builder
from bactrian.records.turn import (
    Decision,
    Invocation,
    Proposal,
    ToolCall,
    ToolResult,
    Turn,
    Usage,
    read_arguments,
    record,
)


@dataclass(frozen=True, slots=True)
class Started:
    """A session starts, or resumes with the turns that ``session`` contains already."""

    session: Session


@dataclass(frozen=True, slots=True)
class Proposed:
    """An agent proposed one of several candidates for its turn."""

    proposal: Proposal


@dataclass(frozen=True, slots=True)
class Chose:
    """A critic or a person decided between candidates; the decision may be unreadable."""

    verdict: Decision


@dataclass(frozen=True, slots=True)
class Called:
    """An agent calls a tool during its turn."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class Returned:
    """A tool call returned a result or failed; the agent sees either."""

    result: ToolResult


@record
class Spoke:
    """A turn is complete."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class Ended:
    """The session stopped."""

    ending: Ending
    error: Exception | None = None
    """The cause of an ending ``failed``."""


Event = Started | Proposed | Chose | Called | Returned | Spoke | Ended


# Conversion of events to JSON objects and back: the lines of ``bactrian play --json`` (docs/events.md).


Json = dict[str, Any]
SECONDS_DIGITS: Final = 4
"""Decimal places of durations."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """The keys of a record's JSON object, with the field of each."""

    record: type
    keys: Mapping[str, str]
    optional: frozenset[str] = frozenset()
    """Keys that are omitted if their value is empty."""


_NUMBERED = {"turn": "number"}
_OPTIONAL = frozenset({"fingerprint", "thought"})


def _pair(*names: str) -> dict[str, str]:
    return {name: name for name in names}


_USAGE = _Shape(
    Usage,
    {
        "prompt_tokens": "prompt",
        "completion_tokens": "completion",
        "cached_tokens": "cached",
        "estimated": "estimated",
    },
)
_TURN = _Shape(
    Turn,
    {
        **_NUMBERED,
        **_pair("speaker", "role", "text", "said", "usage", "seconds", "first_token", "model", "finish"),
        **_pair("lossy", "fingerprint", "thought"),
    },
    _OPTIONAL,
)
_PROPOSAL = _Shape(
    Proposal,
    {
        **_NUMBERED,
        **_pair("round", "place", "parent", "speaker", "text", "usage", "seconds", "model", "finish"),
        **_pair("lossy", "fingerprint", "thought"),
    },
    _OPTIONAL,
)
_DECISION = _Shape(
    Decision,
    {
        **_NUMBERED,
        **_pair("round", "attempt", "speaker", "chooser", "place", "kept", "instead", "reason"),
        **_pair("feedback", "problem", "text", "usage", "seconds", "model", "thought"),
    },
    _OPTIONAL,
)
_CALL = _Shape(
    ToolCall,
    {**_NUMBERED, **_pair("round", "place", "speaker", "text", "usage", "seconds", "model", "thought")},
    _OPTIONAL,
)
_RESULT = _Shape(
    ToolResult,
    {
        **_NUMBERED,
        **_pair("round", "place", "speaker", "name", "text", "problem", "seconds", "cut"),
    },
)
_ENDING = _Shape(Ending, _pair("code", "turn", "speaker", "evidence"))
_ORIGIN = _Shape(
    Provenance,
    {
        **_pair("protocol", "prompts", "prompts_hash", "models", "sampling", "language"),
        **_pair("preamble", "needs_code", "critic", "tools", "engine_hash"),
    },
    frozenset({"preamble", "needs_code", "critic", "tools", "engine_hash"}),
)


def write_event(event: Event) -> Json:
    """Convert an event to a JSON object.

    Durations are rounded to 0.1 ms. The turns of a resumed session are counted, not included.
    """
    match event:
        case Started(session):
            return {"event": "started", **_write_session(session)}
        case Spoke(turn):
            return {"event": "spoke", **_write(_TURN, turn)}
        case Proposed(proposal):
            return {"event": "proposed", **_write(_PROPOSAL, proposal)}
        case Chose(decision):
            return {"event": "chose", **_write(_DECISION, decision)}
        case Called(call):
            wanted = {"name": call.wanted.name, "arguments": read_arguments(call.wanted.arguments)}
            about = _write(_CALL, call)
            where = {key: about.pop(key) for key in ("turn", "round", "place", "speaker")}
            return {"event": "called", **where, **wanted, **about, "call": call.wanted.id}
        case Returned(result):
            return {"event": "returned", **_write(_RESULT, result)}
        case Ended(ending, error):
            line = {"event": "ended", **_write(_ENDING, ending)}
            return line if error is None else line | {"error": str(error)}


def read_event(line: Mapping[str, Any]) -> Event:
    """Restore the event from the object that :func:`write_event` made; unknown keys are ignored.

    A session is restored without its turns, and the error of an ending ``failed`` as a
    :class:`~bactrian.errors.BactrianError` with its text.

    Raises:
        ValueError: the object is not an event or lacks a key.
    """
    try:
        return _read_event(line)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not an event: {error}") from error


def _read_event(line: Mapping[str, Any]) -> Event:
    match line["event"]:
        case "started":
            return Started(_read_session(line))
        case "spoke":
            return Spoke(_read(_TURN, line))
        case "proposed":
            return Proposed(_read(_PROPOSAL, line))
        case "chose":
            return Chose(_read(_DECISION, line))
        case "called":
            invocation = Invocation(line["call"], line["name"], _write_arguments(line["arguments"]))
            return Called(_read(_CALL, line, wanted=invocation))
        case "returned":
            return Returned(_read(_RESULT, line))
        case "ended":
            error = line.get("error")
            return Ended(_read(_ENDING, line), None if error is None else BactrianError(error))
        case other:
            raise ValueError(f"unknown event {other!r}")


def _write_session(session: Session) -> Json:
    origin = session.provenance
    line = {
        "session": session.id,
        "assistant_role": session.assistant.name,
        "user_role": session.user.name,
        "assistant_description": session.assistant.description,
        "user_description": session.user.description,
        "agents": {name: role.name for name, role in origin.cast.items()},
        "agent_descriptions": {
            name: role.description for name, role in origin.cast.items() if role.description
        },
        "original_task": session.task.original,
        "specified_task": session.task.specified,
        "planned_task": session.task.planned,
        **_write(_ORIGIN, origin),
        "usage": _write(_USAGE, session.preparation),
        "stored_turns": len(session.turns),
        "values": dict(session.values),
        "mark": session.mark,
    }
    return {key: value for key, value in line.items() if value or key not in _SESSION_OPTIONAL}


_SESSION_OPTIONAL: Final = frozenset({"agent_descriptions", "values", "mark"})


def _read_session(line: Mapping[str, Any]) -> Session:
    descriptions = line.get("agent_descriptions", {})
    return Session(
        id=line["session"],
        assistant=Role(line["assistant_role"], line["assistant_description"]),
        user=Role(line["user_role"], line["user_description"]),
        task=Task(line["original_task"], line["specified_task"], line["planned_task"]),
        provenance=_read(
            _ORIGIN,
            line,
            cast={agent: Role(name, descriptions.get(agent, "")) for agent, name in line["agents"].items()},
        ),
        preparation=_read(_USAGE, line["usage"]),
        values=line.get("values", {}),
        mark=line.get("mark"),
    )


def _write(shape: _Shape, record: object) -> Json:
    line = {key: _to_plain(getattr(record, field)) for key, field in shape.keys.items()}
    return {key: value for key, value in line.items() if value or key not in shape.optional}


def _to_plain(value: object) -> Any:
    if isinstance(value, Usage):
        return _write(_USAGE, value)
    if isinstance(value, float):
        return round(value, SECONDS_DIGITS)
    return value if value is None or type(value) in (str, int, bool) else to_jsonable_python(value)


def _read(shape: _Shape, line: Mapping[str, Any], **more: object) -> Any:
    builders = _find_builders(shape.record)
    values = {
        field: _read(_USAGE, line[key]) if field == "usage" else builders[field](line[key])
        for key, field in shape.keys.items()
        if key in line or key not in shape.optional
    }
    return shape.record(**values, **more)


@cache
def _find_builders(record: type) -> Json:
    return {name: find_builder(hint) for name, hint in get_type_hints(record).items()}


def _write_arguments(value: object) -> str:
    """Serialize the arguments of a call; text that is not JSON stays unchanged."""
    if isinstance(value, str):
        try:
            from_json(value)
        except ValueError:
            return value
    return to_json(value).decode()
