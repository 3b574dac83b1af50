"""Requests in the chat-completions wire format, and what differs between servers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote, urlencode

from pydantic_core import from_json, to_json

from bactrian.models.faults import is_object
from bactrian.models.model import Constraint, Request, ResponseFormat
from bactrian.models.seeds import fit_seed
from bactrian.records.turn import Invocation, Message, Sampling, Tool

LengthWord = Literal["max_tokens", "max_completion_tokens"]
OTHER_WORD: Mapping[str, LengthWord] = {
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """The variant of the wire format that a server expects."""

    path: str = "/chat/completions"
    """Path below the address; ``{model}`` is replaced by the model's name."""
    models_path: str = "/models"
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    """Query parameters of every request."""
    auth: Literal["bearer", "api-key"] = "bearer"
    """The header of the key: ``Authorization: Bearer KEY`` or ``api-key: KEY``."""
    length: LengthWord = "max_tokens"
    """The parameter for the maximum length of a reply."""
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Parameters with a different name on this server."""
    constrained_by: Constraint = "schema"
    key_variable: str = "OPENAI_API_KEY"
    """Environment variable of the key, for error messages."""
    needs_key: bool = False

    def write_path(self, model: str) -> str:
        """Return the path of a request to ``model``, with its query."""
        return self._add_query(self.path.replace("{model}", quote(model, safe="")))

    def write_models_path(self) -> str:
        """Return the path of the list of models, with its query."""
        return self._add_query(self.models_path)

    def write_header(self, key: str, credentials: str) -> str:
        """Return the authorization header; empty without a key and without ``credentials`` in the address."""
        if not key:
            return f"Authorization: {credentials}" if credentials else ""
        return f"api-key: {key}" if self.auth == "api-key" else f"Authorization: Bearer {key}"

    def _add_query(self, path: str) -> str:
        return f"{path}?{urlencode(self.query)}" if self.query else path


USUAL = Dialect()
"""The variant that all servers understand."""


# The body: model and messages, whose JSON is kept with their texts.


_OPENINGS = {
    "system": b'},{"role":"system","content":',
    "user": b'},{"role":"user","content":',
    "assistant": b'},{"role":"assistant","content":',
    "tool": b'},{"role":"tool","content":',
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
        return encode_calls(message.calls)
    return b',"tool_call_id":' + to_json(message.answers) if message.answers else b""


# The other fields of a request: sampling parameters, constraints and tools.


_KEPT = 64


class OptionEncoder:
    """Encodes the options of an endpoint's requests; a session without a seed repeats the same ones at each turn."""

    def __init__(self) -> None:
        self._encoded: dict[tuple[object, ...], bytes] = {}

    def encode(self, request: Request, *, stream: bool, dialect: Dialect, without: frozenset[str]) -> bytes:
        """Return what :func:`encode_options` returns, from memory if possible."""
        sampling = request.sampling
        if (
            sampling.seed is not None
            or sampling.extra
            or request.tools
            or request.n != 1
            or request.response_format is not None
        ):
            return encode_options(request, stream=stream, dialect=dialect, without=without)
        key = (
            sampling.temperature,
            sampling.top_p,
            sampling.max_tokens,
            sampling.stop,
            sampling.reasoning_effort,
            stream,
            dialect.length,
            without,
        )
        if (found := self._encoded.get(key)) is None:
            if len(self._encoded) >= _KEPT:
                self._encoded.clear()
            found = encode_options(request, stream=stream, dialect=dialect, without=without)
            self._encoded[key] = found
        return found


def encode_options(
    request: Request, *, stream: bool = False, dialect: Dialect = USUAL, without: Collection[str] = ()
) -> bytes:
    """Return the JSON of a request's fields other than model and messages, and the end of its body.

    Parameters in ``without`` are left out.
    """
    options = build_options(request, stream=stream, dialect=dialect, without=without)
    return b"," + to_json(options)[1:] if options else b"}"


def build_options(
    request: Request, *, stream: bool, dialect: Dialect = USUAL, without: Collection[str] = ()
) -> dict[str, object]:
    """Return the fields of a request's body other than model and messages."""
    options = build_parameters(request.sampling, dialect, without)
    if request.n != 1:
        options["n"] = request.n
    if request.response_format is not None:
        options |= _build_constraint(request.response_format, dialect)
    if request.tools:
        options["tools"] = to_wire_tools(request.tools)
        if not request.allow_tool_calls:
            options["tool_choice"] = "none"
    if stream:
        options["stream"] = True
        if "stream_options" not in without:
            options["stream_options"] = {"include_usage": True}
    return options


def build_parameters(
    sampling: Sampling, dialect: Dialect, without: Collection[str] = ()
) -> dict[str, object]:
    """Return the sampling fields, which a server may refuse and can do without."""
    values: dict[str, object | None] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        dialect.length: sampling.max_tokens,
        "seed": None if sampling.seed is None else fit_seed(sampling.seed),
        "stop": sampling.stop or None,
        "reasoning_effort": sampling.reasoning_effort,
    }
    if sampling.extra:
        values |= sampling.extra
    if not (dialect.renamed or without):
        return {name: value for name, value in values.items() if value is not None}
    pairs = ((dialect.renamed.get(name, name), value) for name, value in values.items())
    return {name: value for name, value in pairs if value is not None and name not in without}


def has_grammar(form: ResponseFormat | None, dialect: Dialect) -> bool:
    """Return True if a grammar constrains the reply to the protocol's text."""
    return form is not None and bool(form.grammar) and dialect.constrained_by == "grammar"


def _build_constraint(form: ResponseFormat, dialect: Dialect) -> dict[str, object]:
    if has_grammar(form, dialect):
        return {"grammar": form.grammar}
    if dialect.constrained_by == "none":
        return {}
    shape = {"name": form.name, "strict": True, "schema": form.schema}
    return {"response_format": {"type": "json_schema", "json_schema": shape}}


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


def _is_whole(call: Invocation) -> bool:
    try:
        return is_object(from_json(call.arguments))
    except ValueError:
        return False
