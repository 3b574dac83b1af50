"""Requests in the chat-completions wire format, and what differs between servers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from typing import Annotated, Literal
from urllib.parse import quote, urlencode

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import from_json, to_json

from bactrian.models.faults import is_object
from bactrian.models.model import Constraint, History, Request, ResponseFormat, fit_seed
from bactrian.records.turn import Invocation, Sampling, Tool

LengthWord = Literal["max_tokens", "max_completion_tokens"]
OTHER_WORD: Mapping[str, LengthWord] = {
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
}
TIER_FIELD = "service_tier"  # Of a request and of its reply
# Without small letters: the keys of some providers are else like names of variables.
VARIABLE = r"^[A-Z_][A-Z0-9_]{0,63}$"


class Dialect(BaseModel):
    """The variant of the wire format that a server expects: a part of its row among the providers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: Annotated[str | None, Field(pattern=VARIABLE, description="Environment variable of the key.")] = None
    auth: Literal["bearer", "api-key"] = "bearer"  # `Authorization: Bearer KEY` or `api-key: KEY`
    path: Annotated[str, Field(description="Below the address; {model} stands for the model's name.")] = (
        "/chat/completions"
    )
    models_path: str = "/models"
    query: Annotated[dict[str, str], Field(description="Goes with every request.")] = {}
    length: LengthWord = "max_tokens"  # The parameter for the maximum length of a reply
    renamed: Annotated[dict[str, str], Field(description="Parameters that have another name here.")] = {}
    constrained_by: Constraint = "schema"
    session_header: Annotated[bool, Field(description="X-Session-ID names the conversation.")] = False
    cache_key: Annotated[str | None, Field(description="The field that names the conversation.")] = None
    tiers: Annotated[
        dict[str, Annotated[float, Field(ge=0, strict=True)]],
        Field(description="Service tiers, and how many times the usual price a call costs there."),
    ] = {}
    tier_header: Annotated[
        str | None,
        Field(
            pattern=r"^[a-z0-9-]+$", description="The header of a reply that names its tier, in lower case."
        ),
    ] = None

    @property
    def key_variable(self) -> str:
        """The environment variable of the key, for error messages."""
        return self.key or "the provider's key"

    def write_path(self, model: str | None) -> str:
        """Return the path of a request to ``model``, or of the list of models, with its query."""
        path = self.models_path if model is None else self.path.replace("{model}", quote(model, safe=""))
        return f"{path}?{urlencode(self.query)}" if self.query else path

    def write_header(self, key: str, credentials: str) -> str:
        """Return the authorization header; empty without a key and without ``credentials`` in the address."""
        if not key:
            return f"Authorization: {credentials}" if credentials else ""
        return f"api-key: {key}" if self.auth == "api-key" else f"Authorization: Bearer {key}"


USUAL = Dialect(key="OPENAI_API_KEY")  # The variant that all servers understand


# The body: model and messages, whose JSON is kept with their texts.


_OPENINGS = {
    "system": b'},{"role":"system","content":',
    "user": b'},{"role":"user","content":',
    "assistant": b'},{"role":"assistant","content":',
    "tool": b'},{"role":"tool","content":',
}


def name_conversation(run: str, request: Request) -> str:
    """Return the name of an agent's conversation, by which servers and routers find its prefix cache: 32 hex digits.

    It is a hash, because some routers compare names by their beginning. The two agents of a session have different
    prefixes, so they have different names. A request without a session has none.
    """
    messages = request.messages
    name = messages.name if isinstance(messages, History) else ""
    if not name and request.session:
        key = "\0".join((run, request.session, request.agent))
        name = blake2b(key.encode(errors="surrogatepass"), digest_size=16).hexdigest()
        if isinstance(messages, History):
            messages.name = name
    return name


def build_request_parts(
    model: str, request: Request, *, options: bytes, cache_key: tuple[str, str] | None = None
) -> tuple[list[bytes], int]:
    """Return the body of a request in parts, including the cached JSON of the messages, and its bytes.

    ``options`` are its other fields, from :func:`encode_options`, and ``cache_key`` the field that names the
    conversation. Equal histories give equal bytes up to the latest message, so that a server's prefix cache applies.
    """
    messages = request.messages
    if request.tools or not isinstance(messages, History):
        messages = History(messages)
    pieces = messages.pieces
    for message in messages[len(pieces) // 2 :]:  # two: a long conversation takes no longer than a short one
        opening, text = _OPENINGS[message.role], message.text.json
        if not pieces:
            opening = opening.removeprefix(b"},")
        if request.tools and message.calls:
            text += b',"tool_calls":' + to_json(to_wire_calls(message.calls))
        elif request.tools and message.answers:
            text += b',"tool_call_id":' + to_json(message.answers)
        pieces += (opening, text)
        messages.size += len(opening) + len(text)
    key = b',"%b":"%b"' % (cache_key[0].encode(), cache_key[1].encode()) if cache_key else b""
    start = b'{"model":' + to_json(model) + key + b',"messages":['
    end = (b"}]" if pieces else b"]") + options
    return [start, *pieces, end], len(start) + messages.size + len(end)


def ask_for_tier(parts: Sequence[bytes], tier: str) -> list[bytes]:
    """Return the parts of a body, which also asks for a service tier then."""
    return [*parts[:-1], parts[-1].removesuffix(b"}") + b',"%b":%b}' % (TIER_FIELD.encode(), to_json(tier))]


# The other fields of a request: sampling parameters, constraints and tools.


class OptionEncoder:
    """Encodes the options of an endpoint's requests; a session without a seed repeats the same ones at each turn."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[tuple[object, ...], bytes]] = {}  # By agent

    def encode(self, request: Request, *, stream: bool, dialect: Dialect, without: frozenset[str]) -> bytes:
        """Return what :func:`encode_options` returns, from memory if the agent's last request had the same options."""
        options = (
            request.sampling,
            request.tools,
            request.allow_tool_calls,
            request.n,
            request.response_format,
        )
        inputs = (*options, stream, dialect, without)
        last = self._last.get(request.agent)
        if last is None or last[0] != inputs:
            last = inputs, encode_options(request, stream=stream, dialect=dialect, without=without)
            self._last[request.agent] = last
        return last[1]


def encode_options(
    request: Request, *, stream: bool = False, dialect: Dialect = USUAL, without: Collection[str] = ()
) -> bytes:
    """Return the JSON of a request's fields other than model and messages, and the end of its body.

    Parameters in ``without`` are left out.
    """
    options = build_parameters(request.sampling, dialect, without)
    if request.n != 1:
        options["n"] = request.n
    form = request.response_format
    if form is not None and has_grammar(form, dialect):
        options["grammar"] = form.grammar
    elif form is not None and dialect.constrained_by != "none":
        shape = {"name": form.name, "strict": True, "schema": form.schema}
        options["response_format"] = {"type": "json_schema", "json_schema": shape}
    if request.tools:
        options["tools"] = to_wire_tools(request.tools)
        if not request.allow_tool_calls:
            options["tool_choice"] = "none"
    if stream:
        options["stream"] = True
        if "stream_options" not in without:
            options["stream_options"] = {"include_usage": True}
    return b"," + to_json(options)[1:] if options else b"}"


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
    pairs = ((dialect.renamed.get(name, name), value) for name, value in values.items())
    return {name: value for name, value in pairs if value is not None and name not in without}


def has_grammar(form: ResponseFormat | None, dialect: Dialect) -> bool:
    """Return True if a grammar constrains the reply to the protocol's text."""
    return form is not None and bool(form.grammar) and dialect.constrained_by == "grammar"


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


def _is_whole(call: Invocation) -> bool:
    try:
        return is_object(from_json(call.arguments))
    except ValueError:
        return False
