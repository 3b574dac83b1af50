"""Events as JSON objects and back: the lines of ``bactrian play --json`` (docs/events.md)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, get_type_hints

from pydantic_core import from_json, to_json, to_jsonable_python

from bactrian.errors import BactrianError
from bactrian.records import turn as turns
from bactrian.records.events import Called, Chose, Ended, Event, Proposed, Returned, Spoke, Started
from bactrian.records.session import Ending, Provenance, Role, Session, Task, name_sides
from bactrian.records.text import find_builder

Json = dict[str, Any]
SECONDS_DIGITS: Final = 4  # Decimal places of durations.


# Keys that are called otherwise than the field of the record.
_RENAMED = {
    "number": "turn",
    "prompt": "prompt_tokens",
    "completion": "completion_tokens",
    "cached": "cached_tokens",
    "written": "written_tokens",
}
_LEFT_OUT = frozenset({"uses", "wanted", "cast", "extra"})  # Of turns, tool calls and provenances.
# Keys that are omitted if their value is empty.
_OPTIONAL = frozenset(
    {"fingerprint", "thought", "preamble", "needs_code", "critic", "tools", "engine_hash"}
    | {"agent_descriptions", "values", "mark", "written_tokens", "tier"}
)


def write_event(event: Event) -> Json:
    """Convert an event to a JSON object.

    Durations are rounded to 0.1 ms. The turns of a resumed session are counted, not included.
    """
    match event:
        case Started(session):
            return {"event": "started", **_write_session(session)}
        case Spoke(turn):
            return {"event": "spoke", **_write(turn)}
        case Proposed(proposal):
            return {"event": "proposed", **_write(proposal)}
        case Chose(decision):
            return {"event": "chose", **_write(decision)}
        case Called(call):
            wanted = {"name": call.wanted.name, "arguments": turns.read_arguments(call.wanted.arguments)}
            about = _write(call)
            where = {key: about.pop(key) for key in ("turn", "round", "place", "speaker")}
            return {"event": "called", **where, **wanted, **about, "call": call.wanted.id}
        case Returned(result):
            return {"event": "returned", **_write(result)}
        case Ended(ending, error):
            line = {"event": "ended", **_write(ending)}
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
            return Spoke(_read(turns.Turn, line))
        case "proposed":
            return Proposed(_read(turns.Proposal, line))
        case "chose":
            return Chose(_read(turns.Decision, line))
        case "called":
            invocation = turns.Invocation(line["call"], line["name"], _write_arguments(line["arguments"]))
            return Called(_read(turns.ToolCall, line, wanted=invocation))
        case "returned":
            return Returned(_read(turns.ToolResult, line))
        case "ended":
            error = line.get("error")
            return Ended(_read(Ending, line), None if error is None else BactrianError(error))
        case other:
            raise ValueError(f"unknown event {other!r}")


def _write_session(session: Session) -> Json:
    origin = session.provenance
    line = {
        "session": session.id,
        **name_sides(session),
        "assistant_description": "" if origin.cast else session.assistant.description,
        "user_description": "" if origin.cast else session.user.description,
        "agents": {name: role.name for name, role in origin.cast.items()},
        "agent_descriptions": {
            name: role.description for name, role in origin.cast.items() if role.description
        },
        "original_task": session.task.original,
        "specified_task": session.task.specified,
        "planned_task": session.task.planned,
        **_write(origin),
        "usage": _write(session.preparation),
        "stored_turns": len(session.turns),
        "values": dict(session.values),
        "mark": session.mark,
    }
    return {key: value for key, value in line.items() if value or key not in _OPTIONAL}


def _read_session(line: Mapping[str, Any]) -> Session:
    descriptions = line.get("agent_descriptions", {})
    cast = {agent: Role(name, descriptions.get(agent, "")) for agent, name in line["agents"].items()}
    sides = (Role(line[f"{side}_role"], line[f"{side}_description"]) for side in ("user", "assistant"))
    user, assistant, *_ = cast.values() or sides
    return Session(
        id=line["session"],
        assistant=assistant,
        user=user,
        task=Task(line["original_task"], line["specified_task"], line["planned_task"]),
        provenance=_read(Provenance, line, cast=cast),
        preparation=_read(turns.Usage, line["usage"]),
        values=line.get("values", {}),
        mark=line.get("mark"),
    )


def _write(record: Any) -> Json:
    line: Json = {}
    for name in _find_builders(record.__class__):
        key, value = _RENAMED.get(name, name), getattr(record, name)
        if isinstance(value, float):
            value = round(value, SECONDS_DIGITS)
        elif isinstance(value, turns.Usage):
            value = _write(value)
        elif value is not None and type(value) not in (str, int, bool):
            value = to_jsonable_python(value)
        if value or key not in _OPTIONAL:
            line[key] = value
    return line


def _read(record: Any, line: Mapping[str, Any], **more: object) -> Any:
    for name, build in _find_builders(record).items():
        key = _RENAMED.get(name, name)
        if key in line or key not in _OPTIONAL:
            more[name] = _read(turns.Usage, line[key]) if name == "usage" else build(line[key])
    return record(**more)


@cache
def _find_builders(record: Any) -> Json:
    """Return what restores the value of each field of ``record`` that is a key of its JSON object."""
    hints = get_type_hints(record)
    return {name: find_builder(hint) for name, hint in hints.items() if name not in _LEFT_OUT}


def _write_arguments(value: object) -> str:
    """Serialize the arguments of a call; text that is not JSON stays unchanged."""
    if isinstance(value, str):
        try:
            from_json(value)
        except ValueError:
            return value
    return to_json(value).decode()
