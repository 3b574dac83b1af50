"""The batch interfaces of OpenAI, Mistral, Anthropic and Gemini on loopback, with the faults that they may have.

A reply is a function of its conversation, so a run in batches is equal to one that asks live, and what is paid twice is
counted. Batches advance with each look at them.

    async with BatchServer(faults={7: "drop"}) as server:
        order = ...  # a run with server.url
        assert not server.orphans and server.paid_twice == 0
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from aiohttp import web

Fault = Literal["503", "429", "409", "lost", "drop", "kill", "kill-after"]
"""Of a request: an error; its answer is lost, or it is; the client is killed before it or after it was carried out."""
LineFault = Literal["missing", "500", "expired", "twice", "400", "strange"]


@dataclass
class Held:
    """A batch at the provider."""

    id: str
    dialect: str
    name: str | None
    model: str
    items: list[tuple[str, list[tuple[str, str]]]]
    """Ids and conversations."""
    looks: int
    file: str | None = None
    refusal: list[dict[str, Any]] | None = None
    ended: bool = False
    cancelled: bool = False
    fetched: bool = False
    hidden: int = 0
    created: float = field(default_factory=lambda: datetime.now(UTC).timestamp())


def talk(body: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The conversation of a request in any of the formats."""
    if "contents" in body:
        system = body.get("systemInstruction")
        first = [("system", system["parts"][0]["text"])] if system else []
        names = {"model": "assistant", "user": "user"}
        return first + [(names[item["role"]], item["parts"][0]["text"]) for item in body["contents"]]
    first = [("system", body["system"])] if body.get("system") else []
    return first + [(item["role"], item["content"]) for item in body["messages"]]


def say(messages: list[tuple[str, str]]) -> str:
    """What the model says next: a function of the conversation."""
    mark = hashlib.sha256(json.dumps(messages).encode()).hexdigest()[:8]
    if messages[0][0] == "user":
        asked = int(messages[0][1].split()[1])
        return "\n".join(f"{number}. Task {number} of {mark}" for number in range(1, asked + 1))
    if "you instruct" in messages[0][1]:
        return f"Instruction: Do part {mark}.\nInput: None"
    return f"Solution: Part {mark} is done.\nNext request."


def count_tokens(messages: list[tuple[str, str]]) -> tuple[int, int]:
    """The tokens of the prompt and of the reply."""
    return sum(len(text) for _, text in messages) // 4, len(say(messages)) // 4


class BatchServer:
    """The server. ``looks`` is how often a batch is still running when it is looked at."""

    def __init__(
        self,
        *,
        looks: int = 0,
        faults: Mapping[int, Fault] | None = None,
        lines: Mapping[int, LineFault] | None = None,
        refused: str = "",
        named: bool = False,
        crowded: int = 0,
        hidden: int = 0,
        most: int = 1 << 30,
        cut: bool = False,
        gone: int = 0,
        fileless: bool = False,
        no_errors: int = 0,
        state: str = "",
        endless: bool = False,
        seed: int = 0,
        cached: Mapping[str, float] | None = None,
        spoil: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self.looks = looks
        self.faults = dict(faults or {})
        """By the number of the request, from 0."""
        self.lines = dict(lines or {})
        """By the number of the line, from 0, over all batches."""
        self.refused = refused
        """A batch with this text in a request is refused as a whole; ``named``: the lines are named."""
        self.named = named
        self.crowded = crowded
        """How many batches of several requests are refused because others have too much out."""
        self.hidden = hidden
        """How often a new batch is missing in the list."""
        self.most = most
        """Bytes of an upload, from which it is refused with 413."""
        self.cut = cut
        """The first results are cut off."""
        self.gone = gone
        """How often results are asked for in vain."""
        self.fileless = fileless
        """A batch that has ended names no file, although it answered its requests."""
        self.no_errors = no_errors
        """Status that files of errors are answered with; 0 for their content."""
        self.state = state
        """An unknown state that a batch has first."""
        self.endless = endless
        """The list of batches always has one page more, with the same ones."""
        self.cached = dict(cached or {})
        """Share of a prompt that comes from a cache, by the tier of a request: ``default``, ``flex`` or ``batch``."""
        self.spoil = spoil
        """Changes a line of the results of the second batch, which has the first turns."""
        self.used: dict[str, list[int]] = {}
        """Tokens of prompts, of completions and from the cache, by tier."""
        self.kill: Callable[[], object] = lambda: None
        self.batches: dict[str, Held] = {}
        self.files: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.paid: Counter[str] = Counter()
        self.live = 0
        self.tokens = 0
        self.url = ""
        self._line = 0
        self._random = random.Random(seed)
        self._runner: web.AppRunner | None = None

    @property
    def orphans(self) -> list[str]:
        """Batches that were carried out, and whose results nobody has."""
        return [held.id for held in self.batches.values() if not held.fetched and held.refusal is None]

    @property
    def paid_twice(self) -> int:
        """Replies that were paid for more than once."""
        return sum(count - 1 for count in self.paid.values())

    async def __aenter__(self) -> BatchServer:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        fault = self.faults.pop(len(self.requests), None)
        self.requests.append((request.method, request.path))
        body = await request.read()
        if fault in ("503", "429", "409"):
            return web.json_response({"error": {"message": "not now"}}, status=int(fault))
        if fault in ("drop", "kill"):
            return self._cut_off(request, fault)
        answer = self._answer(request, body)
        if fault in ("lost", "kill-after"):
            return self._cut_off(request, fault)
        await asyncio.sleep(0)
        return answer

    def _cut_off(self, request: web.Request, fault: str) -> web.StreamResponse:
        if fault.startswith("kill"):
            self.kill()
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    def _answer(self, request: web.Request, body: bytes) -> web.StreamResponse:  # noqa: PLR0912
        path, query = request.path, request.query
        if len(body) > self.most:
            return web.json_response({"error": {"message": "too large"}}, status=413)
        match request.method, path.strip("/").split("/"):
            case "POST", [*_, "chat", "completions"]:
                order = json.loads(body)
                messages, tier = talk(order), order.get("service_tier", "default")
                self.live += 1
                self._pay(messages, tier)
                return web.json_response({**self._completion(messages, tier), "service_tier": tier})
            case "POST", ["v1", "files"]:
                name = f"file-{len(self.files)}"
                self.files[name] = _read_form(body)
                return web.json_response({"id": name, "purpose": "batch"})
            case "GET", ["v1", "files", name, "content"]:
                if self.no_errors and name.startswith("err-"):
                    self.batches[name.removeprefix("err-")].fetched = True  # as far as it can be
                    return web.json_response({"error": {"message": "deleted"}}, status=self.no_errors)
                return web.Response(body=self._take_file(name))
            case "POST", ["v1", "batches"]:
                return self._create_openai(json.loads(body))
            case "POST", ["v1", "batch", "jobs"]:
                order = json.loads(body)
                lines = self._read_file(order["input_files"][0])
                name = order["metadata"]["bactrian"]
                return self._keep(
                    "mistral", name, order["model"], [(line["custom_id"], line["body"]) for line in lines]
                )
            case "POST", ["v1", "messages", "batches"]:
                if "x-api-key" not in request.headers or "anthropic-version" not in request.headers:
                    return web.json_response({"error": {"message": "no key"}}, status=401)
                listed = json.loads(body)["requests"]
                assert all(item["params"]["max_tokens"] > 0 for item in listed)
                return self._keep(
                    "anthropic", None, "", [(item["custom_id"], item["params"]) for item in listed]
                )
            case "POST", ["v1beta", "models", model] if model.endswith(":batchGenerateContent"):
                batch = json.loads(body)["batch"]
                items = [
                    (item["metadata"]["key"], item["request"])
                    for item in batch["inputConfig"]["requests"]["requests"]
                ]
                return self._keep("gemini", batch["displayName"], model.partition(":")[0], items)
            case "POST", [*_, name, "cancel"]:
                return self._cancel(name)
            case "POST", [*_, name] if name.endswith(":cancel"):
                return self._cancel(name.removesuffix(":cancel"))
            case "GET", ["v1", "batches" | "messages" | "batch", *rest] if rest in (
                [],
                ["batches"],
                ["jobs"],
            ):
                return self._list(path, query)
            case "GET", ["v1beta", "batches"]:
                return self._list(path, query)
            case "GET", ["v1", "results", name] if query.get("signature") == name:
                return self._results(self.batches[name])
            case "GET", ["v1", "batches", name, "results"]:
                held = self.batches[name]
                held.fetched = True
                lines = [json.loads(line) for line in self._lines(held)[0]]
                return web.json_response({"data": lines, "has_more": False, "next_cursor": None})
            case "GET", [*_, name] if name in self.batches:
                held = self.batches[name]
                if held.looks <= 0 or held.cancelled:
                    held.ended = True
                held.looks -= 1
                return web.json_response(self._show(held))
            case _:
                return web.json_response({"error": {"message": f"no {path}"}}, status=404)

    # Batches.

    def _create_openai(self, order: dict[str, Any]) -> web.Response:
        inline = "requests" in order
        if inline:
            assert list(order)[:2] == ["endpoint", "model"]
        lines = order["requests"] if inline else self._read_file(order["input_file_id"])
        items = [(line["custom_id"], line["body"]) for line in lines]
        name = None if inline else (order.get("metadata") or {}).get("bactrian")
        return self._keep("openrouter" if inline else "openai", name, "", items, order.get("input_file_id"))

    def _read_file(self, name: str) -> list[Any]:
        return [json.loads(line) for line in self.files[name].splitlines()]

    def _keep(
        self,
        dialect: str,
        name: str | None,
        model: str,
        items: list[tuple[str, Any]],
        file: str | None = None,
    ) -> web.Response:
        talks = [(custom_id, talk(body)) for custom_id, body in items]
        bad = [at for at, (_, said) in enumerate(talks) if self.refused and self.refused in json.dumps(said)]
        if bad and dialect in ("anthropic", "gemini", "openrouter"):
            return web.json_response({"error": {"message": "a request is not valid"}}, status=400)
        held = Held(
            f"batch_{len(self.batches)}", dialect, name, model, talks, self.looks, file, hidden=self.hidden
        )
        if bad:
            error = {"code": "invalid", "message": "a request is not valid"}
            held.refusal = [error | ({"line": at + 1} if self.named else {}) for at in bad]
        elif self.crowded and len(talks) > 1:
            self.crowded -= 1
            held.refusal = [{"code": "token_limit_exceeded", "message": "too much is out"}]
        else:
            for _, said in talks:
                self._pay(said, "batch")
        self.batches[held.id] = held
        return web.json_response(self._show(held))

    def _pay(self, messages: list[tuple[str, str]], tier: str) -> None:
        self.paid[json.dumps(messages)] += 1
        prompt, completion = count_tokens(messages)
        self.tokens += prompt + completion
        added = prompt, completion, self._count_cached(prompt, tier)
        self.used[tier] = [sum(pair) for pair in zip(self.used.get(tier, (0, 0, 0)), added, strict=True)]

    def _count_cached(self, prompt: int, tier: str) -> int:
        return int(prompt * self.cached.get(tier, 0.0))

    def bill(self, prompt: float, completion: float, cached: float) -> float:
        """What was paid, in US dollars, at these prices per million tokens; half of them but for the usual tier."""
        parts = {
            tier: (used[0] - used[2]) * prompt + used[1] * completion + used[2] * cached
            for tier, used in self.used.items()
        }
        return sum(cost * (1 if tier == "default" else 0.5) for tier, cost in parts.items()) / 1_000_000

    def _cancel(self, name: str) -> web.Response:
        self.batches[name].cancelled = True
        return web.json_response(self._show(self.batches[name]))

    def _list(self, path: str, query: Mapping[str, str]) -> web.Response:
        dialects = {
            "/v1/batches": ("openai", "openrouter"),
            "/v1/batch/jobs": ("mistral",),
            "/v1/messages/batches": ("anthropic",),
            "/v1beta/batches": ("gemini",),
        }[path]
        listed: list[Held] = []
        for held in reversed(self.batches.values()):
            if held.hidden > 0:
                held.hidden -= 1
            elif held.dialect in dialects:
                listed.append(held)
        after = query.get("after") or query.get("after_id") or query.get("pageToken") or ""
        begin = next(
            (at + 1 for at, held in enumerate(listed) if held.id == after), 2 * int(query.get("page", 0))
        )
        page = listed[begin : begin + 2]
        if self.endless:
            page = listed[:2]
        more = begin + 2 < len(listed) or self.endless
        data = [self._show(held, whole=False) for held in page]
        if dialects == ("gemini",):
            return web.json_response(
                {"operations": data} | ({"nextPageToken": page[-1].id} if more and page else {})
            )
        return web.json_response({"data": data, "has_more": more, "last_id": page[-1].id if page else None})

    def _show(self, held: Held, *, whole: bool = True) -> dict[str, Any]:
        size = len(held.items)
        waiting = self.state if self.state and held.looks == self.looks else ""
        match held.dialect:
            case "openai" | "openrouter":
                status = "failed" if held.refusal else "completed" if held.ended else waiting or "in_progress"
                files: dict[str, Any] = {}
                answered = len(self._lines(held)[0]) if held.ended and not held.refusal else 0
                if held.ended and not held.refusal and held.dialect == "openai":
                    good, bad = ([], []) if self.fileless else self._lines(held)
                    files = {
                        "output_file_id": f"out-{held.id}" if good else None,
                        "error_file_id": f"err-{held.id}" if bad else None,
                    }
                return {
                    "id": held.id,
                    "status": status,
                    "created_at": int(held.created),
                    "input_file_id": held.file,
                    "metadata": {"bactrian": held.name} if held.name else None,
                    "request_counts": {"total": size, "completed": answered, "failed": 0},
                    "errors": {"data": held.refusal} if held.refusal else None,
                    **files,
                }
            case "mistral":
                status = "FAILED" if held.refusal else "SUCCESS" if held.ended else waiting or "RUNNING"
                ended = held.ended and not held.refusal
                return {
                    "id": held.id,
                    "status": status,
                    "metadata": {"bactrian": held.name},
                    "total_requests": size,
                    "errors": [{"message": "a request is not valid", "count": 1}] if held.refusal else [],
                    "output_file": f"out-{held.id}" if ended else None,
                    "error_file": f"err-{held.id}" if ended and self._lines(held)[1] else None,
                }
            case "anthropic":
                counts = dict.fromkeys(("succeeded", "errored", "canceled", "expired"), 0)
                return {
                    "id": held.id,
                    "processing_status": "ended" if held.ended else waiting or "in_progress",
                    "request_counts": counts | {"processing": 0, "succeeded": size}
                    if held.ended
                    else counts | {"processing": size},
                    "created_at": datetime.fromtimestamp(held.created, UTC)
                    .isoformat()
                    .replace("+00:00", "Z"),
                    "results_url": f"{self.url}/v1/results/{held.id}?signature={held.id}"
                    if held.ended
                    else None,
                }
            case _:
                state = waiting or ("BATCH_STATE_SUCCEEDED" if held.ended else "BATCH_STATE_RUNNING")
                metadata = {
                    "displayName": held.name,
                    "state": state,
                    "batchStats": {"requestCount": str(size)},
                }
                shown: dict[str, Any] = {
                    "name": f"batches/{held.id}",
                    "metadata": metadata,
                    "done": held.ended,
                }
                if held.ended and whole:
                    held.fetched = True
                    lines = [json.loads(line) for line in self._lines(held)[0]]
                    shown["response"] = {"inlinedResponses": {"inlinedResponses": lines}}
                return shown

    # Results.

    def _take_file(self, name: str) -> bytes:
        kind, _, id_ = name.partition("-")
        held = self.batches[id_]
        lines = self._lines(held)[kind == "err"]
        content = self._spoil(b"\n".join(lines) + b"\n")
        held.fetched = True
        return content

    def _results(self, held: Held) -> web.Response:
        content = self._spoil(b"\n".join(self._lines(held)[0]) + b"\n")
        held.fetched = True
        return web.Response(body=content)

    def _spoil(self, content: bytes) -> bytes:
        if self.gone:
            self.gone -= 1
            raise web.HTTPNotFound(text='{"error": {"message": "expired"}}')
        if self.cut:
            self.cut = False
            return content[: len(content) // 2]
        return content

    def _lines(self, held: Held) -> tuple[list[bytes], list[bytes]]:
        """The lines of the results, and of the errors where they have a file of their own; always the same ones."""
        key = f"lines-{held.id}"
        if key not in self.files:
            good: list[bytes] = []
            bad: list[bytes] = []
            for custom_id, messages in held.items:
                fault: str | None = self.lines.pop(self._line, None)
                self._line += 1
                if held.cancelled:
                    fault = "expired"
                if fault == "missing":
                    continue
                if fault in ("500", "expired", "400"):
                    line = self._error(held, custom_id, fault)
                    (bad if held.dialect in ("openai", "mistral") else good).append(line)
                    self.paid[json.dumps(messages)] -= 1
                    continue
                good += [self._line_of(held, custom_id, messages)] * (2 if fault == "twice" else 1)
                if fault == "strange":
                    good.append(self._line_of(held, "no-such-request", messages))
            if self.spoil and held.id == "batch_1":
                good[0] = self.spoil(good[0])
            self._random.shuffle(good)
            self.files[key] = json.dumps([[line.decode() for line in part] for part in (good, bad)]).encode()
        stored = json.loads(self.files[key])
        return [line.encode() for line in stored[0]], [line.encode() for line in stored[1]]

    def _line_of(self, held: Held, custom_id: str, messages: list[tuple[str, str]]) -> bytes:
        text, (prompt, completion) = say(messages), count_tokens(messages)
        match held.dialect:
            case "anthropic":
                usage = {
                    "input_tokens": prompt - 4,
                    "output_tokens": completion,
                    "cache_read_input_tokens": 4,
                }
                content = [{"type": "text", "text": text}]
                message = {
                    "content": content,
                    "stop_reason": "end_turn",
                    "usage": usage,
                    "model": "served-model",
                }
                line: Any = {"custom_id": custom_id, "result": {"type": "succeeded", "message": message}}
            case "gemini":
                candidate = {"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": "STOP"}
                usage = {"promptTokenCount": prompt, "candidatesTokenCount": completion}
                response = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "served-model"}
                line = {"metadata": {"key": custom_id}, "response": response}
            case _:
                response = {
                    "status_code": 200,
                    "request_id": "r",
                    "body": self._completion(messages, "batch"),
                }
                line = {"id": "line", "custom_id": custom_id, "response": response, "error": None}
        return json.dumps(line).encode()

    def _error(self, held: Held, custom_id: str, fault: str) -> bytes:
        match held.dialect, fault:
            case "anthropic", "expired":
                line: Any = {"custom_id": custom_id, "result": {"type": "expired"}}
            case "anthropic", _:
                kind = "invalid_request_error" if fault == "400" else "api_error"
                error = {"type": "error", "error": {"type": kind, "message": "no"}}
                line = {"custom_id": custom_id, "result": {"type": "errored", "error": error}}
            case "gemini", _:
                code = 3 if fault == "400" else 13
                line = {"metadata": {"key": custom_id}, "error": {"code": code, "message": "no"}}
            case _, "expired":
                line = {
                    "custom_id": custom_id,
                    "response": None,
                    "error": {"code": "batch_expired", "message": "no"},
                }
            case _:
                body = {"error": {"message": "no", "type": "any"}}
                line = {
                    "custom_id": custom_id,
                    "response": {"status_code": int(fault), "body": body},
                    "error": None,
                }
        return json.dumps(line).encode()

    def _completion(self, messages: list[tuple[str, str]], tier: str) -> dict[str, Any]:
        prompt, completion = count_tokens(messages)
        details = {"cached_tokens": self._count_cached(prompt, tier)}
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, "prompt_tokens_details": details}
        message = {"role": "assistant", "content": say(messages)}
        return {
            "id": "1",
            "model": "served-model",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": usage,
        }


def _read_form(body: bytes) -> bytes:
    """The file in a form."""
    mark = body.partition(b"\r\n")[0]
    parts = {part.partition(b'name="')[2].partition(b'"')[0]: part for part in body.split(mark)[1:-1]}
    assert parts[b"purpose"].partition(b"\r\n\r\n")[2].strip() == b"batch"
    return parts[b"file"].partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")
