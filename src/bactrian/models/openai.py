"""Client for servers with the chat-completions wire format, which learns what parameters an endpoint refuses."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from functools import partial

from bactrian import errors
from bactrian.models import faults, replies, wire
from bactrian.models.http import NoConnection, Pool, ProxyRefused, Timeouts, read_address
from bactrian.models.http_response import Response, TooLarge, TransportFault
from bactrian.models.model import LEAST_REPLY, Reply, Request, Traits, find_reply_length
from bactrian.records.text import to_line

# Which parameter an endpoint refuses, from the words of its error.


_UNSUPPORTED = re.compile(
    r"unsupported|not (be )?(support|permitted|allow|accept|available)|does not (support|accept|allow|take)"
    r"|unrecognized|unrecognised|unknown|unexpected|extra|forbidden|deprecated|instead"
    r"|cannot both|no endpoints found",
    re.IGNORECASE,
)
# Wordings that mean `reasoning_effort` and do not name it, such as Ollama's.
_THINKING = re.compile(r"(not support|unsupported) (thinking|reasoning)\b", re.IGNORECASE)


def find_refused_parameter(fault: errors.Refused, sent: Collection[str]) -> str | None:
    """Return the sent parameter that the endpoint does not support; None if it names none.

    Of two that it does not accept together, the later one. A value out of range does not count, because the user has
    to know about it.
    """
    words = f"{fault.what} {fault.sample.decode(errors='replace')}"
    if not _UNSUPPORTED.search(words):
        return None
    named = [name for name in sent if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", words)]
    if not named and _THINKING.search(words):
        named = [name for name in sent if name == "reasoning_effort"]
    return named[-1 if "cannot both" in words else 0] if named else None


OFFICIAL_HOST = "api.openai.com"
DEFAULT_URL = f"https://{OFFICIAL_HOST}/v1"
# OpenAI's newer models refuse ``max_tokens``; other servers know only that parameter.
OFFICIAL = wire.Dialect(length="max_completion_tokens", key="OPENAI_API_KEY")

Transport = Callable[[Request, Sequence[bytes], Callable[[], Awaitable[Response]]], Awaitable[Response]]
"""Brings a request to the endpoint, with the parts of its body, and returns the response.

The body names no service tier. The function sends the request now, at the tier of the model.
"""

_STREAM_ROOM = 16
# Safety factor on token counts estimated from bytes, because a request that does not fit by a few tokens
# fails.
_SLACK = 1.02
_LARGEST_LIST = 1 << 20
_LARGEST_PICTURE = 16 << 20
# Seconds to wait for the end of a stream whose reply is complete, so that its connection can be reused.
_LAST_BYTES = 1.0


class OpenAIModel:
    """A model behind an HTTP endpoint.

    Connections are opened at the first request, reused by later ones, and closed by :meth:`close`. They are bound to
    the event loop of the first request. Redirects are not followed, so that prompts and key are sent only to the
    address the user chose. A reply with a response format is not streamed, because its raw JSON is not readable:
    ``on_text`` then receives the final text once.

    A parameter that the endpoint refuses by name is left out of this and all later requests, and ``report`` receives a
    message. The reply's limit is reduced to the space left in the window, down to a minimum; an unknown window is
    learnt from the endpoint's first refusal.

    Raises:
        InputError: ``base_url`` is not the address of an endpoint.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = DEFAULT_URL,
        key: str = "",
        limits: Timeouts | None = None,
        dialect: wire.Dialect | None = None,
        needs_key: bool = False,
        name: str | None = None,
        run: str = "",
        tier: str = "",
        report: Callable[[str], object] | None = None,
    ) -> None:
        self._model = model
        self._tier = tier
        self._run = run
        self._url = read_address(base_url)
        self._key = key.strip()
        self._mask = faults.KeyMask(self._key, self._url.credentials)
        self._limits = limits or Timeouts()
        is_official = dialect is None and self._url.host == OFFICIAL_HOST
        self._dialect = dialect or (OFFICIAL if is_official else wire.USUAL)
        self._needs_key = needs_key or is_official
        self._report = report
        self._pool: Pool | None = None
        self.before_again: Callable[[], Awaitable[object]] | None = None
        self.transport: Transport | None = None  # Instead of one request after another
        self._usage = replies.UsageReader()
        self._window = self._limits.window
        self._path = ""
        self._without: frozenset[str] = frozenset()  # Parameters that the endpoint refused by name
        self._options = wire.OptionEncoder()
        self.name = name or f"openai:{model}"
        self.traits = Traits(self._dialect.constrained_by, remote=True)

    async def reply(self, request: Request) -> Reply:
        """Answer ``request``.

        Raises:
            Denied: the key is missing or refused, or the account is empty.
            UnknownModel: the model does not exist; with up to five close names if the endpoint lists its models.
            ContextFull: the request does not fit into the window, as estimated from its bytes and the endpoint's
                last count of tokens (nothing was sent), or according to the endpoint.
            Filtered: the endpoint refused the content.
            TryAgain: a transient fault.
            BadReply: the response is not a valid reply.
            ModelError: a fault that a retry cannot solve.
        """
        form = request.response_format
        if form is not None and self._dialect.constrained_by == "none":
            request = replace(request, response_format=None)
        stream = request.on_text is not None and (form is None or wire.has_grammar(form, self._dialect))
        most = request.sampling.max_tokens
        named = self._dialect.session_header or self._dialect.cache_key
        name = wire.name_conversation(self._run, request) if named else ""
        try:
            while True:
                adapted, parts, sent = self._encode(request, most, stream=stream, name=name)
                dialect, without = self._dialect, self._without
                try:
                    return await self._ask(adapted, parts, sent, stream=stream, name=name)
                except (errors.ContextFull, errors.Refused, errors.CutShort) as fault:
                    if (
                        self._tier
                        and isinstance(fault, errors.Refused)
                        and wire.TIER_FIELD.encode() in fault.sample
                    ):
                        raise self._refuse_tier(fault) from fault
                    refusable = wire.build_parameters(adapted.sampling, dialect, without)
                    refusable = (*refusable, "stream_options", *filter(None, (dialect.cache_key,)))
                    most = self._choose_length(fault, request, adapted, sent, refusable)
                if stream and request.on_restart is not None:
                    request.on_restart()  # The fault may have come in the middle of the stream.
                if self.before_again is not None:
                    await self.before_again()
        except (TransportFault, errors.ModelError) as fault:
            raise self._convert_fault(fault) from fault.__cause__

    def _encode(
        self, request: Request, most: int | None, *, stream: bool, name: str
    ) -> tuple[Request, Sequence[bytes], int]:
        """Encode ``request`` for a reply of up to ``most`` tokens, or fewer if the window has less space.

        Return the adapted request, the parts of its body and their total bytes. Raises ContextFull.
        """
        adapted = request
        if most != request.sampling.max_tokens:
            adapted = replace(request, sampling=replace(request.sampling, max_tokens=most))
        options = self._options.encode(adapted, stream=stream, dialect=self._dialect, without=self._without)
        field = self._dialect.cache_key
        key = (field, name) if field and name and field not in self._without else None
        parts, sent = wire.build_request_parts(self._model, adapted, options=options, cache_key=key)
        if self._window is not None and most == request.sampling.max_tokens:
            prompt = round(sent / self._usage.bytes_per_token * _SLACK)
            fitting = find_reply_length(most or 0, prompt, self._window)
            if fitting < (most or 0):
                return self._encode(request, fitting, stream=stream, name=name)
        return adapted, parts, sent

    def _refuse_tier(self, fault: errors.ModelError) -> errors.Denied:
        """Return the error for a model that does not have the tier: another one would have another price."""
        what = f"The endpoint does not serve this model at the tier {self._tier!r}: {fault.what}"
        action = (
            f"Leave tier={self._tier} out, or choose a model that has it: the provider's prices name them."
        )
        return errors.Denied(what, next=action, sample=fault.sample)

    def _choose_length(
        self,
        fault: errors.ContextFull | errors.Refused | errors.CutShort,
        request: Request,
        adapted: Request,
        sent: int,
        refusable: Collection[str],
    ) -> int | None:
        """Return the next limit on the reply after ``fault``; raise ``fault`` if a retry cannot succeed.

        ``adapted`` is ``request`` as it was sent, in ``sent`` bytes, with the parameters ``refusable``.
        """
        most = adapted.sampling.max_tokens
        if isinstance(fault, errors.Refused) and self._learn_refusal(fault, refusable):
            return most
        if isinstance(fault, errors.ContextFull) and most is not None:
            shorter = self._learn_window(fault, sent, most)
            if shorter is not None:
                return shorter
        if not isinstance(fault, errors.CutShort) or most == request.sampling.max_tokens:
            raise fault
        full = errors.ContextFull(
            f"The window has room for {most} tokens, and the reply is longer.",
            next="Use a model with a larger window.",
            sample=fault.sample,
        )
        full.spent = fault.spent
        raise full from fault

    async def _ask(
        self, request: Request, parts: Sequence[bytes], sent: int, *, stream: bool, name: str
    ) -> Reply:
        header = f"X-Session-ID: {name}\r\n".encode() if name and self._dialect.session_header else b""
        most = self._limits.max_reply_bytes * (_STREAM_ROOM if stream else 1)
        pool = self._pool or self._open_pool()
        response, gathered = None, replies.StreamedReply()
        try:
            body = wire.ask_for_tier(parts, self._tier) if self._tier else parts
            size = sent + len(body[-1]) - len(parts[-1])
            post = partial(pool.post, self._path, body, size, most=most, stream=stream, header=header)
            response = await (post() if self.transport is None else self.transport(request, parts, post))
            if response.received > most:  # what came by another way has no limit there
                raise TooLarge(most, response.take_body()[:2048])
            if response.status >= 300:
                raise await self._suggest_names(await self._make_fault(response), pool)
            if stream and not _is_json(response):
                reply = await self._read_streamed(response, gathered, request, sent)
            else:
                # Unless it was to be streamed, all of it is there.
                body = await response.read_all() if stream else response.take_body()
                reply = self._read_whole(body, request, sent)
            if response.tier or self._dialect.tier_header:
                header = self._dialect.tier_header
                reply = replies.add_tier(reply, response.tier or (header and response.header(header)))
        except (TransportFault, errors.ModelError) as fault:
            if fault.spent == (0, 0) and _may_have_cost(fault, response):
                source = fault if isinstance(fault, TransportFault) else response
                used = gathered.find_usage(self._usage, sent, source.received if source else 0)
                fault.spent = used.prompt, used.completion
            raise
        except asyncio.CancelledError as error:
            if any(isinstance(part, Response) for part in error.args):  # Otherwise nothing was sent.
                error.args = (gathered.find_usage(self._usage, sent),)
            raise
        finally:
            if response is not None:
                response.close()
        return reply

    def _learn_window(self, fault: errors.ContextFull, sent: int, most: int) -> int | None:
        """Return the next limit to try after ``most`` tokens did not fit; None if no shorter reply can fit."""
        window, prompt = faults.read_window(fault.sample)
        if window is not None and self._limits.window is None:
            self._window = window
        if prompt:
            self._usage.learn(sent, prompt)
        room = most // 2
        if self._window is not None:
            left = self._window - (prompt or round(sent / self._usage.bytes_per_token))
            # A count that leaves room for what was refused is wrong; a smaller step would cost many requests.
            room = left if prompt and left < most else min(room, left)
        return room if room >= min(most, LEAST_REPLY) else None

    def _learn_refusal(self, fault: errors.Refused, sent: Collection[str]) -> bool:
        """Leave out a parameter that the endpoint refuses by name; return False if none can be left out."""
        name = find_refused_parameter(fault, sent)
        if name is None:
            return False
        if name in self._without:  # learnt from a request that was sent at the same time
            return True
        if name == self._dialect.length and self._without.isdisjoint(wire.OTHER_WORD):
            self._dialect = self._dialect.model_copy(update={"length": wire.OTHER_WORD[name]})
            instead = f"{self._dialect.length} is sent instead"
        else:
            instead = "it is left out from now on"
        self._without |= {name}
        if self._report is not None:
            self._report(f"{self.name}: {self._url.origin} does not accept {name!r}; {instead}.")
        return True

    async def draw(self, description: str) -> bytes:
        """Return the picture that the endpoint draws, as the bytes of a file. Raises the errors of :meth:`reply`.

        The wire format is that of OpenAI's ``/images/generations``. Some models refuse ``response_format`` and always
        send the picture; others send an address of it without that.
        """
        asked = {"model": self._model, "prompt": description, "n": 1, "response_format": "b64_json"}
        try:
            pool = self._pool or self._open_pool()
            while True:
                body = json.dumps(asked).encode()
                response = await pool.post("/images/generations", [body], len(body), most=_LARGEST_PICTURE)
                if response.status < 300:
                    return replies.read_picture(response.take_body())
                fault = await self._make_fault(response)
                refused = isinstance(fault, errors.Refused) and find_refused_parameter(
                    fault, ("response_format",)
                )
                if not refused or asked.pop("response_format", None) is None:
                    raise await self._suggest_names(fault, pool)
        except (TransportFault, errors.ModelError) as fault:
            raise self._convert_fault(fault) from fault.__cause__

    @property
    def endpoint(self) -> tuple[str, str]:
        """Address and key."""
        return str(self._url), self._key or self._url.credentials

    async def models(self) -> tuple[str, ...]:
        """Return the names of the endpoint's models. Raises the errors of :meth:`reply`."""
        try:
            return await self._list_models(self._pool or self._open_pool())
        except (TransportFault, errors.ModelError) as fault:
            raise self._convert_fault(fault) from fault.__cause__

    async def close(self) -> None:
        """Close all connections."""
        if self._pool is not None:
            await self._pool.close()
            self._pool = None

    def check_key(self) -> None:
        """Refuse a key that is missing or cannot be sent. Nothing is sent.

        Raises:
            Denied: it is.
        """
        variable = self._dialect.key_variable
        if self._needs_key and not self._key:
            raise errors.Denied(
                f"{self._url.host} needs a key.",
                next=f"Set {variable}, or use another endpoint; `bactrian models` lists them.",
            )
        if not (self._key.isascii() and self._key.isprintable()):
            raise errors.Denied("The key contains invalid characters.", next=f"Check {variable}.")

    def _open_pool(self) -> Pool:
        self.check_key()
        header = self._dialect.write_header(self._key, self._url.credentials)
        self._path = self._dialect.write_path(self._model)
        self._pool = Pool(self._url, header, self._limits)
        if self.before_again is not None:
            self._pool.before_again = self.before_again
        return self._pool

    def _read_whole(self, body: bytes, request: Request, sent: int) -> Reply:
        reply = replies.read_reply(body, sent=sent, usage=self._usage)
        form = request.response_format
        if form is not None and not wire.has_grammar(form, self._dialect):
            try:
                choices = tuple(replies.apply_response_format(choice, form) for choice in reply.choices)
            except errors.BadReply as fault:
                fault.spent = reply.usage.prompt, reply.usage.completion
                raise
            reply = replace(reply, choices=choices)
        if request.on_text is not None:
            request.on_text(reply.text)
        return reply

    async def _read_streamed(
        self, response: Response, begun: replies.StreamedReply, request: Request, sent: int
    ) -> Reply:
        assert request.on_text is not None
        await replies.read_stream(response, begun, request.on_text, request.on_restart)
        raw = bytes(begun.raw)
        if begun.empty:
            reply = replies.read_reply(raw, sent=sent, usage=self._usage)
            request.on_text(reply.text)
            return reply
        if not begun.ended:
            raise errors.TryAgain("The stream ended before its reply did.", sample=raw)
        with suppress(
            TransportFault, TimeoutError
        ):  # The reply is complete; only the connection may be lost.
            async with asyncio.timeout(_LAST_BYTES):
                await response.read_all()
        reply = replies.build_reply(begun.value(), raw=raw, sent=sent, usage=self._usage, lossy=begun.lossy)
        return replace(reply, first_token=begun.first_text and begun.first_text - begun.started)

    async def _suggest_names(self, fault: errors.ModelError, pool: Pool) -> errors.ModelError:
        if not isinstance(fault, errors.UnknownModel):
            return fault
        try:
            names = await self._list_models(pool)
        except (TransportFault, errors.ModelError):
            names = ()
        close = get_close_matches(self._model, names, n=5, cutoff=0.4) or names[:5]
        fault.next = f"It has: {', '.join(close)}" if close else "Check the name of the model."
        return fault

    async def _list_models(self, pool: Pool) -> tuple[str, ...]:
        response = await pool.get(self._dialect.write_path(None), most=_LARGEST_LIST)
        if response.status >= 300:
            raise await self._make_fault(response)
        return replies.read_models(await response.read_all())

    async def _make_fault(self, response: Response) -> errors.ModelError:
        if response.status < 400:
            target = response.header("location") or "nowhere"
            return errors.Refused(
                f"The endpoint redirects to {target}, and redirects are not followed.",
                next="If that address can be trusted, give it as the base URL.",
            )
        sample = await response.read_all()
        try:
            value, _ = faults.decode_json(sample)
        except ValueError:
            value = None
        after, variable = faults.read_retry_after(response.header("retry-after")), self._dialect.key_variable
        complaint = faults.read_error_body(value, sample)
        return faults.explain_status(response.status, complaint, sample, after, key_variable=variable)

    def _convert_fault(self, fault: TransportFault | errors.ModelError) -> errors.ModelError:
        """Convert a fault to an error of our own, with the endpoint's address and without the key."""
        error = fault
        if isinstance(error, TransportFault):
            error = faults.explain_transport(error, self._url.origin, self._limits)
        error.where = str(self._url)
        error.spent = fault.spent
        error.what = to_line(self._mask.hide(error.what))
        error.next = error.next and to_line(self._mask.hide(error.next))
        error.sample = self._mask.hide_bytes(error.sample)
        error.args = (error.what,)
        return error


def _may_have_cost(fault: TransportFault | errors.ModelError, response: Response | None) -> bool:
    """Tell whether the model is likely to have worked on a request that failed: what was refused costs nothing."""
    if response is not None and response.status >= 300:
        return False
    if isinstance(fault, TransportFault):
        return not isinstance(fault, (NoConnection, ProxyRefused))
    return isinstance(fault, (errors.BadReply, errors.Oversize)) or (
        isinstance(fault, errors.TryAgain) and not fault.overload
    )


def _is_json(response: Response) -> bool:
    return (response.header("content-type") or "").partition(";")[0].strip().lower() == "application/json"
