"""Tool calls in the chat-completions wire format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic_core import from_json, to_json

from bactrian.errors import BadReply
from bactrian.models.openai.lenient_json import is_array, is_object
from bactrian.records.message import Invocation
from bactrian.records.text import clean_text
from bactrian.records.tool import Tool


def to_wire_tools(tools: Sequence[Tool]) -> list[dict[str, object]]:
    """Return the value of ``tools`` in a request."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
        }
        for tool in tools
    ]


def to_wire_calls(calls: Sequence[Invocation]) -> list[dict[str, object]]:
    """Return the value of ``tool_calls`` in a message.

    Servers parse the arguments and refuse conversations with invalid ones, so these become an empty object; the result
    shows the model what it had written.
    """
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments if _is_whole(call) else "{}"},
        }
        for call in calls
    ]


def encode_calls(calls: Sequence[Invocation]) -> bytes:
    """Return the JSON that calls add to a message."""
    return b',"tool_calls":' + to_json(to_wire_calls(calls))


def read_calls(found: Any, raw: bytes) -> tuple[Invocation, ...]:
    """Parse ``tool_calls`` of a reply's message. Arguments are not checked.

    Raises:
        BadReply: the value is not a list, or a call has no name.
    """
    if found is None:
        return ()
    if not is_array(found):
        raise BadReply("The tool calls in the endpoint's reply are not a list.", sample=raw)
    return tuple(_read_call(call, raw) for call in found)


def merge_call_deltas(calls: dict[int, dict[str, Any]], parts: Any) -> None:
    """Add the tool calls in a chunk of a stream to ``calls``, keyed by their position in the reply."""
    if not is_array(parts):
        return
    for place, part in enumerate(parts):
        function = part.get("function") if is_object(part) else None
        if not is_object(part) or not is_object(function):
            continue
        index = part.get("index")
        whole = calls.setdefault(
            index if isinstance(index, int) else place, {"function": {"name": "", "arguments": ""}}
        )
        if part.get("id"):
            whole["id"] = part["id"]
        for name in ("name", "arguments"):
            more = function.get(name)
            if name == "arguments" and is_object(more):
                more = _write_json(more)
            if isinstance(more, str):
                whole["function"][name] += more


def _read_call(call: Any, raw: bytes) -> Invocation:
    function = call.get("function") if is_object(call) else None
    name = function.get("name") if is_object(function) else None
    if not is_object(call) or not is_object(function) or not isinstance(name, str) or not name:
        raise BadReply("A tool call in the endpoint's reply has no name.", sample=raw)
    arguments: Any = function.get("arguments")
    if arguments is None:
        arguments = "{}"
    elif not isinstance(arguments, str):  # Some servers send the object itself.
        arguments = _write_json(arguments)
    id_ = call.get("id")
    return Invocation(
        clean_text(id_) if isinstance(id_, str) else "",
        clean_text(name),
        clean_text(arguments.strip() or "{}"),
    )


def _write_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))  # takes halves of surrogate pairs


def _is_whole(call: Invocation) -> bool:
    try:
        return is_object(from_json(call.arguments))
    except ValueError:
        return False
