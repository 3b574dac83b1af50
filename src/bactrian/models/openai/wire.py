"""The chat-completions wire format: encodes requests and decodes replies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic_core import to_json

from bactrian.errors import BadReply, CutShort, ModelError, NotAnEndpoint
from bactrian.language.think import split_thought
from bactrian.models.model import Reply, ReplyChoice, Request, ResponseFormat
from bactrian.models.openai import tool_calls
from bactrian.models.openai.errors import explain_body
from bactrian.models.openai.lenient_json import decode_json, is_array, is_object
from bactrian.models.openai.usage import UsageReader, read_usage
from bactrian.records.message import Message
from bactrian.records.text import Text, clean_text
from bactrian.records.turn import Finish

_OPENINGS = {
    "system": b'},{"role":"system","content":',
    "user": b'},{"role":"user","content":',
    "assistant": b'},{"role":"assistant","content":',
    "tool": b'},{"role":"tool","content":',
}

_FINISHES: Mapping[str, Finish] = {
    "stop": "stop",
    "eos": "stop",
    "stop_sequence": "stop",
    "end_turn": "stop",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
}


def build_request_parts(
    model: str,
    request: Request,
    *,
    options: bytes,
) -> list[bytes]:
    """Return the body of a request in parts, including the cached JSON of the messages.

    ``options`` are its other fields, from :func:`encode_options`. Equal histories give equal bytes up to the latest
    message, so that a server's prefix cache applies.
    """
    messages = request.messages
    texts = [message.text.json for message in messages]
    if request.tools:
        texts = [text + _encode_tool_fields(message) for text, message in zip(texts, messages, strict=True)]
    # Slice assignment: a long conversation needs no more Python steps than a short one.
    parts = [b""] * (2 * len(texts))
    parts[::2] = [_OPENINGS[message.role] for message in messages]
    parts[1::2] = texts
    start, end = b'{"model":' + to_json(model) + b',"messages":[', b"]"
    if parts:
        parts[0], end = start + parts[0][2:], b"}]"
    else:
        parts = [start]
    parts.append(end + options)
    return parts


def _encode_tool_fields(message: Message) -> bytes:
    """Return the JSON that tool calls and results add to a message."""
    if message.calls:
        return tool_calls.encode_calls(message.calls)
    return b',"tool_call_id":' + to_json(message.answers) if message.answers else b""


def read_reply(body: bytes, *, sent: int, usage: UsageReader) -> Reply:
    """Parse an unstreamed reply to a request of ``sent`` bytes.

    Raises:
        BadReply: ``body`` is not a valid reply.
    """
    try:
        value, lossy = decode_json(body)
    except ValueError:
        raise _make_read_error(body) from None
    return build_reply(value, raw=body, sent=sent, usage=usage, lossy=lossy)


def _make_read_error(body: bytes) -> BadReply:
    if not body.strip():
        return BadReply("The endpoint sent an empty reply.")
    if body.lstrip()[:1] == b"<":
        return NotAnEndpoint(
            "The endpoint sent a web page: it does not look like an OpenAI-compatible API.",
            next="Check the base URL; did you omit /v1?",
            sample=body,
        )
    return BadReply("The endpoint's reply is not JSON, or was truncated.", sample=body)


def build_reply(value: Any, *, raw: bytes, sent: int, usage: UsageReader, lossy: bool = False) -> Reply:
    """Build the reply from decoded JSON. Raises :class:`BadReply` if it is invalid."""
    if not is_object(value):
        raise BadReply("The endpoint's reply is not a JSON object.", sample=raw)
    try:
        return _read_object(value, raw, sent, usage, lossy)
    except ModelError as fault:
        if reported := read_usage(value.get("usage")):
            fault.spent = reported.prompt, reported.completion
        raise


def _read_object(value: dict[str, Any], raw: bytes, sent: int, usage: UsageReader, lossy: bool) -> Reply:
    if value.get("error"):
        raise explain_body(value, raw)
    found = value.get("choices")
    if not is_array(found) or not found:
        raise BadReply("The endpoint's reply contains no choices.", sample=raw)
    choices = tuple([_read_choice(choice, raw, lossy) for choice in found])
    model = value.get("model")
    fingerprint = value.get("system_fingerprint")
    return Reply(
        choices,
        usage.find(value.get("usage"), choices, sent),
        clean_text(model) if isinstance(model, str) else "",
        raw,
        clean_text(fingerprint) if isinstance(fingerprint, str) else None,
        garbled=lossy,
    )


def _read_choice(choice: Any, raw: bytes, lossy: bool) -> ReplyChoice:
    message: Any = choice.get("message") if is_object(choice) else None
    if not is_object(choice) or not is_object(message):
        raise BadReply("A choice in the endpoint's reply contains no message.", sample=raw)
    if message.get("role", "assistant") in ("user", "system"):
        raise BadReply(f"The endpoint answered in the role of the {message['role']}.", sample=raw)
    refusal = message.get("refusal")
    refusal = refusal if isinstance(refusal, str) else ""
    thought, said = split_thought(_read_content(message.get("content"), raw))
    found = said or refusal
    text = clean_text(found)
    if text is not found:
        # ``clean_text`` joins a surrogate pair that was sent as two halves, which loses nothing.
        lossy = lossy or "\0" in found or text.count("\ufffd") > found.count("\ufffd")
    reason = choice.get("finish_reason")
    finish = _FINISHES.get(reason, "other") if isinstance(reason, str) else "other"
    calls = tool_calls.read_calls(message.get("tool_calls"), raw)
    thought = _read_thought(message) or thought
    return ReplyChoice(
        Text(text), finish, lossy, refusal != "", calls, clean_text(thought) if thought else ""
    )


def _read_thought(message: dict[str, Any]) -> str:
    """Return the thoughts of a reasoning model, from the field that its server uses.

    DeepSeek, vLLM, SGLang and llama.cpp use ``reasoning_content``; OpenRouter, Groq, Cerebras, Ollama and Together use
    ``reasoning``; Mistral puts thoughts among the parts of the content.
    """
    for name in ("reasoning_content", "reasoning"):
        if name in message and isinstance(found := message.get(name), str) and found.strip():
            return found.strip()
    content = message.get("content")
    if not is_array(content):
        return ""
    parts = [part for part in content if is_object(part)]
    thoughts = [_read_content(part.get("thinking"), b"") for part in parts if part.get("type") == "thinking"]
    return "\n\n".join(filter(None, thoughts))


def _read_content(content: Any, raw: bytes) -> str:
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if is_array(content):
        texts = [part.get("text") for part in content if is_object(part)]
        return "".join(text for text in texts if isinstance(text, str))
    raise BadReply("The content of the endpoint's reply is not text.", sample=raw)


def read_models(body: bytes) -> tuple[str, ...]:
    """Parse the reply to ``GET /models``. Raises :class:`BadReply` if it is invalid."""
    try:
        value, _ = decode_json(body)
    except ValueError:
        raise _make_read_error(body) from None
    entries = value.get("data") if is_object(value) else None
    if not is_array(entries):
        raise BadReply("The endpoint's list of models is invalid.", sample=body)
    names = [entry.get("id") for entry in entries if is_object(entry)]
    return tuple(name for name in names if isinstance(name, str))


def apply_response_format(choice: ReplyChoice, form: ResponseFormat) -> ReplyChoice:
    """Convert the JSON of a choice that follows ``form`` to the protocol's text.

    Refusals, filtered or empty texts and texts beside tool calls stay unchanged, because they do not have the format.

    Raises:
        BadReply: the JSON is truncated or does not follow the format.
    """
    if choice.refusal or choice.calls or choice.finish == "content_filter" or not choice.text.strip():
        return choice
    if choice.finish == "length":
        raise CutShort(
            "The reply reached its maximum length before its JSON was complete.",
            next="Raise max_tokens, or use the free protocol.",
            sample=choice.text.encode(),
        )
    try:
        text = form.read(choice.text)
    except ValueError as error:
        raise BadReply(
            f"The reply does not follow the response format {form.name!r}: {error}",
            next="Use an endpoint that enforces JSON schemas, or the free protocol.",
            sample=choice.text.encode(),
        ) from error
    return replace(choice, text=Text(clean_text(text)))
