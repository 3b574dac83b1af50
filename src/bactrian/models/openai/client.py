"""``openai:NAME``: any server that speaks the chat-completions wire format."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from difflib import get_close_matches

from bactrian.errors import (
    BadReply,
    ContextFull,
    CutShort,
    Denied,
    ModelError,
    Oversize,
    Refused,
    TryAgain,
    UnknownModel,
)
from bactrian.language.escape import to_line
from bactrian.models.http.address import Address, read_address
from bactrian.models.http.pool import NoConnection, Pool, ProxyRefused
from bactrian.models.http.response import Response, TransportFault
from bactrian.models.http.timeouts import Timeouts
from bactrian.models.model import Reply, Request
from bactrian.models.openai import errors, wire
from bactrian.models.openai import stream as stream_reader
from bactrian.models.openai.dialect import OTHER_WORD, Dialect
from bactrian.models.openai.lenient_json import decode_json
from bactrian.models.traits import Traits
from bactrian.models.window import LEAST_REPLY, find_reply_length

OFFICIAL_HOST = "api.openai.com"
DEFAULT_URL = f"https://{OFFICIAL_HOST}/v1"
# OpenAI's newer models refuse the old word; other servers know only that one.
OFFICIAL = Dialect(length="max_completion_tokens", needs_key=True)

_STREAM_ROOM = 16
_SLACK = 1.02
"""Tokens for each that is reckoned from a request's bytes: what does not fit by a few is a request in vain."""
_LARGEST_LIST = 1 << 20
_LAST_BYTES = 1.0
"""Seconds that a server gets to end a stream whose reply is whole, so that its connection can be kept."""


class OpenAIModel:
    """A model behind an HTTP endpoint.

    Connections are opened at the first request, kept for later ones, and given back by :meth:`close`. They
    belong to the event loop of that request. Redirects are not followed: prompts and key go where the user
    sent them and nowhere else. A reply that must have a form is not streamed, because its raw JSON is
    nothing to look at: ``on_text`` then gets the final text once.

    A parameter that the endpoint refuses by name is left out of this request and of all later ones, and ``report``
    is told. A reply is asked to be no longer than the window has room for, down to a least; how large the window is,
    if nobody said, is learnt from the endpoint's first refusal.

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
        dialect: Dialect | None = None,
        name: str | None = None,
        report: Callable[[str], object] | None = None,
    ) -> None:
        self._model = model
        self._url = read_address(base_url)
        self._key = key.strip()
        self._limits = limits or Timeouts()
        self._dialect = dialect or (OFFICIAL if self._url.host == OFFICIAL_HOST else wire.USUAL)
        self._report = report or _tell_nobody
        self._pool: Pool | None = None
        self.before_again: Callable[[], Awaitable[object]] | None = None
        self._bytes_per_token = wire.BYTES_PER_TOKEN
        self._window = self._limits.window
        self._without: set[str] = set()
        """Parameters that the endpoint has refused by name."""
        self.name = name or f"openai:{model}"
        self.traits = Traits(self._dialect.constrained_by, remote=True)

    async def reply(self, request: Request) -> Reply:
        """Answer ``request``.

        Raises:
            Denied: the key is missing or refused, or the account is empty.
            UnknownModel: with up to five close names, where the endpoint lists its models.
            ContextFull: the request does not fit the window, as reckoned from its bytes and the endpoint's
                last count of tokens (nothing was sent), or as the endpoint says.
            Filtered: the endpoint refused the content.
            TryAgain: a passing fault.
            BadReply: what came back is not a reply.
            ModelError: asking again will not help.
        """
        form = request.response_format
        if form is not None and self._dialect.constrained_by == "none":
            request = replace(request, response_format=None)
        stream = request.on_text is not None and (form is None or wire.has_grammar(form, self._dialect))
        try:
            reply = await self._ask_as_it_takes(request, stream=stream)
        except (TransportFault, ModelError) as fault:
            raise self._explained(fault) from fault.__cause__
        return reply

    async def _ask_as_it_takes(self, request: Request, *, stream: bool) -> Reply:
        """Ask, without what the endpoint refuses by name, and for no longer a reply than its window has room for."""
        longest = request.sampling.max_tokens
        most = longest
        again = False
        while True:
            if again and self.before_again is not None:
                await self.before_again()
            asked = _with_length(request, most)
            refusable = wire.build_parameters(asked.sampling, self._dialect, self._without).keys()
            parts = wire.build_request_parts(
                self._model, asked, stream=stream, dialect=self._dialect, without=self._without
            )
            sent = sum(map(len, parts))
            if most == longest and (fitting := self._fit(longest or 0, sent)) < (longest or 0):
                most = fitting
                continue
            again = True
            try:
                return await self._ask(asked, parts, sent, stream=stream)
            except ContextFull as fault:
                if most is None or (shorter := self._learn_window(fault, sent, most)) is None:
                    raise
                most = shorter
            except Refused as fault:
                if not self._learn_refusal(fault, (*refusable, "stream_options")):
                    raise
            except BadReply as fault:
                if most == longest or not isinstance(fault, CutShort):
                    raise
                full = ContextFull(
                    f"The window has room for {most} tokens, and the reply is longer.",
                    next="Use a model with a larger window.",
                    sample=fault.sample,
                )
                full.spent = fault.spent
                raise full from fault

    async def _ask(self, request: Request, parts: Sequence[bytes], sent: int, *, stream: bool) -> Reply:
        most = self._limits.max_reply_bytes * (_STREAM_ROOM if stream else 1)
        started = asyncio.get_running_loop().time() if stream else 0.0
        pool = self._pool or self._open()
        path = self._dialect.write_path(self._model)
        response: Response | None = None
        try:
            response = await pool.post(path, parts, sent, most=most, stream=stream)
            if response.status >= 300:
                raise await self._with_names(await self._fault(response), pool)
            if stream and not _is_json(response):
                reply = await self._streamed(response, request, sent, started)
            else:
                reply = await self._whole(response, request, sent)
        except (TransportFault, ModelError) as fault:
            if fault.spent == (0, 0) and _was_worked_on(fault, response):
                received = (
                    fault.received
                    if isinstance(fault, TransportFault)
                    else response.received
                    if response
                    else 0
                )
                fault.spent = round(sent / self._bytes_per_token), round(received / wire.BYTES_PER_TOKEN)
            raise
        finally:
            if response is not None:
                response.close()
        if reply.usage.prompt and not reply.usage.estimated:
            self._bytes_per_token = max(1.0, sent / reply.usage.prompt)
        return reply

    def _fit(self, longest: int, sent: int) -> int:
        """Tokens that a reply may have beside a request of ``sent`` bytes. Raises ContextFull if too few are left."""
        if self._window is None:
            return longest
        return find_reply_length(longest, round(sent / self._bytes_per_token * _SLACK), self._window)

    def _learn_window(self, fault: ContextFull, sent: int, most: int) -> int | None:
        """Tokens to ask for next, after the endpoint has found that ``most`` do not fit; None if it is no use."""
        full = errors.read_window(fault.sample)
        if full.window is not None and self._limits.window is None:
            self._window = full.window
        if full.prompt:
            self._bytes_per_token = max(1.0, sent / full.prompt)
        room = most // 2
        if self._window is not None:
            prompt = full.prompt or round(sent / self._bytes_per_token)
            room = min(room if full.prompt is None else most - 1, self._window - prompt)
        return room if room >= min(most, LEAST_REPLY) else None

    def _learn_refusal(self, fault: Refused, sent: Collection[str]) -> bool:
        """Leave out what the endpoint refuses by name; False if it is nothing that can be left out."""
        name = errors.find_refused_parameter(fault, sent)
        if name is None:
            return False
        if name == self._dialect.length and self._without.isdisjoint(OTHER_WORD):
            self._dialect = replace(self._dialect, length=OTHER_WORD[name])
            instead = f"it is asked for {self._dialect.length} in its place"
        else:
            instead = "it is left out from now on"
        self._without.add(name)
        self._report(f"{self.name}: {self._url.place} does not take {name!r}; {instead}.")
        return True

    @property
    def endpoint(self) -> tuple[str, str]:
        """Address and key."""
        return str(self._url), self._key or self._url.credentials

    async def models(self) -> tuple[str, ...]:
        """Return the names of the models that the endpoint has. Raises what :meth:`reply` raises."""
        try:
            return await self._list(self._pool or self._open())
        except (TransportFault, ModelError) as fault:
            raise self._explained(fault) from fault.__cause__

    async def close(self) -> None:
        """Close all connections."""
        if self._pool is not None:
            await self._pool.close()
            self._pool = None

    def _open(self) -> Pool:
        _check_key(self._url, self._key, self._dialect)
        header = self._dialect.write_header(self._key, self._url.credentials)
        self._pool = Pool(self._url, header, self._limits)
        if self.before_again is not None:
            self._pool.before_again = self.before_again
        return self._pool

    async def _whole(self, response: Response, request: Request, sent: int) -> Reply:
        reply = wire.read_reply(await response.read_all(), sent=sent, ratio=self._bytes_per_token)
        form = request.response_format
        if form is not None and not wire.has_grammar(form, self._dialect):
            try:
                choices = tuple(wire.apply_response_format(choice, form) for choice in reply.choices)
            except BadReply as fault:
                fault.spent = reply.usage.prompt, reply.usage.completion
                raise
            reply = replace(reply, choices=choices)
        if request.on_text is not None:
            request.on_text(reply.text)
        return reply

    async def _streamed(self, response: Response, request: Request, sent: int, started: float) -> Reply:
        assert request.on_text is not None
        gathered = await stream_reader.read_stream(response, request.on_text, request.on_restart)
        raw = bytes(gathered.raw)
        if gathered.empty:
            reply = wire.read_reply(raw, sent=sent, ratio=self._bytes_per_token)
            request.on_text(reply.text)
            return reply
        if not gathered.ended:
            raise TryAgain("The stream ended before its reply did.", sample=raw)
        await _last_bytes(response)
        reply = wire.build_reply(
            gathered.value(), raw=raw, sent=sent, ratio=self._bytes_per_token, lossy=gathered.lossy
        )
        return replace(reply, first_token=gathered.first_text and gathered.first_text - started)

    async def _with_names(self, fault: ModelError, pool: Pool) -> ModelError:
        if not isinstance(fault, UnknownModel):
            return fault
        try:
            names = await self._list(pool)
        except (TransportFault, ModelError):
            names = ()
        close = get_close_matches(self._model, names, n=5, cutoff=0.4) or names[:5]
        fault.next = f"It has: {', '.join(close)}" if close else "Check the name of the model."
        return fault

    async def _list(self, pool: Pool) -> tuple[str, ...]:
        response = await pool.get(self._dialect.write_models_path(), most=_LARGEST_LIST)
        if response.status >= 300:
            raise await self._fault(response)
        return wire.read_models(await response.read_all())

    async def _fault(self, response: Response) -> ModelError:
        if response.status < 400:
            target = response.header("location") or "nowhere"
            return Refused(
                f"The endpoint redirects to {target}, and redirects are not followed.",
                next="If that address can be trusted, give it as the base URL.",
            )
        sample = await response.read_all()
        try:
            value, _ = decode_json(sample)
        except ValueError:
            value = None
        after = errors.read_retry_after(response.header("retry-after"))
        complaint = errors.read_error_body(value, sample)
        return errors.explain_status(
            response.status, complaint, sample, after, key_variable=self._dialect.key_variable
        )

    def _explained(self, fault: TransportFault | ModelError) -> ModelError:
        """The fault in the error tree, with the place where it happened, and without the key."""
        error = (
            errors.explain_transport(fault, self._url.place, self._limits)
            if isinstance(fault, TransportFault)
            else fault
        )
        error.where = str(self._url)
        error.spent = fault.spent
        if self._key:
            shown = f"…{self._key[-4:]}" if len(self._key) > 8 else "…"
            error.what = error.what.replace(self._key, shown)
            error.sample = error.sample.replace(self._key.encode(errors="surrogateescape"), shown.encode())
        error.what = to_line(error.what)
        error.next = error.next and to_line(error.next)
        error.args = (error.what,)
        return error


def _with_length(request: Request, most: int | None) -> Request:
    """``request`` for a reply of up to ``most`` tokens."""
    if most == request.sampling.max_tokens:
        return request
    return replace(request, sampling=replace(request.sampling, max_tokens=most))


def _was_worked_on(fault: TransportFault | ModelError, response: Response | None) -> bool:
    """Tell whether the model is likely to have worked on a request that failed: what was refused costs nothing."""
    if response is not None and response.status >= 300:
        return False
    if isinstance(fault, TransportFault):
        return not isinstance(fault, (NoConnection, ProxyRefused))
    return isinstance(fault, (BadReply, Oversize)) or (isinstance(fault, TryAgain) and not fault.overload)


def _tell_nobody(_text: str) -> None:
    """Without anybody to tell."""


def _check_key(url: Address, key: str, dialect: Dialect) -> None:
    """Refuse a key that cannot be sent, and the lack of one where it is known to be needed.

    Servers on one's own machines mostly want no key, so only a provider's own endpoint is known to need one.
    """
    if not key and dialect.needs_key:
        raise Denied(
            f"{url.host} needs a key.",
            next=f"Set {dialect.key_variable}, or use another endpoint; `bactrian models` lists them.",
        )
    if not (key.isascii() and key.isprintable()):
        raise Denied("The key holds characters that no key has.", next=f"Check {dialect.key_variable}.")


def _is_json(response: Response) -> bool:
    return (response.header("content-type") or "").partition(";")[0].strip().lower() == "application/json"


async def _last_bytes(response: Response) -> None:
    try:
        async with asyncio.timeout(_LAST_BYTES):
            await response.read_all()
    except (TransportFault, TimeoutError):
        return  # The reply is whole already: only the connection is lost.
