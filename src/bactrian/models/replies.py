"""Replies in the chat-completions wire format, whole or streamed, with their usage and tool calls."""

from __future__ import annotations

import json
from asyncio import get_running_loop
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bactrian.errors import BadReply, CutShort, ModelError, NotAnEndpoint
from bactrian.models.faults import decode_json, explain_body, is_array, is_object
from bactrian.models.http_response import EventReader, Response
from bactrian.models.model import Reply, ReplyChoice, ResponseFormat
from bactrian.protocol.thoughts import ThoughtFilter, split_thought
from bactrian.records.text import Text, clean_text
from bactrian.records.turn import Finish, Invocation, Usage

# Usage that an endpoint reports, and estimates instead of counts that cannot be right.


BYTES_PER_TOKEN = 4.0
"""For estimates, until the endpoint has reported its own count."""
_LONGEST_TOKEN = 8
"""Bytes for each token from which a count is too small to be true: no tokenizer does so well."""
_PROMPT_SLACK = 16_384
_REPLY_SLACK = 2_048
"""Bytes that may be missing beyond that, in all requests to a model together: a response format or a tool may be sent
in more bytes than an endpoint counts."""
_MOST_TOKENS = 10_000_000
"""Larger token counts are errors, because no window is that large."""


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
        estimated = self.estimate(sent, _count_bytes(choices))
        if usage is None:
            return estimated
        prompt, completion = max(usage.prompt, estimated.prompt), max(usage.completion, estimated.completion)
        return Usage(prompt, completion, usage.cached, estimated=True)


def read_usage(usage: Any) -> Usage | None:
    """Return the usage as it is reported, or None if it is not usable."""
    if not is_object(usage):
        return None
    prompt = _read_count(usage.get("prompt_tokens"))
    completion = _read_count(usage.get("completion_tokens"))
    if prompt is None or completion is None:
        return None
    details = usage.get("prompt_tokens_details")
    cached = _read_count(details.get("cached_tokens")) if is_object(details) else None
    return Usage(prompt, completion, cached if cached is not None and cached <= prompt else 0)


def _read_count(value: Any) -> int | None:
    # ``type``: True and False are integers, too.
    return value if type(value) is int and 0 <= value <= _MOST_TOKENS else None


def _count_bytes(choices: Sequence[ReplyChoice]) -> int:
    said = sum(len(choice.text.encode()) + len(choice.thought.encode()) for choice in choices)
    return said + sum(len(call.arguments.encode()) for choice in choices for call in choice.calls)


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
    calls = read_calls(message.get("tool_calls"), raw)
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


# Differences between servers' versions of the chat-completions wire format.


# Tool calls.


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


# Streamed replies, assembled from the events of a stream.


_DONE = b"[DONE]"


async def read_stream(
    response: Response, on_text: Callable[[str], None], on_restart: Callable[[], None] | None = None
) -> StreamedReply:
    """Read a stream to its end, and forward each piece of the first choice's text as it arrives.

    Thoughts are not forwarded; if forwarded text turns out to be a thought, ``on_restart`` discards it.

    A stream that ends without ``[DONE]`` is complete if one of its choices has a finish reason.

    Raises:
        BadReply: an event of the stream is not a chunk of a reply.
        ModelError: the stream contains an error object or is too long.
    """
    events = EventReader()
    gathering = StreamedReply()
    speech = _Speech(on_text, on_restart)
    while piece := await response.read():
        gathering.raw += piece
        if _take(events.feed(piece), gathering, speech):
            break
    else:
        _take(events.end(), gathering, speech)
    speech.end()
    gathering.first_text = speech.begun
    return gathering


class _Speech:
    """Forwards a streamed reply without its thoughts."""

    def __init__(self, on_text: Callable[[str], None], on_restart: Callable[[], None] | None) -> None:
        self._on_text = on_text
        self._on_restart = on_restart
        self._filter = ThoughtFilter()
        self.begun: float | None = None
        """Arrival of the first piece, by the event loop's clock."""

    def add(self, piece: str) -> None:
        had_taken_back = self._filter.has_taken_back
        said = self._filter.feed(piece)
        if self._filter.has_taken_back and not had_taken_back and self._on_restart is not None:
            self._on_restart()
        self._pass_on(said)

    def end(self) -> None:
        self._pass_on(self._filter.end())

    def _pass_on(self, said: str) -> None:
        if said:
            self.begun = self.begun or get_running_loop().time()
            self._on_text(clean_text(said))


def _take(events: Iterable[bytes], gathering: StreamedReply, speech: _Speech) -> bool:
    """Add ``events`` to ``gathering``; return True at the end of the stream."""
    for data in events:
        if data == _DONE:
            gathering.ended = True
            return True
        if text := gathering.add(data):
            speech.add(text)
    return False


class StreamedReply:
    """Accumulates the chunks of a streamed reply."""

    def __init__(self) -> None:
        self.raw = bytearray()
        self.ended = False
        """True once a choice has a finish reason or the stream has sent ``[DONE]``."""
        self.first_text: float | None = None
        """Arrival of the first piece of text, by the event loop's clock."""
        self.lossy = False
        self._model: Any = None
        self._fingerprint: Any = None
        self._usage: Any = None
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
        }
