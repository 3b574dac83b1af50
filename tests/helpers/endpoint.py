"""A chat-completions server on loopback that keeps what it is sent and misbehaves on demand.

    async with Endpoint(["Hello.", Answer(status=503), Raw((b"HTTP/1.1 200",), "reset")]) as endpoint:
        model = OpenAI("any", base_url=endpoint.url)
        ...
        assert len(endpoint.requests) == 3

As a program, ``python -m tests.helpers.endpoint [PORT] [REPLY]…`` prints its URL and serves until it is ended.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web


@dataclass(frozen=True)
class Received:
    """One request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    peer: object = None
    """Address and port of the client: the same for two requests on one connection."""
    query: str = ""
    """What stands behind the question mark of the address."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    """An HTTP answer of any kind; ``delay`` in seconds before it is sent."""

    body: str | bytes | dict[str, Any] | list[Any] = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    content_type: str = "application/json"
    delay: float = 0.0


@dataclass(frozen=True)
class Raw:
    """Bytes straight onto the socket, status line and all, ``pause`` seconds apart, then an ending."""

    pieces: Sequence[bytes] = ()
    ending: Literal["close", "reset", "hang"] = "close"
    pause: float = 0.0


@dataclass(frozen=True)
class Calls:
    """A good reply that calls tools: name and arguments of each. Streamed if the request asks for a stream."""

    calls: Sequence[tuple[str, dict[str, Any] | str]]
    text: str | None = None

    @property
    def wire(self) -> list[dict[str, Any]]:
        return [
            {
                "id": f"call_{name}_{place}",
                "type": "function",
                "function": {"name": name, "arguments": written},
            }
            for place, (name, given) in enumerate(self.calls)
            for written in [given if isinstance(given, str) else json.dumps(given)]
        ]


Plan = str | Calls | dict[str, Any] | Answer | Raw
Reply = Plan | Callable[[Received], Plan | Awaitable[Plan]]
"""What to answer, or a function of the request that says so.

A plain string is a good reply with that text, streamed if the request asks for a stream.
"""


def completion(*texts: str | None, finish: str | None = "stop", **message: Any) -> dict[str, Any]:
    """The JSON of a good reply with one choice for each of ``texts``."""
    choices = [
        {"index": i, "message": {"role": "assistant", "content": text} | message, "finish_reason": finish}
        for i, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 4}}
    return {"id": "chatcmpl-1", "model": "served-model", "choices": choices, "usage": usage}


def streamed(text: str) -> bytes:
    """The same reply as server-sent events, a word each."""
    words = [word + " " for word in text.split(" ")]
    words[-1] = words[-1][:-1]
    deltas: list[dict[str, Any]] = [
        {"index": 0, "delta": {"content": word}, "finish_reason": None} for word in words
    ]
    deltas.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    chunks: list[dict[str, Any]] = [{"model": "served-model", "choices": [delta]} for delta in deltas]
    chunks.append({"model": "served-model", "choices": [], "usage": completion(text)["usage"]})
    return b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks) + b"data: [DONE]\n\n"


def streamed_calls(plan: Calls) -> bytes:
    """A reply with tool calls as server-sent events: the text, then each call's name and its arguments in pieces."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": plan.text}]
    for index, call in enumerate(plan.wire):
        arguments = call["function"]["arguments"]
        head = call | {"index": index, "function": {"name": call["function"]["name"], "arguments": ""}}
        pieces = [arguments[at : at + 5] for at in range(0, len(arguments), 5)]
        deltas += [
            {"tool_calls": [part]}
            for part in (head, *({"index": index, "function": {"arguments": piece}} for piece in pieces))
        ]
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    chunks: list[dict[str, Any]] = [{"model": "served-model", "choices": [choice]} for choice in choices]
    chunks.append({"model": "served-model", "choices": [], "usage": completion("")["usage"]})
    return b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks) + b"data: [DONE]\n\n"


class Endpoint:
    """The server. Replies are given in order, and the last one again and again."""

    def __init__(
        self,
        replies: Sequence[Reply] = ("Solution: done. Next request.",),
        *,
        models: Sequence[str] = ("served-model",),
        tls: ssl.SSLContext | None = None,
        port: int = 0,
    ) -> None:
        self.requests: list[Received] = []
        self.listed = 0
        """How often the list of models was asked for."""
        self.url = ""
        self._replies = list(replies)
        self._models = models
        self._tls = tls
        self._port = port
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Endpoint:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_get("/v1/models", self._list)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=self._tls)
        await site.start()
        self._port = self._runner.addresses[0][1]
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _list(self, _request: web.Request) -> web.Response:
        self.listed += 1
        return web.json_response({"object": "list", "data": [{"id": name} for name in self._models]})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        peer = request.transport.get_extra_info("peername")
        body = await request.read()
        received = Received(
            request.method, request.path, request.headers.copy(), body, peer, request.query_string
        )
        position = min(len(self.requests), len(self._replies) - 1)
        self.requests.append(received)
        plan = self._replies[position]
        if callable(plan):
            answer = plan(received)
            plan = await answer if isinstance(answer, Awaitable) else answer
        if isinstance(plan, Raw):
            return await _write_raw(request, plan)
        if isinstance(plan, str):
            plan = _good(plan, received)
        elif isinstance(plan, Calls):
            plan = _calling(plan, received)
        elif isinstance(plan, dict):
            plan = Answer(plan)
        await asyncio.sleep(plan.delay)
        body = plan.body
        if isinstance(body, dict | list):
            body = json.dumps(body)
        return web.Response(
            body=body, status=plan.status, headers=plan.headers, content_type=plan.content_type
        )


def _good(text: str, received: Received) -> Answer:
    if received.json.get("stream"):
        return Answer(streamed(text), content_type="text/event-stream")
    return Answer(completion(*[text] * received.json.get("n", 1)))


def _calling(plan: Calls, received: Received) -> Answer:
    if received.json.get("stream"):
        return Answer(streamed_calls(plan), content_type="text/event-stream")
    return Answer(completion(plan.text, finish="tool_calls", tool_calls=plan.wire))


async def _write_raw(request: web.Request, plan: Raw) -> web.StreamResponse:
    transport = request.transport
    assert transport is not None
    for piece in plan.pieces:
        transport.write(piece)
        await asyncio.sleep(plan.pause)
        if transport.is_closing():
            break
    if plan.ending == "hang":
        await asyncio.Event().wait()
    if plan.ending == "reset":
        transport.abort()
    else:
        transport.close()
    return web.Response()


async def _serve(port: int, replies: Sequence[str]) -> None:
    async with Endpoint(replies or ("Solution: done. Next request.",), port=port) as endpoint:
        sys.stdout.write(endpoint.url + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]) if len(sys.argv) > 1 else 0, sys.argv[2:]))
