"""Requests and replies of other wire formats than chat completions, for the batch interfaces that have only those."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic_core import from_json, to_json

from bactrian.models.faults import is_array, is_object

# What these interfaces do not have, and refuse.
_NOT_ANTHROPIC = frozenset(
    {"seed", "n", "response_format", "stream", "reasoning_effort", "frequency_penalty", "presence_penalty"}
    | {"max_completion_tokens", "logit_bias", "prompt_cache_key", "messages", "stop", "tools", "tool_choice"}
)
_LONGEST_REPLY = 4096  # Where a request has no limit, and the interface requires one
_GEMINI_NAMES = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "max_tokens": "maxOutputTokens",
    "max_completion_tokens": "maxOutputTokens",
    "seed": "seed",
    "n": "candidateCount",
    "frequency_penalty": "frequencyPenalty",
    "presence_penalty": "presencePenalty",
}
_FINISHES = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "BLOCKLIST": "content_filter",
}


def write_anthropic(body: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a request in the chat-completions format to one of Anthropic's messages."""
    params = {name: value for name, value in body.items() if name not in _NOT_ANTHROPIC}
    params["max_tokens"] = body.get("max_tokens") or body.get("max_completion_tokens") or _LONGEST_REPLY
    if system := _join_system(body["messages"]):
        params["system"] = system
    messages: list[dict[str, Any]] = []
    for message in body["messages"]:
        match message["role"]:
            case "system":
                continue
            case "tool":
                result = {"type": "tool_result", "tool_use_id": message["tool_call_id"]}
                messages.append({"role": "user", "content": [result | {"content": message["content"]}]})
            case role:
                content: Any = message["content"]
                if calls := message.get("tool_calls"):
                    texts = [{"type": "text", "text": content}] if content else []
                    content = [*texts, *map(_write_tool_use, calls)]
                messages.append({"role": role, "content": content})
    params["messages"] = messages
    if stop := body.get("stop"):
        params["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    if tools := body.get("tools"):
        params["tools"] = [_write_anthropic_tool(tool["function"]) for tool in tools]
        if body.get("tool_choice") == "none":
            params["tool_choice"] = {"type": "none"}
    return params


def read_anthropic(message: Any) -> dict[str, Any]:
    """Convert a message of Anthropic to a reply in the chat-completions format."""
    message = message if is_object(message) else {}
    content: Any = message.get("content")
    parts = [part for part in content if is_object(part)] if is_array(content) else []
    usage = _read_usage(message.get("usage"))
    read, made = usage.get("cache_read_input_tokens") or 0, usage.get("cache_creation_input_tokens") or 0
    calls = [
        _write_call(part.get("id") or "", part.get("name"), part.get("input"))
        for part in parts
        if part.get("type") == "tool_use"
    ]
    return _write_reply(
        message.get("model"),
        [_write_choice(_join(parts, "text"), message.get("stop_reason"), calls, _join(parts, "thinking"))],
        (usage.get("input_tokens") or 0) + read + made if usage else None,
        usage.get("output_tokens"),
        read,
        made,
    )


def write_gemini(body: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a request in the chat-completions format to one for Gemini's ``generateContent``."""
    settings = {_GEMINI_NAMES[name]: value for name, value in body.items() if name in _GEMINI_NAMES}
    if stop := body.get("stop"):
        settings["stopSequences"] = [stop] if isinstance(stop, str) else stop
    if form := body.get("response_format"):
        settings |= {
            "responseMimeType": "application/json",
            "responseJsonSchema": form["json_schema"]["schema"],
        }
    names: dict[str, str] = {}
    contents: list[dict[str, Any]] = []
    for message in body["messages"]:
        parts = [{"text": message["content"]}] if message.get("content") else []
        match message["role"]:
            case "system":
                continue
            case "tool":
                answer = {
                    "name": names.get(message["tool_call_id"], ""),
                    "response": {"result": message["content"]},
                }
                contents.append({"role": "user", "parts": [{"functionResponse": answer}]})
            case "assistant":
                for call in message.get("tool_calls") or ():
                    function = call["function"]
                    names[call["id"]] = function["name"]
                    arguments = from_json(function["arguments"])
                    parts.append({"functionCall": {"name": function["name"], "args": arguments}})
                contents.append({"role": "model", "parts": parts or [{"text": ""}]})
            case _:
                contents.append({"role": "user", "parts": parts or [{"text": ""}]})
    request: dict[str, Any] = {"contents": contents}
    if settings:
        request["generationConfig"] = settings
    if system := _join_system(body["messages"]):
        request["systemInstruction"] = {"parts": [{"text": system}]}
    if tools := body.get("tools"):
        functions = [
            {"name": of["name"], "description": of["description"], "parametersJsonSchema": of["parameters"]}
            for of in (tool["function"] for tool in tools)
        ]
        request["tools"] = [{"functionDeclarations": functions}]
        if body.get("tool_choice") == "none":
            request["toolConfig"] = {"functionCallingConfig": {"mode": "NONE"}}
    return request


def read_gemini(response: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Convert a response of Gemini to a reply in the chat-completions format."""
    choices: list[dict[str, Any]] = []
    for candidate in response.get("candidates") or ():
        content = candidate.get("content")
        parts = content.get("parts") if is_object(content) else None
        parts = [part for part in parts if is_object(part)] if is_array(parts) else []
        calls = [
            _write_call(f"call_{place}", part["functionCall"].get("name"), part["functionCall"].get("args"))
            for place, part in enumerate(parts)
            if is_object(part.get("functionCall"))
        ]
        said = [part for part in parts if not part.get("thought")]
        thought = "".join(str(part.get("text") or "") for part in parts if part.get("thought"))
        finish = "tool_use" if calls else candidate.get("finishReason")
        choices.append(
            _write_choice("".join(str(part.get("text") or "") for part in said), finish, calls, thought)
        )
    if not choices:  # The prompt was blocked.
        choices = [_write_choice("", "SAFETY", [], "")]
    usage = _read_usage(response.get("usageMetadata"))
    completion = (usage.get("candidatesTokenCount") or 0) + (usage.get("thoughtsTokenCount") or 0)
    return _write_reply(
        response.get("modelVersion") or model,
        choices,
        usage.get("promptTokenCount"),
        completion if usage else None,
        usage.get("cachedContentTokenCount") or 0,
    )


def _read_usage(usage: Any) -> dict[str, int]:
    """Return the counts; what is no number is missing, and is estimated later."""
    items = usage.items() if is_object(usage) else ()
    return {name: count for name, count in items if isinstance(count, int)}


def _join_system(messages: Iterable[Mapping[str, Any]]) -> str:
    return "\n\n".join(message["content"] for message in messages if message["role"] == "system")


def _join(parts: Iterable[Mapping[str, Any]], kind: str) -> str:
    return "".join(str(part.get(kind) or "") for part in parts if part.get("type") == kind)


def _write_tool_use(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {
        "type": "tool_use",
        "id": call["id"],
        "name": function["name"],
        "input": from_json(function["arguments"]),
    }


def _write_anthropic_tool(function: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": function["name"],
        "description": function["description"],
        "input_schema": function["parameters"],
    }


def _write_call(name: str, function: Any, arguments: Any) -> dict[str, Any]:
    return {
        "id": name,
        "type": "function",
        "function": {"name": function, "arguments": to_json(arguments or {}).decode()},
    }


def _write_choice(text: str, finish: Any, calls: list[dict[str, Any]], thought: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = calls
    if thought:
        message["reasoning_content"] = thought
    return {"message": message, "finish_reason": _FINISHES.get(str(finish), "other")}


def _write_reply(
    model: Any, choices: list[dict[str, Any]], prompt: Any, completion: Any, cached: int, written: int = 0
) -> dict[str, Any]:
    reply: dict[str, Any] = {"model": model, "choices": choices}
    if prompt is not None and completion is not None:
        reply["usage"] = {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "prompt_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
        }
    return reply
