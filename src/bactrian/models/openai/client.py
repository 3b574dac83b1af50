"""``openai:NAME``: any server that speaks the chat-completions wire format."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from difflib import get_close_matches

from bactrian.errors import ContextFull, Denied, ModelError, Refused, TryAgain, UnknownModel
from bactrian.models.http.address import Address, read_address
from bactrian.models.http.pool import Pool
from bactrian.models.http.response import Response, TransportFault
from bactrian.models.http.timeouts import Timeouts
from bactrian.models.model import Reply, Request
from bactrian.models.openai import errors, wire
from bactrian.models.openai import stream as stream_reader
from bactrian.models.openai.lenient_json import decode_json
from bactrian.models.traits import Traits

OFFICIAL_HOST = "api.openai.com"
DEFAULT_URL = f"https://{OFFICIAL_HOST}/v1"

_STREAM_ROOM = 16
_LARGEST_LIST = 1 << 20
_LAST_BYTES = 1.0
"""Seconds that a server gets to end a stream whose reply is whole, so that its connection can be kept."""


class OpenAIModel:
    """A model behind an HTTP endpoint.

    Connections are opened at the first request, kept for later ones, and given back by :meth:`close`. They
    belong to the event loop of that request. Redirects are not followed: prompts and key go where the user
    sent them and nowhere else. A reply that must have a form is not streamed, because its raw JSON is
    nothing to look at: ``on_text`` then gets the final text once.

    Raises:
        InputError: ``base_url`` is not the address of an endpoint.
    """

    def __init__(
        self, name: str, *, base_url: str = DEFAULT_URL, key: str = "", limits: Timeouts | None = None
    ) -> None:
        self._model = name
        self._url = read_address(base_url)
        # OpenAI's newer models refuse the old word; other servers know only that one.
        self._longest = "max_completion_tokens" if self._url.host == OFFICIAL_HOST else "max_tokens"
        self._key = key.strip()
        self._limits = limits or Timeouts()
        self._pool: Pool | None = None
        self._bytes_per_token = wire.BYTES_PER_TOKEN

    traits = Traits("schema", remote=True, priced=True)

    @property
    def name(self) -> str:
        """The name a user gives to get this model."""
        return f"openai:{self._model}"

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
        stream = request.on_text is not None and request.response_format is None
        parts = wire.build_request_parts(self._model, request, stream=stream, longest=self._longest)
        sent = sum(map(len, parts))
        most = self._limits.max_reply_bytes * (_STREAM_ROOM if stream else 1)
        started = asyncio.get_running_loop().time() if stream else 0.0
        try:
            self._check_window(request, sent)
            pool = self._pool or self._open()
            response = await pool.post("/chat/completions", parts, sent, most=most, stream=stream)
            try:
                if response.status >= 300:
                    raise await self._with_names(await _fault(response), pool)
                if stream and not _is_json(response):
                    reply = await self._streamed(response, request, sent, started)
                else:
                    reply = await self._whole(response, request, sent)
            finally:
                response.close()
        except (TransportFault, ModelError) as fault:
            raise self._explained(fault) from fault.__cause__
        if reply.usage.prompt and not reply.usage.estimated:
            self._bytes_per_token = max(1.0, sent / reply.usage.prompt)
        return reply

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
        _check_key(self._url, self._key)
        authorization = f"Bearer {self._key}" if self._key else self._url.credentials
        self._pool = Pool(self._url, authorization, self._limits)
        return self._pool

    async def _whole(self, response: Response, request: Request, sent: int) -> Reply:
        reply = wire.read_reply(await response.read_all(), sent=sent, ratio=self._bytes_per_token)
        if request.response_format is not None:
            form = request.response_format
            reply = replace(
                reply, choices=tuple(wire.apply_response_format(choice, form) for choice in reply.choices)
            )
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
        response = await pool.get("/models", most=_LARGEST_LIST)
        if response.status >= 300:
            raise await _fault(response)
        return wire.read_models(await response.read_all())

    def _check_window(self, request: Request, sent: int) -> None:
        window = self._limits.window
        if window is None:
            return
        prompt = round(sent / self._bytes_per_token)
        longest = request.sampling.max_tokens or 0
        if prompt + longest > window:
            raise ContextFull(
                f"About {prompt} tokens and a reply of up to {longest} do not fit a window of {window}.",
                next="Use a model with a larger window, or shorter replies.",
            )

    def _explained(self, fault: TransportFault | ModelError) -> ModelError:
        """The fault in the error tree, with the place where it happened, and without the key."""
        error = (
            errors.error_of_transport(fault, self._url.place, self._limits)
            if isinstance(fault, TransportFault)
            else fault
        )
        error.where = str(self._url)
        if self._key:
            shown = f"…{self._key[-4:]}" if len(self._key) > 8 else "…"
            error.what = error.what.replace(self._key, shown)
            error.args = (error.what,)
            error.sample = error.sample.replace(self._key.encode(), shown.encode())
        return error


def _check_key(url: Address, key: str) -> None:
    """Refuse a key that cannot be sent, and the lack of one where it is known to be needed.

    Servers on one's own machines mostly want no key, so only the official endpoint is known to need one.
    """
    if not key and url.host == OFFICIAL_HOST:
        raise Denied(
            f"{OFFICIAL_HOST} needs a key.",
            next="Set OPENAI_API_KEY, or give --base-url for another endpoint.",
        )
    if not (key.isascii() and key.isprintable()):
        raise Denied("The key holds characters that no key has.", next="Check OPENAI_API_KEY.")


def _is_json(response: Response) -> bool:
    return (response.header("content-type") or "").partition(";")[0].strip().lower() == "application/json"


async def _fault(response: Response) -> ModelError:
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
    return errors.error_of_status(response.status, errors.read_error_body(value, sample), sample, after)


async def _last_bytes(response: Response) -> None:
    try:
        async with asyncio.timeout(_LAST_BYTES):
            await response.read_all()
    except (TransportFault, TimeoutError):
        return  # The reply is whole already: only the connection is lost.
