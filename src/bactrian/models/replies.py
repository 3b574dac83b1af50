"""Replies in the chat-completions wire format, whole or streamed, with their usage and tool calls."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, TypeGuard

from pydantic import ValidationError

from bactrian.errors import BadReply, CutShort, ModelError, NotAnEndpoint
from bactrian.models.faults import decode_json, explain_body, is_array, is_object
from bactrian.models.http_response import EventReader, Response
from bactrian.models.model import Reply, ReplyChoice, ResponseFormat
from bactrian.models.wire import TIER_FIELD
from bactrian.protocol.thoughts import ThoughtFilter, split_thought
from bactrian.records.text import Text, clean_text
from bactrian.records.turn import Finish, Invocation, Usage

# Usage that an endpoint reports, and estimates instead of counts that cannot be right.


BYTES_PER_TOKEN = 4.0  # For estimates, until the endpoint has reported its own count
# Bytes for each token from which a count is too small to be true: no tokenizer does so well.
_LONGEST_TOKEN = 8
_PROMPT_SLACK = 16_384
# Bytes that may be missing beyond that, in all requests to a model together: a response format or a tool may
# be sent in more bytes than an endpoint counts.
_REPLY_SLACK = 2_048
_MOST_TOKENS = 10_000_000  # Larger token counts are errors, because no window is that large


@dataclass(slots=True)
class UsageReader:
    """Reads the usage of the replies of one model, and learns how many bytes one of its tokens has."""

    bytes_per_token: float = BYTES_PER_TOKEN
    _prompt_slack: float = _PROMPT_SLACK
    _reply_slack: float = _REPLY_SLACK

    def learn(self, sent: int, tokens: int) -> None:
        """Learn from a request of ``sent`` bytes that has so many tokens."""
        ratio = sent / tokens
        self.bytes_per_token = (
            ratio if 1.0 <= ratio <= _LONGEST_TOKEN else min(_LONGEST_TOKEN, max(1.0, ratio))
        )

    def estimate(self, sent: int, received: int) -> Usage:
        """Estimate the usage from the bytes sent and received."""
        return Usage(round(sent / self.bytes_per_token), round(received / BYTES_PER_TOKEN), estimated=True)

    def find(self, reported: Any, choices: Sequence[ReplyChoice], sent: int) -> Usage:
        """Return the usage of a reply to a request of ``sent`` bytes.

        It is what the endpoint reports; where a part is missing or cannot be right, the larger of report and estimate.
        """
        usage = read_usage(reported)
        received = len(choices[0].text) if len(choices) == 1 else sum(len(choice.text) for choice in choices)
        if usage is not None and usage.prompt and (usage.completion or not received):
            prompt = sent - usage.prompt * _LONGEST_TOKEN
            reply = received - usage.completion * _LONGEST_TOKEN
            if prompt <= self._prompt_slack and reply <= self._reply_slack:
                if prompt > 0:
                    self._prompt_slack -= prompt
                else:
                    self.learn(sent, usage.prompt)
                if reply > 0:
                    self._reply_slack -= reply
                return usage
        calls = [call.arguments for choice in choices for call in choice.calls]
        texts = [text for choice in choices for text in (choice.text, choice.thought)] + calls
        estimated = self.estimate(sent, sum(len(text.encode()) for text in texts))
        if usage is None:
            return estimated
        prompt, completion = max(usage.prompt, estimated.prompt), max(usage.completion, estimated.completion)
        return replace(usage, prompt=prompt, completion=completion, estimated=True)


def read_usage(usage: Any) -> Usage | None:
    """Return the usage as it is reported, or None if it is not usable."""
    if not is_object(usage):
        return None
    details = usage.get("prompt_tokens_details")
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not (_is_count(prompt) and _is_count(completion)):
        return None
    if not is_object(details):
        return Usage(prompt, completion)
    cached, written = details.get("cached_tokens"), details.get("cache_write_tokens")
    cached = cached if _is_count(cached) and cached <= prompt else 0
    written = written if _is_count(written) and written <= prompt - cached else 0
    return Usage(prompt, completion, cached, written=written)


_USUAL_TIERS = frozenset(("", "auto", "default", "on_demand", "standard", "unspecified"))
_LONGEST_TIER = 40


def add_tier(reply: Reply, named: object) -> Reply:
    """Return ``reply`` with the tier at which it was served, as the endpoint ``named`` it."""
    tier = clean_text(named)[:_LONGEST_TIER].lower() if isinstance(named, str) else ""
    return reply if tier in _USUAL_TIERS else replace(reply, usage=replace(reply.usage, tier=tier))


def _is_count(value: Any) -> TypeGuard[int]:
    # ``type``: True and False are integers, too.
    return type(value) is int and 0 <= value <= _MOST_TOKENS


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


def read_reply(body: bytes, *, sent: int, usage: UsageReader) -> Reply:
    """Parse an unstreamed reply to a request of ``sent`` bytes.

    Raises:
        BadReply: ``body`` is not a valid reply.
    """
    value, lossy = _decode(body)
    return build_reply(value, raw=body, sent=sent, usage=usage, lossy=lossy)


def _decode(body: bytes) -> tuple[Any, bool]:
    """Return what :func:`decode_json` returns; raise BadReply if it is not JSON."""
    try:
        return decode_json(body)
    except ValueError:
        pass
    if not body.strip():
        raise BadReply("The endpoint sent an empty reply.")
    if body.lstrip()[:1] == b"<":
        raise NotAnEndpoint(
            "The endpoint sent a web page: it does not look like an OpenAI-compatible API.",
            next="Check the base URL; did you omit /v1?",
            sample=body,
        )
    raise BadReply("The endpoint's reply is not JSON, or was truncated.", sample=body)


def build_reply(value: Any, *, raw: bytes, sent: int, usage: UsageReader, lossy: bool = False) -> Reply:
    """Build the reply from decoded JSON. Raises :class:`BadReply` if it is invalid."""
    if not is_object(value):
        raise BadReply("The endpoint's reply is not a JSON object.", sample=raw)
    try:
        if value.get("error"):
            raise explain_body(value, raw)
        listed = value.get("choices")
        if not is_array(listed) or not listed:
            raise BadReply("The endpoint's reply contains no choices.", sample=raw)
        choices = tuple([_read_choice(choice, raw, lossy) for choice in listed])
    except ModelError as fault:
        if reported := read_usage(value.get("usage")):
            fault.spent = reported.prompt, reported.completion
        raise
    model = value.get("model")
    fingerprint = value.get("system_fingerprint")
    reply = Reply(
        choices,
        usage.find(value.get("usage"), choices, sent),
        clean_text(model) if isinstance(model, str) else "",
        raw,
        clean_text(fingerprint) if isinstance(fingerprint, str) else None,
        garbled=lossy,
    )
    return add_tier(reply, tier) if (tier := value.get(TIER_FIELD)) else reply


def _read_choice(choice: Any, raw: bytes, lossy: bool) -> ReplyChoice:
    message: Any = choice.get("message") if is_object(choice) else None
    if not is_object(message):
        raise BadReply("A choice in the endpoint's reply contains no message.", sample=raw)
    if message.get("role") in ("user", "system"):
        raise BadReply(f"The endpoint answered in the role of the {message['role']}.", sample=raw)
    refusal = message.get("refusal")
    refusal = refusal if isinstance(refusal, str) else ""
    content = message.get("content")
    thought, answer = split_thought(content if isinstance(content, str) else _read_content(content, raw))
    answer = answer or refusal
    text = clean_text(answer)
    if text is not answer:
        # ``clean_text`` joins a surrogate pair that was sent as two halves, which loses nothing.
        lossy = lossy or "\0" in answer or text.count("\ufffd") > answer.count("\ufffd")
    reason = choice.get("finish_reason")
    finish = _FINISHES.get(reason, "other") if isinstance(reason, str) else "other"
    calls = message.get("tool_calls")
    thought = _read_thought(message, content) or thought
    return ReplyChoice(
        Text(text),
        finish,
        lossy,
        refusal != "",
        () if calls is None else read_calls(calls, raw),
        clean_text(thought) if thought else "",
    )


def _read_thought(message: dict[str, Any], content: Any) -> str:
    """Return the thoughts of a reasoning model, from the field that its server uses.

    DeepSeek, vLLM, SGLang and llama.cpp use ``reasoning_content``; OpenRouter, Groq, Cerebras, Ollama and Together use
    ``reasoning``; Mistral puts thoughts among the parts of the content.
    """
    for name in ("reasoning_content", "reasoning"):
        if name in message and isinstance(thought := message[name], str) and thought.strip():
            return thought.strip()
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
    value, _ = _decode(body)
    entries = value.get("data") if is_object(value) else None
    if not is_array(entries):
        raise BadReply("The endpoint's list of models is invalid.", sample=body)
    names = [entry.get("id") for entry in entries if is_object(entry)]
    return tuple(name for name in names if isinstance(name, str))


def read_picture(body: bytes) -> bytes:
    """Parse the reply to ``POST /images/generations``, and return its picture. Raises BadReply if it has none."""
    value, _ = _decode(body)
    entries = value.get("data") if is_object(value) else None
    first = entries[0] if is_array(entries) and entries else None
    encoded = first.get("b64_json") if is_object(first) else None
    try:
        content = base64.b64decode(encoded, validate=True) if isinstance(encoded, str) else b""
    except ValueError:
        content = b""
    if not content:
        raise BadReply(
            "The endpoint sent no picture.", next="Name a model that answers with `b64_json`.", sample=body
        )
    return content


def explain_misfit(error: ValueError) -> str:
    """Return in words what is wrong with a reply that its response format cannot read."""
    if not isinstance(error, ValidationError):
        return str(error)
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    field = ".".join(map(str, problem["loc"]))
    match problem["type"]:
        case "json_invalid":
            return "it is not JSON"
        case "missing":
            return f"the field {field!r} is missing"
        case _:
            what = problem["msg"].removeprefix("Value error, ")
            return f"{f'the field {field!r}: ' if field else ''}{what[:1].lower()}{what[1:]}"


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
            f"The reply does not follow the response format {form.name!r}: {explain_misfit(error)}.",
            next="Use an endpoint that enforces JSON schemas, or the free protocol.",
            sample=choice.text.encode(),
        ) from error
    return replace(choice, text=Text(clean_text(text)))


# Tool calls.


def read_calls(listed: Any, raw: bytes) -> tuple[Invocation, ...]:
    """Parse ``tool_calls`` of a reply's message. Arguments are not checked.

    Raises:
        BadReply: the value is not a list, or a call has no name.
    """
    if not is_array(listed):
        raise BadReply("The tool calls in the endpoint's reply are not a list.", sample=raw)
    calls: list[Invocation] = []
    for call in listed:
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
        id_ = clean_text(id_) if isinstance(id_, str) else ""
        calls.append(Invocation(id_, clean_text(name), clean_text(arguments.strip() or "{}")))
    return tuple(calls)


def merge_call_deltas(calls: dict[int, dict[str, Any]], parts: Any) -> None:
    """Add the tool calls in a chunk of a stream to ``calls``, keyed by their position in the reply."""
    if not is_array(parts):
        return
    for position, part in enumerate(parts):
        function = part.get("function") if is_object(part) else None
        if not is_object(part) or not is_object(function):
            continue
        index = part.get("index")
        index = index if isinstance(index, int) else position
        whole = calls.setdefault(index, {"function": {"name": "", "arguments": ""}})
        if part.get("id"):
            whole["id"] = part["id"]
        for name in ("name", "arguments"):
            more = function.get(name)
            if name == "arguments" and is_object(more):
                more = _write_json(more)
            if isinstance(more, str):
                whole["function"][name] += more


def _write_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))  # takes halves of surrogate pairs


# Streamed replies, assembled from the events of a stream.


_DONE = b"[DONE]"


async def read_stream(
    response: Response,
    gathered: StreamedReply,
    on_text: Callable[[str], None],
    on_restart: Callable[[], None] | None = None,
) -> None:
    """Gather a stream to its end, and forward each piece of the first choice's text as it arrives.

    Thoughts are not forwarded; if forwarded text turns out to be a thought, ``on_restart`` discards it.

    A stream that ends without ``[DONE]`` is complete if one of its choices has a finish reason.

    Raises:
        BadReply: an event of the stream is not a chunk of a reply.
        ModelError: the stream contains an error object or is too long.
    """
    events, speech = EventReader(), Speech(on_text, on_restart)
    done = False
    while not done:
        piece = await response.read()
        done = not piece
        gathered.raw += piece
        for data in events.feed(piece) if piece else events.end():
            if data == _DONE:
                gathered.ended = done = True
                break
            if text := gathered.add(data):
                speech.add(text)
    speech.end()
    gathered.first_text = speech.begun


class Speech:
    """Forwards a streamed reply without its thoughts."""

    def __init__(self, on_text: Callable[[str], None] | None, on_restart: Callable[[], None] | None) -> None:
        self._on_text = on_text
        self._on_restart = on_restart
        self._filter = ThoughtFilter()
        self.begun: float | None = None  # Arrival of the first piece, by `perf_counter`

    def add(self, piece: str) -> None:
        """Forward the next piece; if an earlier one turns out to be a thought, the receiver discards it."""
        had_taken_back = self._filter.has_taken_back
        text = self._filter.feed(piece)
        if self._filter.has_taken_back and not had_taken_back and self._on_restart is not None:
            self._on_restart()
        self._pass_on(text)

    def end(self) -> None:
        """Forward what was held back and is not a thought."""
        self._pass_on(self._filter.end())

    def _pass_on(self, text: str) -> None:
        if text and self._on_text is not None:
            self.begun = self.begun or perf_counter()
            self._on_text(clean_text(text))


class StreamedReply:
    """Accumulates the chunks of a streamed reply."""

    def __init__(self) -> None:
        self.raw = bytearray()
        self.started = perf_counter()
        self.ended = False  # True once a choice has a finish reason or the stream has sent `[DONE]`
        self.first_text: float | None = None  # Arrival of the first piece of text, by `perf_counter`
        self.lossy = False
        self._model: Any = None
        self._fingerprint: Any = None
        self._usage: Any = None
        self._tier: Any = None
        self._choices: dict[int, dict[str, Any]] = {}

    def add(self, data: bytes) -> str:
        """Add the data of one event; return the text it adds to the first choice.

        Raises:
            BadReply: the event is not a chunk of a reply.
            ModelError: the event is an error object.
        """
        try:
            chunk, lossy = decode_json(data)
        except ValueError:
            raise BadReply("An event in the endpoint's stream is not JSON.", sample=data) from None
        if not is_object(chunk):
            raise BadReply("An event in the endpoint's stream is not a JSON object.", sample=data)
        if chunk.get("error"):
            raise explain_body(chunk, data)
        self.lossy = self.lossy or lossy
        self._model = self._model or chunk.get("model")
        self._fingerprint = self._fingerprint or chunk.get("system_fingerprint")
        self._usage = chunk.get("usage") or self._usage
        self._tier = chunk.get(TIER_FIELD) or self._tier
        choices = chunk.get("choices")
        return "".join(self._add_choice(choice) for choice in choices) if is_array(choices) else ""

    def _add_choice(self, part: Any) -> str:
        if not is_object(part):
            return ""
        index = part.get("index", 0)
        whole = self._choices.setdefault(
            index if isinstance(index, int) else 0,
            {"texts": [], "thoughts": [], "refusals": [], "calls": {}, "finish_reason": None},
        )
        if part.get("finish_reason") is not None:
            whole["finish_reason"] = part["finish_reason"]
            self.ended = True
        delta = part.get("delta")
        if not is_object(delta):
            return ""
        if "role" in delta:
            whole["role"] = delta["role"]
        if isinstance(refusal := delta.get("refusal"), str):
            whole["refusals"].append(refusal)
        if isinstance(thought := delta.get("reasoning_content") or delta.get("reasoning"), str):
            whole["thoughts"].append(thought)
        merge_call_deltas(whole["calls"], delta.get("tool_calls"))
        text = delta.get("content")
        if not isinstance(text, str):
            return ""
        whole["texts"].append(text)
        return text if index == 0 else ""

    @property
    def empty(self) -> bool:
        """True if the stream contained no chunk of a reply."""
        return not self._choices

    def find_usage(self, usage: UsageReader, sent: int, size: int = 0) -> Usage:
        """Return what was used until the stream broke off: what it reported, or an estimate from its texts.

        ``size`` are the bytes of a reply that is no stream.
        """
        kinds = ("texts", "thoughts", "refusals")
        text = "".join(part for whole in self._choices.values() for kind in kinds for part in whole[kind])
        return read_usage(self._usage) or usage.estimate(
            sent, size if self.empty else len(clean_text(text).encode())
        )

    def value(self) -> dict[str, Any]:
        """Return the reply in the form of an unstreamed one."""
        choices = [
            {
                "message": {
                    "role": whole.get("role") or "assistant",
                    "content": "".join(whole["texts"]),
                    "reasoning_content": "".join(whole["thoughts"]),
                    "refusal": "".join(whole["refusals"]),
                    "tool_calls": list(whole["calls"].values()),
                },
                "finish_reason": whole["finish_reason"],
            }
            for _, whole in sorted(self._choices.items())
        ]
        return {
            "model": self._model,
            "system_fingerprint": self._fingerprint,
            "choices": choices,
            "usage": self._usage,
            TIER_FIELD: self._tier,
        }
