"""An endpoint's faults as our own errors, retries of those that pass, and the record of calls."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import re
import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from types import CoroutineType
from typing import Any, TypeGuard

from pydantic_core import from_json

from bactrian import errors
from bactrian.models import http_response
from bactrian.models.http import NoConnection, NoWayThroughProxy, ProxyRefused, Timeouts
from bactrian.models.model import Model, Reply, Request, Wrapper, find_spent
from bactrian.protocol.pack import render_prompt
from bactrian.records.run import BROKEN_OFF, Call
from bactrian.records.text import Text, clean_text, to_line
from bactrian.records.turn import Message

# A lenient JSON decoder for what servers send.


def decode_json(body: bytes) -> tuple[Any, bool]:
    """Decode ``body``; return the value, and True if bytes that are not UTF-8 were replaced.

    Raises:
        ValueError: ``body`` is not JSON.
    """
    try:
        return from_json(body), False
    except ValueError:
        pass
    # The fast decoder rejects byte-order marks, lone surrogates and bare newlines in strings; servers send all three.
    try:
        text, lossy = body.decode("utf-8-sig"), False
    except UnicodeDecodeError:
        text, lossy = body.decode("utf-8-sig", "replace"), True
    try:
        return json.loads(text, strict=False), lossy
    except RecursionError:
        raise ValueError("nested too deeply") from None


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Return True if ``value`` is a JSON object."""
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    """Return True if ``value`` is a JSON array."""
    return isinstance(value, list)


_NO_MONEY = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")
_FILTERED = ("content_filter", "content_policy_violation", "responsibleaipolicyviolation")
_OVERLOAD = ("overloaded", "rate_limit", "unavailable")
_TRANSIENT = ("server_error", "servererror", "api_error", "timeout", *_OVERLOAD)
_BLAMES_REQUEST = ("invalid_request", "badrequest", "context_length_exceeded", *_NO_MONEY, *_FILTERED)

# Wordings of OpenAI and vLLM, llama.cpp, Anthropic, Mistral, TGI, and OpenAI's older ones, in this order.
_CONTEXT_FULL = re.compile(
    r"context_length_exceeded|maximum context length|exceed_context_size|available context size"
    r"|(prompt|input|request)( is|'s length is)? too (long|large)|too large for model"
    r"|inputs\W+tokens .*must be <=|context (window|length)|max_model_len|reduce the length",
    re.IGNORECASE,
)
_NO_SUCH_MODEL = re.compile(
    r"model_not_found|invalid_model|model.*(not found|not exist|not available|unknown)"
    r"|(no such|unknown|invalid|unsupported) model",
    re.IGNORECASE | re.DOTALL,
)

# Parameters that contain the conversation: an error about them concerns this request alone.
_CONTENT = re.compile(r"messages?\b|prompt|input|contents?\b", re.IGNORECASE)
# Names of parameters in messages of endpoints that have no field for them.
_PARAMETER = re.compile(
    r"\b(max_(completion_)?tokens|top_[pk]|min_p|(presence|frequency|repetition)_penalty|logit_bias|response_format"
    r"|tool_choice|reasoning_effort|guided_\w+|structured_outputs|json_schema|stream_options)\b"
    r"|[\"'`](temperature|seed|stop|n|stream|tools|logprobs)[\"'`]|\btemperature\W+(must|should|has to|is)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """The content of an error body."""

    message: str
    code: str = ""  # Code and type, in lower case
    param: str = ""  # The parameter at fault, if the endpoint names it


def read_error_body(value: Any, sample: bytes) -> ErrorBody:
    """Parse the error object of any server; without one, use the first 200 printable bytes."""
    error: Any = value.get("error") or value if is_object(value) else None
    if isinstance(error, str):
        return ErrorBody(_shorten(error.encode(errors="replace")))
    if not is_object(error):
        return ErrorBody(_shorten(sample))
    message = error.get("message") or error.get("detail")
    words = [error.get("code"), error.get("type")]
    inner = error.get("innererror")
    if is_object(inner):
        words.append(inner.get("code"))
    return ErrorBody(
        _shorten(message.encode(errors="replace")) if isinstance(message, str) else _shorten(sample),
        " ".join(str(word) for word in words if word is not None).lower(),
        str(error.get("param") or ""),
    )


def _shorten(sample: bytes) -> str:
    """Return the first 200 bytes of ``sample`` as one printable line."""
    return to_line(sample[:200].decode(errors="replace"))


def explain_status(
    status: int,
    complaint: ErrorBody,
    sample: bytes,
    after: float | None = None,
    *,
    key_variable: str = "OPENAI_API_KEY",
) -> errors.ModelError:
    """Return the error for an answer with HTTP ``status``; ``after`` is its Retry-After in seconds."""
    code, message = complaint.code, complaint.message
    if status == 407:
        return _make_proxy_refusal(status, message)
    words, key = f"{code} {message}", f"the key ({key_variable})"
    parameter = "" if _CONTENT.match(complaint.param) else complaint.param
    named = _PARAMETER.search(message)
    unpaid = status == 402 or any(word in code for word in _NO_MONEY)
    passing = status in (408, 409, 425, 429, 498) or (status >= 500 and status not in (501, 505))
    filtered = any(word in code for word in _FILTERED)
    full = status == 413 or _CONTEXT_FULL.search(words)
    unknown = status in (400, 404, 422) and _NO_SUCH_MODEL.search(words)
    elsewhere = status in (404, 405) and not named
    # The first that applies counts: what every request would meet stands before what may be about this prompt alone.
    kinds: tuple[tuple[object, type[errors.ModelError], str | None], ...] = (
        (unpaid, errors.Denied, "Add credit to the account, then run the same command."),
        (status == 401, errors.Denied, f"Check {key} and its rights."),
        (
            status == 403,
            errors.Forbidden,
            f"Check the rights of {key}; the endpoint may also block this content.",
        ),
        (passing, errors.TryAgain, None),
        (filtered, errors.Filtered, None),
        (full, errors.ContextFull, "Use a model with a larger window, or shorter replies."),
        (unknown, errors.UnknownModel, None),
        (elsewhere, errors.Refused, "Check the base URL; did you omit /v1?"),
        (parameter, errors.Refused, f"Change or leave out the parameter {parameter!r}."),
        (named, errors.Refused, "Correct the parameter, then run the same command."),
        (
            True,
            errors.RefusedPrompt,
            "Correct the reported problem; the endpoint may also refuse this prompt.",
        ),
    )
    kind, action = next((kind, action) for applies, kind, action in kinds if applies)
    summary = f"The endpoint answered {status}: {message or 'without a message'}"
    error = kind(summary, next=action, sample=sample)
    if isinstance(error, errors.TryAgain):
        error.after = after
        error.status = status
        error.overload = status in (429, 498, 503, 529)  # 498: of Groq, where its flex tier has no room
    return error


# Wordings of OpenAI and vLLM, llama.cpp, Anthropic, Mistral, and others.
_WINDOW = re.compile(
    r"(?:maximum context length (?:is|of)|context (?:size|length|window)(?: is| of)? ?\(?|\"n_ctx\": ?"
    r"|max_model_len\D{0,4}|must be <= )(\d+)|(\d+) maximum",
    re.IGNORECASE,
)
_PROMPT = re.compile(
    r"(\d+) (?:in|from) the (?:messages|prompt|input)|\"n_prompt_tokens\": ?(\d+)"
    # vLLM's "at least" is not a count: it is the space left beside the reply, plus one.
    r"|(?:prompt|input|messages|request)(?: contains?| has| resulted in|:) (\d+) (?:input )?tokens"
    r"|(?:prompt is too long|request): (\d+) tokens|request \((\d+) tokens\)",
    re.IGNORECASE,
)


def read_window(sample: bytes) -> tuple[int | None, int | None]:
    """Parse the tokens of the window and of the prompt from the endpoint's error; None if not given."""
    text = sample.decode(errors="replace")
    window, prompt = (
        next((int(number[:9]) for number in match.groups() if number), None) if match else None
        for match in (_WINDOW.search(text), _PROMPT.search(text))
    )
    return window, prompt


def _make_proxy_refusal(status: int, message: str) -> errors.ModelError:
    summary = f"The proxy answered {status}: {message or 'without a message'}"
    if status == 407:
        return errors.Denied(
            summary, next="Put user name and password into HTTPS_PROXY, or the host into NO_PROXY."
        )
    if status >= 500:
        return errors.TryAgain(summary, next="Check HTTPS_PROXY and HTTP_PROXY.")
    return errors.Refused(summary, next="Check HTTPS_PROXY and HTTP_PROXY, or put the host into NO_PROXY.")


def explain_body(value: dict[str, Any], raw: bytes) -> errors.ModelError:
    """Return the error for an error object with status 200.

    Routers put the upstream status into its code. Without one, it counts as a bad reply, unless its code or type blames
    the request, or a fault of the server that passes.
    """
    complaint = read_error_body(value, raw)
    error = value["error"]
    code: Any = error.get("code") if is_object(error) else None
    if isinstance(code, str) and code.isdecimal():
        code = int(code[:9])
    if isinstance(code, int) and 400 <= code < 600:
        return explain_status(code, complaint, raw)
    if complaint.param or any(word in complaint.code for word in _BLAMES_REQUEST):
        return explain_status(400, complaint, raw)
    kind = errors.TryAgain if any(word in complaint.code for word in _TRANSIENT) else errors.BadReply
    fault = kind(f"The endpoint sent an error instead of a reply: {complaint.message}", sample=raw)
    if isinstance(fault, errors.TryAgain):
        fault.overload = any(word in complaint.code for word in _OVERLOAD)
    return fault


def read_retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """Return the seconds in a Retry-After header; None if missing or invalid."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
            date = date if date.tzinfo else date.replace(tzinfo=UTC)
            seconds = (date - (now or datetime.now(UTC))).total_seconds()
        except (ValueError, OverflowError):
            return None
    return seconds if seconds > 0 and isfinite(seconds) else None


def explain_transport(fault: http_response.TransportFault, host: str, limits: Timeouts) -> errors.ModelError:
    """Return the error for a request without a complete answer."""
    error = _find_error(fault, host, limits)
    if isinstance(error, errors.TryAgain):
        error.crowded = isinstance(fault, (NoConnection, http_response.NoAnswer))
    return error


def _find_error(fault: http_response.TransportFault, host: str, limits: Timeouts) -> errors.ModelError:
    reason = _describe_cause(fault.__cause__)
    match fault, fault.__cause__:
        case NoConnection(), ssl.SSLCertVerificationError() as cause:
            what = f"The certificate of {host} cannot be trusted: {cause.verify_message or reason}"
            action = "Add the authority that signed it to the file in SSL_CERT_FILE. Verification is never turned off."
            return errors.Refused(what, next=action)
        case NoConnection(), ssl.SSLError():
            action = "Check the base URL; does it need http:// instead of https://?"
            return errors.Refused(f"No TLS connection to {host}: {reason}", next=action)
        case NoWayThroughProxy(), _:
            what = f"Cannot connect to the proxy for {host}: {reason}"
            return errors.TryAgain(what, next="Check HTTPS_PROXY and HTTP_PROXY.")
        case NoConnection(), None:
            return errors.Unreachable(f"No connection to {host} within {limits.connect:g} s.")
        case NoConnection(), _:
            return errors.Unreachable(f"Cannot connect to {host}: {reason}", next=_advise(host))
        case ProxyRefused(), _:
            return _make_proxy_refusal(*fault.args)
        case http_response.IdleTimeout(), _:
            return errors.TryAgain(f"{host} was silent for {limits.silence:g} s.")
        case http_response.DeadlinePassed(), _:
            return errors.TryAgain(f"{host} did not finish its reply within {limits.total:g} s.")
        case http_response.NotHttp(), _:
            return errors.BadReply(f"{host} does not answer in HTTP: {fault}")
        case http_response.Compressed(), _:
            return errors.BadReply(f"{host} sent a compressed reply ({fault}), which was not requested.")
        case http_response.TooLarge(args=(most, sample)), _:
            action = "The model does not stop; try another model or other sampling parameters."
            return errors.Oversize(f"The reply is larger than {most:,} bytes.", next=action, sample=sample)
        case _:
            return errors.TryAgain(f"{host} dropped the connection: {reason}")


def _describe_cause(cause: BaseException | None) -> str:
    if cause is None:
        return "it was closed before the reply was complete"
    if isinstance(cause, ConnectionError) and cause.errno:
        return os.strerror(cause.errno)  # asyncio replaces the message of the system
    return (cause.strerror if isinstance(cause, OSError) else None) or str(cause) or type(cause).__name__


def _advise(host: str) -> str:
    """Return what to do where nothing listens."""
    check = "the base URL (base_url=URL, OPENAI_BASE_URL)"
    name, _, port = host.rpartition(":")
    if port == "11434":
        return f"Start Ollama (`ollama serve`), or check {check}."
    if name in ("localhost", "127.0.0.1", "[::1]"):
        return f"Start the server, or check {check}."
    return f"Check {check}; is the server running?"


# Takes the key out of what an endpoint complains of: some servers send back what they were sent.


# Characters from which a password in an address is taken out of errors. A shorter one may be a word of them.
_LONG = 16


class KeyMask:
    """Replaces a key by its last four characters, and the credentials of an address by an ellipsis."""

    def __init__(self, key: str, credentials: str = "") -> None:
        # The encoded credentials of the address, such as "Basic …", and the password in them
        secrets = [credentials.partition(" ")[2]]
        with suppress(ValueError):
            secrets.append(base64.b64decode(secrets[0]).decode(errors="replace").partition(":")[2])
        self._shown = {secret: "…" for secret in secrets if len(secret) >= _LONG}
        if key:
            self._shown[key] = f"…{key[-4:]}" if len(key) > 8 else "…"

    def hide(self, text: str) -> str:
        """Return ``text`` without the secrets."""
        for secret, word in self._shown.items():
            text = text.replace(secret, word)
        return text

    def hide_bytes(self, sample: bytes) -> bytes:
        """Return what came instead of a reply without the secrets, however JSON escapes their characters."""
        for secret, word in self._shown.items():
            sample = sample.replace(secret.encode(errors="surrogateescape"), word.encode())
            if secret.isascii() and (b"\\u00" in sample or b"\\/" in sample):
                sample = re.sub("".join(map(_match_char, secret)).encode(), word.encode(), sample)
        return sample


def _match_char(char: str) -> str:
    code = f"{ord(char):02x}"
    slash = r"|\\/" if char == "/" else ""
    return rf"(?:{re.escape(char)}|\\u00(?:{code}|{code.upper()}){slash})"


# Retries, whether an endpoint refuses a prompt or all of them, and the record of calls.


MAX_WAIT = 600.0  # Seconds that an endpoint may ask to wait, unless the user says otherwise
# Times the longest wait that a request may take, all waits and attempts together: half an hour by default. `--max-wait`
# is the only setting of patience.
PATIENCE = 3
_RESUME = "Then run the same command again: what is stored is not asked for anew."


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Limits on retries. Times are in seconds."""

    attempts: int = 8  # Maximum attempts per request, not counting waits that the endpoint requested
    bad_replies: int = 3  # Maximum number of invalid replies per request
    first_wait: float = 0.5  # Maximum first wait; it doubles with each attempt
    longest_wait: float = 60.0  # Maximum wait of the exponential back-off
    # Maximum wait that the endpoint may request. If it requests more, there is one more attempt after this time; if it
    # then requests more again, the request is given up.
    max_wait: float = MAX_WAIT
    budget: float = 1800.0  # Maximum time for one request, all waits and attempts together

    def with_max_wait(self, longest: float) -> RetryPolicy:
        """Return the same, with ``longest`` for a wait that the endpoint may ask for, and three times that for all."""
        return replace(self, max_wait=longest, budget=PATIENCE * longest)


class Retry(Wrapper):
    """Asks ``model`` again after a transient fault; raises every other error at once.

    An endpoint that cannot be reached, or sends web pages, is asked again only if it has answered before: until then
    its address is more likely wrong than its network down. What it refuses before it has answered anything, it
    will refuse to every session, unless it refuses the prompt (:class:`RefusalCheck`).

    Waits double and are drawn evenly from zero to their length ("full jitter"), so that many conversations
    that failed together do not come back together. Where the endpoint says how long to wait, that is done
    instead. ``notice`` receives a message about each fault that is retried.
    """

    def __init__(
        self,
        model: Model,
        policy: RetryPolicy | None = None,
        *,
        notice: Callable[[str], object] | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(model)
        self._policy = policy or RetryPolicy()
        self._notice = notice
        self._sleep = sleep
        self._chance = chance
        self._clock = clock
        self._has_answered = False

    async def reply(self, request: Request) -> Reply:
        """Answer ``request``, asking as often as it takes; once more for a garbled reply.

        The usage is that of both replies then. A garbled reply is better than none.

        Raises:
            GaveUp: the limits on retries are reached.
            ModelError: a fault that a retry cannot solve.
        """
        reply = await self._ask(request)
        if not reply.garbled:
            return reply
        if request.on_restart is not None:
            request.on_restart()
        try:
            again = await self._ask(request)
        except errors.BactrianError:
            return reply
        return replace(again, usage=reply.usage + again.usage)

    async def _ask(self, request: Request) -> Reply:
        policy = self._policy
        started = self._clock()
        asked = attempts = bad = too_long = 0
        while True:
            try:
                reply = await self._model.reply(request)
                self._has_answered = True
                return reply
            except (errors.TryAgain, errors.BadReply) as error:
                if isinstance(error, (errors.Unreachable, errors.NotAnEndpoint)) and not self._has_answered:
                    raise
                asked += 1
                after = error.after if isinstance(error, errors.TryAgain) else None
                bad += isinstance(error, errors.BadReply)
                attempts += after is None
                too_long += (after or 0) > policy.max_wait
                wait = self._wait(attempts, after)
                spent = self._clock() - started
                enough = attempts >= policy.attempts or bad >= policy.bad_replies or too_long > 1
                if enough or spent + wait > policy.budget:
                    raise _make_final_error(error, asked, spent) from error
                if self._notice is not None:
                    self._notice(
                        f"{error.where or self.name}: {error.what.rstrip('.')}. Asking again in {wait:.1f} s."
                    )
            except errors.Refused as error:
                if self._has_answered or isinstance(error, errors.RefusedPrompt):
                    raise
                raise errors.RefusedOutright(
                    error.what, where=error.where, next=error.next, sample=error.sample
                ) from error
            if request.on_restart is not None:
                request.on_restart()
            await self._sleep(wait)

    def _wait(self, attempts: int, after: float | None) -> float:
        policy = self._policy
        if after is not None:
            # Slightly more than requested, so that not all requests return at once.
            return min(after, policy.max_wait) + self._chance() * policy.first_wait
        doubled = policy.first_wait * 2 ** (attempts - 1)
        return self._chance() * min(doubled, policy.longest_wait, policy.max_wait)


def _make_final_error(error: errors.ModelError, asked: int, spent: float) -> errors.ModelError:
    times = {1: "once", 2: "twice"}.get(asked, f"{asked} times")
    what = f"{error.what.rstrip('.')}. Asked {times} in {spent:.0f} s."
    if isinstance(error, errors.TryAgain) and error.after:
        what += f" It asks to wait {error.after:.0f} s."
    kind = errors.GaveUp if isinstance(error, errors.TryAgain) else errors.BadReply
    action = f"{error.next or 'Check the endpoint.'} {_RESUME}"
    return kind(what, where=error.where, next=action, sample=error.sample)


# Finds out whether an endpoint refuses one prompt or every one.


# Prompts that a model refuses in one command before it answers any, from which every one counts as refused.
_MOST = 30


class RefusalCheck(Wrapper):
    """Raises :class:`Denied` if ``model`` refuses every prompt, and :class:`RefusedPrompt` if it refuses this one.

    A 403, or a 400 that names no parameter, may be about the prompt or about every request. When the first request
    is refused, a greeting with the same parameters tells which: an endpoint that answers it refused the prompt.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._has_answered = False
        self._answers_others = False
        self._refused = 0
        self._denied: errors.Denied | None = None
        self._checking = asyncio.Lock()

    def reply(self, request: Request) -> CoroutineType[Any, Any, Reply]:
        """Answer ``request``.

        Raises:
            RefusedPrompt: other prompts are answered.
            Denied: no prompt is answered.
            ModelError: as the model raises it.
        """
        # An endpoint that has answered is not examined any more: its refusals are about the prompt.
        return self._model.reply(request) if self._has_answered else self._examine(request)

    async def _examine(self, request: Request) -> Reply:
        """Answer ``request`` while it is not known yet whether the endpoint answers any request."""
        if self._denied is not None:
            raise self._denied
        try:
            reply = await self._model.reply(request)
        except errors.RefusedPrompt as error:
            if not self._has_answered:
                await self._check_others(request, error)
            raise
        self._has_answered = True
        return reply

    async def _check_others(self, request: Request, error: errors.RefusedPrompt) -> None:
        async with self._checking:
            if self._denied is not None:
                raise self._denied from error
            self._refused += 1
            if self._refused >= _MOST:
                self._deny(error, f"The first {_MOST} requests were all refused.")
            if self._answers_others or self._has_answered:
                return
            try:
                await self._model.reply(_make_greeting(request))
            except errors.Refused as refused:
                if isinstance(refused, errors.RefusedPrompt):
                    self._deny(error, "Every request is refused, a simple greeting too.")
                raise
            self._answers_others = True

    def _deny(self, error: errors.RefusedPrompt, why: str) -> None:
        self._denied = errors.Denied(
            f"{why} {error.what}", where=error.where, next=error.next, sample=error.sample
        )
        raise self._denied from error


def _make_greeting(request: Request) -> Request:
    """Return a request with the parameters of ``request`` that no endpoint can have an objection to."""
    roles = ("system", "user") if request.messages[0].role == "system" else ("user",)
    messages = tuple(Message(role, Text(render_prompt("greeting"))) for role in roles)
    return replace(request, messages=messages, n=1, on_text=None, on_restart=None)


# Recording of calls.


class Recorder(Wrapper):
    """Passes every call to ``model``, including failed ones, to ``sink`` before the caller sees the result.

    The innermost wrapper: inside ``Retry`` it sees each attempt. With ``failures_only`` it records only failed calls,
    because the others are stored as turns, and those of the task planner: a session stores the sum of what was paid
    for its task, and the specifier's model may have another price.
    """

    def __init__(
        self,
        model: Model,
        sink: Callable[[Call], Awaitable[None]],
        *,
        failures_only: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(model)
        self._sink = sink
        self._failures_only = failures_only
        self._clock = clock

    async def reply(self, request: Request) -> Reply:
        """Answer ``request``; raises the errors of the wrapped model and of the sink."""
        started = self._clock()
        position = (request.session, request.agent, request.call_index)
        try:
            reply = await self._model.reply(request)
        except (errors.ModelError, asyncio.CancelledError) as error:
            usage, failed = find_spent(error), isinstance(error, errors.ModelError)
            if usage or failed:
                text, raw = clean_text(str(error)) if failed else BROKEN_OFF, getattr(error, "sample", b"")
                await self._sink(Call(*position, self.name, self._clock() - started, raw, text, usage))
            raise
        if self._failures_only and request.agent != "task_planner":
            return reply
        seconds = self._clock() - started
        await self._sink(Call(*position, reply.model, seconds, raw=reply.raw, usage=reply.usage))
        return reply
