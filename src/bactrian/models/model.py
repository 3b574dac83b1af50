"""The one protocol that every model speaks."""

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
    """A shape that a reply must have, for models that can be constrained while they decode."""

    name: str
    schema: Mapping[str, object]
    """JSON schema of the reply, for endpoints that take ``response_format``."""
    grammar: str
    """GBNF grammar that yields the protocol's own text directly, for llama.cpp."""
    read: Callable[[str], str]
    """Turns a reply that follows ``schema`` into the protocol's text. Raises ValueError if it does not."""


@dataclass(frozen=True, slots=True)
class Request:
    """One call: the conversation so far as the answering agent sees it, and how to answer."""

    messages: Sequence[Message]
    sampling: Sampling = Sampling()
    n: int = 1
    """How many alternative replies are wanted."""
    response_format: ResponseFormat | None = None
    tools: Sequence[Tool] = ()
    """What the model may call instead of answering, or has called earlier in the conversation."""
    allow_tool_calls: bool = True
    """False if it has to answer now, although there are tools."""
    session: str = ""
    """Id of the session the call belongs to; with ``agent`` it tells a model which prefix cache to use."""
    agent: str = "assistant"
    """Which agent asks: ``task_specifier``, ``task_planner``, ``user``, ``assistant``, ``critic`` …"""
    call_index: int = 0
    """0-based position of this call among its session's calls, so that a replayed model needs no memory."""
    replay_index: int | None = None
    """0-based place of the answer among the agent's own, for a replayed model; None where the messages tell it."""
    attempt: int = 0
    """0-based: how many answers this one is an alternative to, where they are asked for one by one."""
    on_text: Callable[[str], None] | None = None
    """If given, the reply is streamed and each piece of text is passed on as it arrives."""
    on_restart: Callable[[], None] | None = None
    """Called when a streamed reply failed and is asked for again: the text passed on so far is void."""


@dataclass(frozen=True, slots=True)
class ReplyChoice:
    """One of the replies to a request."""

    text: Text
    finish: Finish = "stop"
    lossy: bool = False
    """True if something that no store can hold was replaced in ``text``."""
    refusal: bool = False
    """True if the endpoint marked the text as a refusal."""
    calls: tuple[Invocation, ...] = ()
    """The tools that the model calls; it goes on when it knows their results."""
    thought: str = ""
    """What the model thought before it answered; no part of ``text``."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered."""

    choices: tuple[ReplyChoice, ...]
    """At least one; as many as the request's ``n`` where the model can."""
    usage: Usage
    model: str
    """The model as the endpoint named it."""
    raw: bytes = b""
    """The reply's bytes as they came, for the record."""
    fingerprint: str | None = None
    """The endpoint's name for the exact system that answered, if it gives one."""
    first_token: float | None = None
    """Seconds from sending to the first piece of text; None if the reply was not streamed."""
    garbled: bool = False
    """True if some of its bytes were no UTF-8 and had to be replaced: another attempt may bring a clean one."""

    @property
    def text(self) -> Text:
        """The text of the first choice."""
        return self.choices[0].text

    @property
    def finish(self) -> Finish:
        """Why the first choice ended."""
        return self.choices[0].finish


@runtime_checkable
class RemoteModel(Protocol):
    """What a model at an endpoint has besides."""

    @property
    def endpoint(self) -> tuple[str, str]:
        """Address and key. An endpoint's limits hold for all models that share both."""
        ...

    before_again: Callable[[], Awaitable[object]] | None
    """Awaited before a request is sent once more within one reply."""


class Model(Protocol):
    """Answers requests. Wrappers (retry, rate limit, budget, recorder) are models too.

    A model may have an attribute ``traits`` (:class:`~bactrian.models.traits.Traits`).
    """

    @property
    def name(self) -> str:
        """The name a user gives to get this model, for example ``openai:gpt-4o-mini``."""
        ...

    async def reply(self, request: Request) -> Reply:
        """Answer ``request``.

        Raises:
            ContextFull: the request and its reply do not fit the model's window; nothing was sent.
            Filtered: the endpoint refused the content.
            TryAgain: a passing fault.
            ModelError: asking again will not help.
        """
        ...

    async def close(self) -> None:
        """Give back connections, threads and memory. The model cannot be used afterwards."""
        ...
