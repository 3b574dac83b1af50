"""The protocol that every model implements; seeds, traits, wrappers, and sleeps that a shutdown ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Literal, Protocol, runtime_checkable

from bactrian.errors import ContextFull, Halted, ModelError
from bactrian.protocol.thoughts import split_thought
from bactrian.records.text import Text, clean_text
from bactrian.records.turn import Finish, Invocation, Message, Sampling, Tool, Usage, record

# Seeds of requests, derived from the one seed that the user gives.
#
# A hash of the seed and of the request's position (job, agent, turn, attempt) gives each request a seed of
# its own. With one seed for all requests, a small model would repeat itself in each turn; with sums of
# numbers, seeds would collide.


# The highest bit of a derived seed: 53 bits are exact in every JSON parser, and users do not type such
# numbers.
_DERIVED = 1 << 52
_SENT = 1 << 31


def derive_seed(seed: int, *position: int | str) -> int:
    """Return the seed for ``position`` (job, agent, turn, attempt …) under ``seed``, from 2**52 to 2**53 - 1.

    The same position gives the same seed on every machine. Among a million positions, the chance of a collision is 1 in
    9,000.
    """
    digest = blake2b(repr((seed, *position)).encode(), digest_size=8).digest()
    return int.from_bytes(digest) % _DERIVED + _DERIVED


@dataclass(frozen=True, slots=True)
class RunSeeds:
    """Seeds of a run's jobs and lists; all None if the user gives no seed."""

    seed: int | None

    def find_job(self, number: int) -> int | None:
        """Return the seed for the sessions of a job, given its 0-based number."""
        return None if self.seed is None else derive_seed(self.seed, number)

    def find_list(self, list_id: str, calls: int) -> int | None:
        """Return the seed for a list request after ``calls`` earlier calls for the same list."""
        return None if self.seed is None else derive_seed(self.seed, list_id, calls)


def fit_seed(seed: int) -> int:
    """Return ``seed`` as it is sent to an endpoint: a derived seed is reduced to 31 bits.

    Gemini accepts signed 32-bit seeds only, and llama.cpp unsigned ones. A smaller seed is sent as it is.
    """
    return seed % _SENT if seed >= _DERIVED else seed


def derive_stage_seed(seed: int | None, stage: str) -> int | None:
    """Return the seed for one stage of a society whose job has ``seed``."""
    return None if seed is None else derive_seed(seed, stage)


def derive_sampling(
    sampling: Sampling, agent: str, turn: int, attempt: int = 0, *, retry: bool = False
) -> Sampling:
    """Return a session's ``sampling`` with the seed for one of its requests.

    Args:
        sampling: The agent's sampling, with the session's seed.
        agent: The agent that is asked.
        turn: The turn's number, from 1; 0 for requests before the conversation.
        attempt: Number of earlier alternative requests for this turn.
        retry: True if the request is repeated after an empty reply.
    """
    if sampling.seed is None:
        return sampling
    return replace(sampling, seed=derive_seed(sampling.seed, agent, turn, attempt, retry))


# The protocol that every model implements.


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """A required format of a reply, for models with constrained decoding."""

    name: str
    schema: Mapping[str, object]  # JSON schema of the reply, for endpoints that support `response_format`
    grammar: str  # GBNF grammar of the protocol's text, for llama.cpp
    # Converts a reply that follows `schema` to the protocol's text. Raises ValueError if it does not.
    read: Callable[[str], str]


class History(list[Message]):
    """Messages that are only appended to, so that a client encodes each of them once and not again at every turn."""

    def __init__(self, messages: Iterable[Message]) -> None:
        super().__init__(messages)
        self.pieces: list[bytes] = []  # Their JSON, as far as it was sent: references to what the texts keep
        self.size = 0  # Bytes of the pieces
        self.name = ""  # The name under which endpoints know the conversation, as soon as one was told


@record
class Request:
    """One call: the conversation so far as the answering agent sees it, with the parameters of the answer."""

    messages: Sequence[Message]
    """The system prompt, then the turns in alternation; the last one is to be answered."""
    sampling: Sampling = Sampling()
    """Temperature, length and the other parameters."""
    n: int = 1
    """Number of alternative replies."""
    response_format: ResponseFormat | None = None
    """The form that the reply must have; None for a free text."""
    tools: Sequence[Tool] = ()
    """Tools that the model may call instead of answering, or has called earlier in the conversation."""
    allow_tool_calls: bool = True
    """False if the model must answer now, although there are tools."""
    session: str = ""
    """Id of the session; together with ``agent``, it selects the prefix cache."""
    agent: str = "assistant"
    """The answering agent: ``task_specifier``, ``task_planner``, ``user``, ``assistant``, ``critic`` or another one."""
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


@record
class ReplyChoice:
    """One of the replies to a request."""

    text: Text
    """The reply itself: a ``str``."""
    finish: Finish = "stop"
    """Why it ended."""
    lossy: bool = False
    """True if characters that no store accepts were replaced in ``text``."""
    refusal: bool = False
    """True if the endpoint marked the text as a refusal."""
    calls: tuple[Invocation, ...] = ()
    """The tool calls of the model, which continues after their results."""
    thought: str = ""
    """Thoughts of the model before its answer; not part of ``text``."""


def make_choice(text: str, finish: Finish = "stop") -> ReplyChoice:
    """Return a reply without the thoughts that a reasoning model writes into it, and without what no store accepts."""
    thought, answer = split_thought(text)
    clean = Text(clean_text(answer))
    return ReplyChoice(clean, finish, lossy=clean != answer, thought=clean_text(thought))


@record
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


def find_spent(error: BaseException) -> Usage | None:
    """Return what a request had used that failed or was cancelled; None if it was refused or had not been sent."""
    if isinstance(error, ModelError):
        return Usage(*error.spent, estimated=True) if any(error.spent) else None
    return next((part for part in error.args if isinstance(part, Usage)), None)


@runtime_checkable
class RemoteModel(Protocol):
    """Additional attributes of a model at an endpoint."""

    @property
    def endpoint(self) -> tuple[str, str]:
        """Address and key. An endpoint's limits apply to all models that share both."""
        ...

    # Awaited before a request is sent once more within one reply.
    before_again: Callable[[], Awaitable[object]] | None


class Model(Protocol):
    """Answers requests. Wrappers (retry, rate limit, budget, recorder) are models too.

    A model may have an attribute ``traits`` (:class:`~bactrian.models.model.Traits`).
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


# Traits of models that change how the program treats them.


# Supported constraints on replies: `schema` (a JSON schema), `grammar` (also a grammar) or `none`.
Constraint = Literal["schema", "grammar", "none"]


@dataclass(frozen=True, slots=True)
class Traits:
    """Traits of a model; other code must use them instead of the model's name."""

    constrained_by: Constraint = "schema"
    small: bool = False  # True for the built-in model, which needs its own prompts, sampling and grammars
    in_process: bool = False  # True if the program runs the model on this computer
    # True for a model behind an address: its first request may reveal a wrong address or key.
    remote: bool = False
    priced: bool = True  # True if its tokens may cost money
    attended: bool = False  # True while a person answers for it as the critic


BUILT_IN_MODEL = Traits("grammar", small=True, in_process=True, priced=False)  # Traits of the built-in model
LOCAL_WEIGHTS = Traits("grammar", in_process=True, priced=False)  # Traits of any other GGUF file


def get_traits(model: Model) -> Traits:
    """Return the traits of ``model``, from its attribute ``traits``; defaults if it has no such attribute."""
    traits: object = getattr(model, "traits", None)
    return traits if isinstance(traits, Traits) else Traits()


# Maximum reply lengths in the remaining context window.


LEAST_REPLY = 256  # Minimum tokens that must be left for a reply, because shorter replies are rarely complete


def find_reply_length(longest: int, prompt: int, window: int, where: str | None = None) -> int:
    """Return the maximum tokens of a reply, at most ``longest``, after ``prompt`` tokens in ``window``.

    Raises:
        ContextFull: fewer tokens are left than ``LEAST_REPLY`` and than ``longest``.
    """
    room = window - prompt
    if room < min(longest, LEAST_REPLY):
        raise ContextFull(
            f"The request needs {prompt + min(longest, LEAST_REPLY):,} tokens with room for its reply; "
            f"the window has {window:,}.",
            where=where,
            next="Use a model with a larger window, or shorter replies.",
        )
    return min(longest, room)


# Who is told of calls.


class Observer(Protocol):
    """Is told of each call, and of the ends of sessions."""

    def trace(self, model: Model) -> Model:
        """Return ``model`` with its calls reported."""
        ...

    def end_session(self, session: str, turns: int, ending: str) -> None:
        """Note the end of a session. The code of its ``ending`` is empty if it is left open."""
        ...


class ObserverTerms(Protocol):
    """Whether somebody is told, and how."""

    def open(
        self, run: str, report: Callable[[str], None] | None
    ) -> AbstractAsyncContextManager[Observer | None]:
        """Open what is told of the calls of ``run``; ``report`` receives its faults."""
        ...


# The base class of wrappers.


class Wrapper:
    """A model that wraps another one: it has the same name and traits, and closes it."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.name = model.name  # The name of the wrapped model

    @property
    def inner(self) -> Model:
        """The wrapped model."""
        return self._model

    @property
    def traits(self) -> Traits:
        """The traits of the wrapped model."""
        return get_traits(self._model)

    async def close(self) -> None:
        """Close the wrapped model."""
        await self._model.close()


# Cancellable sleeps: shutting down does not wait for rate limits or `Retry-After`, because a call that sleeps has no
# request in flight.


class StopSignal:
    """Lets many calls wait until :meth:`stop` cancels all current and future waits."""

    def __init__(self) -> None:
        self.over = False
        self._waiting: set[asyncio.Future[None]] = set()

    async def sleep(self, seconds: float) -> None:
        """Sleep for ``seconds``.

        Raises:
            Halted: :meth:`stop` was called.
        """
        waiting = asyncio.get_running_loop().create_future()
        timer = asyncio.get_running_loop().call_later(seconds, _wake, waiting)
        try:
            await self.wait_for(waiting)
        finally:
            timer.cancel()

    async def wait_for(self, waiting: asyncio.Future[None]) -> None:
        """Wait for ``waiting``.

        Raises:
            Halted: :meth:`stop` was called.
        """
        if self.over and not waiting.done():
            raise Halted
        self._waiting.add(waiting)
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)

    def stop(self) -> None:
        """Cancel all current and future waits."""
        self.over = True
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(Halted())


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
