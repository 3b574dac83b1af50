"""Conversion of an endpoint's faults (status, error object, dropped connection) to our own errors."""

from __future__ import annotations

import base64
import json
import os
import re
import ssl
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any, TypeGuard

from pydantic_core import from_json

from bactrian.errors import (
    BadReply,
    ContextFull,
    Denied,
    Filtered,
    Forbidden,
    ModelError,
    Oversize,
    Refused,
    RefusedPrompt,
    TryAgain,
    UnknownModel,
    Unreachable,
)
from bactrian.models.http import NoConnection, NoWayThroughProxy, ProxyRefused, Timeouts
from bactrian.models.http_response import (
    Compressed,
    DeadlinePassed,
    IdleTimeout,
    NoAnswer,
    NotHttp,
    TooLarge,
    TransportFault,
)
from bactrian.records.text import to_line

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
) -> ModelError:
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
    kinds: tuple[tuple[object, type[ModelError], str | None], ...] = (
        (unpaid, Denied, "Add credit to the account, then run the same command."),
        (status == 401, Denied, f"Check {key} and its rights."),
        (status == 403, Forbidden, f"Check the rights of {key}; the endpoint may also block this content."),
        (passing, TryAgain, None),
        (filtered, Filtered, None),
        (full, ContextFull, "Use a model with a larger window, or shorter replies."),
        (unknown, UnknownModel, None),
        (elsewhere, Refused, "Check the base URL; did you omit /v1?"),
        (parameter, Refused, f"Change or leave out the parameter {parameter!r}."),
        (named, Refused, "Correct the parameter, then run the same command."),
        (True, RefusedPrompt, "Correct the reported problem; the endpoint may also refuse this prompt."),
    )
    kind, action = next((kind, action) for applies, kind, action in kinds if applies)
    summary = f"The endpoint answered {status}: {message or 'without a message'}"
    error = kind(summary, next=action, sample=sample)
    if isinstance(error, TryAgain):
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


def _make_proxy_refusal(status: int, message: str) -> ModelError:
    summary = f"The proxy answered {status}: {message or 'without a message'}"
    if status == 407:
        return Denied(summary, next="Put user name and password into HTTPS_PROXY, or the host into NO_PROXY.")
    if status >= 500:
        return TryAgain(summary, next="Check HTTPS_PROXY and HTTP_PROXY.")
    return Refused(summary, next="Check HTTPS_PROXY and HTTP_PROXY, or put the host into NO_PROXY.")


def explain_body(value: dict[str, Any], raw: bytes) -> ModelError:
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
    kind = TryAgain if any(word in complaint.code for word in _TRANSIENT) else BadReply
    fault = kind(f"The endpoint sent an error instead of a reply: {complaint.message}", sample=raw)
    if isinstance(fault, TryAgain):
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


def explain_transport(fault: TransportFault, host: str, limits: Timeouts) -> ModelError:
    """Return the error for a request without a complete answer."""
    error = _find_error(fault, host, limits)
    if isinstance(error, TryAgain):
        error.crowded = isinstance(fault, (NoConnection, NoAnswer))
    return error


def _find_error(fault: TransportFault, host: str, limits: Timeouts) -> ModelError:
    reason = _describe_cause(fault.__cause__)
    match fault, fault.__cause__:
        case NoConnection(), ssl.SSLCertVerificationError() as cause:
            what = f"The certificate of {host} cannot be trusted: {cause.verify_message or reason}"
            action = "Add the authority that signed it to the file in SSL_CERT_FILE. Verification is never turned off."
            return Refused(what, next=action)
        case NoConnection(), ssl.SSLError():
            action = "Check the base URL; does it need http:// instead of https://?"
            return Refused(f"No TLS connection to {host}: {reason}", next=action)
        case NoWayThroughProxy(), _:
            what = f"Cannot connect to the proxy for {host}: {reason}"
            return TryAgain(what, next="Check HTTPS_PROXY and HTTP_PROXY.")
        case NoConnection(), None:
            return Unreachable(f"No connection to {host} within {limits.connect:g} s.")
        case NoConnection(), _:
            return Unreachable(f"Cannot connect to {host}: {reason}", next=_advise(host))
        case ProxyRefused(), _:
            return _make_proxy_refusal(*fault.args)
        case IdleTimeout(), _:
            return TryAgain(f"{host} was silent for {limits.silence:g} s.")
        case DeadlinePassed(), _:
            return TryAgain(f"{host} did not finish its reply within {limits.total:g} s.")
        case NotHttp(), _:
            return BadReply(f"{host} does not answer in HTTP: {fault}")
        case Compressed(), _:
            return BadReply(f"{host} sent a compressed reply ({fault}), which was not requested.")
        case TooLarge(args=(most, sample)), _:
            action = "The model does not stop; try another model or other sampling parameters."
            return Oversize(f"The reply is larger than {most:,} bytes.", next=action, sample=sample)
        case _:
            return TryAgain(f"{host} dropped the connection: {reason}")


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
