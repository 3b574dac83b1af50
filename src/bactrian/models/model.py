"""The protocol that every model implements."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from bactrian.records.message import Invocation, Message
from bactrian.records.sampling import Sampling
from bactrian.records.text import Text
from bactrian.records.tool import Tool
from bactrian.records.turn import Finish
from bactrian.records.usage import Usage


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """A required format of a reply, for models with constrained decoding."""

    name: str
    schema: Mapping[str, object]
    """JSON schema of the reply, for endpoints that support ``response_format``."""
    grammar: str
    """GBNF grammar of the protocol's text, for llama.cpp."""
    read: Callable[[str], str]
    """Converts a reply that follows ``schema`` to the protocol's text. Raises ValueError if it does not."""


@dataclass(frozen=True, slots=True)
class Request:
    """One call: the conversation so far as the answering agent sees it, with the parameters of the answer."""

    messages: Sequence[Message]
    sampling: Sampling = Sampling()
    n: int = 1
    """Number of alternative replies."""
    response_format: ResponseFormat | None = None
    tools: Sequence[Tool] = ()
    """Tools that the model may call instead of answering, or has called earlier in the conversation."""
    allow_tool_calls: bool = True
    """False if the model must answer now, although there are tools."""
    session: str = ""
    """Id of the session; together with ``agent``, it selects the prefix cache."""
    agent: str = "assistant"
    """The answering agent: ``task_specifier``, ``task_planner``, ``user``, ``assistant``, ``critic`` …"""
    call_index: int = 0
    """0-based position among the session's calls, so that a replayed model needs no state."""
    replay_index: int | None = None
    """0-based position among the agent's answers, for a replayed model; None if the messages determine it."""
    attempt: int = 0
    """0-based number of earlier alternatives to this answer, if alternatives are requested one by one."""
    on_text: Callable[[str], None] | None = None
    """If given, the reply is streamed, and the callback receives each piece of text as it arrives."""
    on_restart: Callable[[], None] | None = None
    """Called when a streamed reply fails and is requested again: discard the text received so far."""


@dataclass(frozen=True, slots=True)
class ReplyChoice:
    """One of the replies to a request."""

    text: Text
    finish: Finish = "stop"
    lossy: bool = False
    """True if characters that no store accepts were replaced in ``text``."""
    refusal: bool = False
    """True if the endpoint marked the text as a refusal."""
    calls: tuple[Invocation, ...] = ()
    """The tool calls of the model, which continues after their results."""
    thought: str = ""
    """Thoughts of the model before its answer; not part of ``text``."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer of a model."""

    choices: tuple[ReplyChoice, ...]
    """At least one; as many as the request's ``n`` if the model supports it."""
    usage: Usage
    model: str
    """The model as the endpoint named it."""
    raw: bytes = b""
    """The raw bytes of the reply."""
    fingerprint: str | None = None
    """The endpoint's name for the exact system that answered, if it gives one."""
    first_token: float | None = None
    """Seconds from sending to the first piece of text; None if the reply was not streamed."""
    garbled: bool = False
    """True if bytes that are not UTF-8 were replaced; a retry may return a clean reply."""

    @property
    def text(self) -> Text:
        """The text of the first choice."""
        return self.choices[0].text

    @property
    def finish(self) -> Finish:
        """The finish reason of the first choice."""
        return self.choices[0].finish


@runtime_checkable
class RemoteModel(Protocol):
    """Additional attributes of a model at an endpoint."""

    @property
    def endpoint(self) -> tuple[str, str]:
        """Address and key. An endpoint's limits apply to all models that share both."""
        ...

    before_again: Callable[[], Awaitable[object]] | None
    """Awaited before a request is sent once more within one reply."""


class Model(Protocol):
    """Answers requests. Wrappers (retry, rate limit, budget, recorder) are models too.

    A model may have an attribute ``traits`` (:class:`~bactrian.models.traits.Traits`).
    """

    @property
    def name(self) -> str:
        """The name under which a user selects this model, for example ``openai:gpt-4o-mini``."""
        ...

    async def reply(self, request: Request) -> Reply:
        """Answer ``request``.

        Raises:
            ContextFull: the request and its reply do not fit into the model's window; nothing was sent.
            Filtered: the endpoint refused the content.
            TryAgain: a transient fault.
            ModelError: a fault that a retry cannot solve.
        """
        ...

    async def close(self) -> None:
        """Release connections, threads and memory. The model cannot be used afterwards."""
        ...
