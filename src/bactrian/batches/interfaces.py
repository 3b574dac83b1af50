"""The batch interfaces of providers: how a batch is sent, looked at, found again, and what came of it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import count
from typing import Any, ClassVar, Literal
from urllib.parse import quote, urlencode, urlsplit

from pydantic_core import PydanticSerializationError, from_json, to_json

from bactrian.batches.ledger import Result
from bactrian.batches.messages import (
    read_anthropic,
    read_gemini,
    write_anthropic,
    write_gemini,
)
from bactrian.errors import BadReply, ModelError
from bactrian.models.faults import (
    decode_json,
    explain_status,
    is_array,
    is_object,
    read_error_body,
    read_retry_after,
)
from bactrian.models.http import Address, Pool, Timeouts, read_address
from bactrian.models.http_response import Response

_MOST = 1 << 30  # Bytes of an answer: the results of a whole batch
_PAGE = 100
_MOST_PAGES = 1_000  # of a list, whose newest batches come first
_SLACK = 600.0  # Seconds by which a provider's clock may differ
ENDPOINT = "/v1/chat/completions"
_NO_REPLY = b'{"error":{"message":"The batch ended without a reply to this request."}}'

Phase = Literal["running", "ended", "refused"]


@dataclass(frozen=True, slots=True)
class Order:
    """A batch to create."""

    name: str
    content: bytes
    """The lines of its requests."""
    file: str | None
    """The provider's name of the file with these lines."""
    requests: int
    created: float
    """In seconds since 1970."""


class Rejected(Exception):
    """The provider refuses a batch: it is too large, or one of its requests is not valid."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True)
class Look:
    """The state of a batch at the provider."""

    remote: str
    phase: Phase
    requests: int | None = None
    files: tuple[str, ...] = ()
    """Paths of its results."""
    inline: bytes = b""
    """The results themselves, where there is no file."""
    lines: tuple[int, ...] = ()
    """Lines that are named as the reason of a refusal, from 0."""
    message: str = ""
    """The reason of a refusal."""
    crowded: bool = False
    """True if it was refused because too much is out."""
    answered: bool = False
    """True if it is known that some of its requests were answered, so that there are results."""


class Client:
    """Asks a provider. Its methods raise :class:`ModelError` for everything but a good answer.

    What is posted may also be :class:`Rejected`: with status 400, 413 or 422.
    """

    def __init__(self, address: Address, header: str, limits: Timeouts) -> None:
        # A kept connection would send an order once more by itself if it was cut without an answer: a second batch.
        self._pool = Pool(address, header, limits, keep=False)

    async def get(self, path: str, **query: str | int) -> Any:
        """Return the JSON of ``path``."""
        return _decode(await self.load(f"{path}?{urlencode(query)}" if query else path))

    async def load(self, path: str) -> bytes:
        """Return the content of ``path``."""
        return await _take(await self._pool.get(path, most=_MOST), may_reject=False)

    async def post(self, path: str, parts: Sequence[bytes]) -> Any:
        """Post JSON, given in parts."""
        return _decode(await _take(await self._pool.post(path, parts, sum(map(len, parts)), most=_MOST)))

    async def upload(self, path: str, name: str, content: bytes) -> Any:
        """Send a file, and return what it is called."""
        mark = b"bactrian-part-of-form"
        head = (
            b'--%b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--%b\r\nContent-Disposition: '
            b'form-data; name="file"; filename="%b"\r\nContent-Type: application/jsonl\r\n\r\n'
        ) % (mark, mark, name.encode())
        parts = (head, content, b"\r\n--%b--\r\n" % mark)
        kind = b"multipart/form-data; boundary=" + mark
        size = sum(map(len, parts))
        return _decode(await _take(await self._pool.post(path, parts, size, most=_MOST, content=kind)))

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.close()


async def _take(response: Response, *, may_reject: bool = True) -> bytes:
    body = await response.read_all()
    if response.status < 300:
        return body
    try:
        value, _ = decode_json(body)
    except ValueError:
        value = None
    complaint = read_error_body(value, body)
    if may_reject and response.status in (400, 413, 422):
        raise Rejected(response.status, complaint.message)
    after = read_retry_after(response.header("retry-after"))
    error = explain_status(response.status, complaint, body, after, key_variable="the provider's key")
    error.args = (*error.args, response.status)
    raise error


def _decode(body: bytes) -> Any:
    try:
        return decode_json(body)[0]
    except ValueError as error:
        raise BadReply("The batch interface did not answer with JSON.", sample=body) from error


class OpenAIBatches:
    """Files and batches as OpenAI has them, and Groq, and servers that are compatible with both."""

    most_requests = 50_000
    most_bytes = 100_000_000
    purpose_of_file = True  # True if the requests are uploaded as a file first
    _path = "/batches"
    _done = ("completed", "expired", "cancelled")

    def __init__(self, address: str, model: str) -> None:
        self.address = read_address(address)
        self._model = model

    def write_header(self, key: str) -> str:
        """Return the header with the key."""
        return f"Authorization: Bearer {key}" if key else ""

    def write_line(self, custom_id: str, body: Sequence[bytes]) -> bytes:
        """Return the line of a request, whose body is in the chat-completions wire format."""
        head = b'{"custom_id":"%b","method":"POST","url":"%b","body":'
        return b"".join((head % (custom_id.encode(), ENDPOINT.encode()), *body, b"}\n"))

    async def upload(self, client: Client, name: str, content: bytes) -> str:
        """Send a file of requests, and return the provider's name of it."""
        return _get(await client.upload("/files", f"{name}.jsonl", content), "id")

    async def create(self, client: Client, order: Order) -> str:
        """Create a batch, and return the provider's name of it."""
        job = {
            "input_file_id": order.file,
            "endpoint": ENDPOINT,
            "completion_window": "24h",
            "metadata": {"bactrian": order.name},
        }
        return self._read(await client.post("/batches", [to_json(job)])).remote

    async def look(self, client: Client, remote: str) -> Look:
        """Return the state of a batch."""
        return self._read(await client.get(f"{self._path}/{quote(remote)}"))

    async def cancel(self, client: Client, remote: str) -> None:
        """Ask for the end of a batch; what it has answered is kept."""
        await client.post(f"{self._path}/{quote(remote)}/cancel", [b"{}"])

    async def find(self, client: Client, order: Order, known: set[str]) -> str | None:
        """Return the provider's name of a batch whose creation may have failed; None if not found.

        Where a batch has no name, it is the first with as many requests, created later, that is not ``known``.
        """
        async for item in self._list(client):
            remote = self._read(item).remote
            metadata = item.get("metadata")
            if remote not in known and is_object(metadata) and metadata.get("bactrian") == order.name:
                return remote
        return None

    async def fetch(self, client: Client, look: Look) -> AsyncGenerator[bytes]:
        """Yield the results of a batch that has ended, file by file."""
        for path in look.files:
            yield await client.load(path)
        if look.inline:
            yield look.inline

    def read_line(self, line: Any) -> Result | None:
        """Return the result in a line, decoded from JSON; None if it is none."""
        custom_id = line.get("custom_id") if is_object(line) else None
        if not isinstance(custom_id, str):
            return None
        response = line.get("response")
        if not is_object(response):
            return Result(custom_id, *_read_error(line.get("error")))
        status = response.get("status_code")
        if not isinstance(status, int) or not 100 <= status < 600:
            status = 200
        return Result(custom_id, status, _dump(response.get("body")))

    def _list(self, client: Client) -> AsyncGenerator[dict[str, Any]]:
        def follow(page: dict[str, Any], last: str) -> object:
            return page.get("has_more") and {"after": last}

        return _page(client, self._path, "data", follow, "limit")

    def _read(self, value: Any) -> Look:
        # Together puts the batch into `job` when it is created.
        value = value.get("job") or value if is_object(value) else {}
        state, remote = str(value.get("status")).lower(), _get(value, "id")
        counts = value.get("request_counts")
        requests, answered = map(counts.get, ("total", "completed")) if is_object(counts) else (None, 0)
        files = tuple(
            f"/files/{quote(file)}/content"
            for file in (value.get("output_file_id"), value.get("error_file_id"))
            if isinstance(file, str) and file
        )
        if state == "failed":
            listed = value.get("errors")
            faults = listed.get("data") if is_object(listed) else listed
            faults = [fault for fault in faults if is_object(fault)] if is_array(faults) else []
            lines = tuple(fault["line"] - 1 for fault in faults if isinstance(fault.get("line"), int))
            words = "; ".join(str(fault.get("message") or fault.get("code")) for fault in faults[:3])
            crowded = any("token_limit" in str(fault.get("code")) for fault in faults)
            message = words or str(value.get("error") or "without a reason")
            return Look(remote, "refused", requests, files, lines=lines, message=message, crowded=crowded)
        phase: Phase = "ended" if state in self._done else "running"
        return Look(remote, phase, requests, files, answered=bool(answered or value.get("output_file_id")))


class TogetherBatches(OpenAIBatches):
    """Together has the same, with another purpose of a file and without metadata."""

    async def find(self, client: Client, order: Order, known: set[str]) -> str | None:
        """Return the batch of the file, which nothing else uses."""
        listed = await client.get("/batches")
        for item in listed if is_array(listed) else listed.get("data") or ():
            if item.get("input_file_id") == order.file and (remote := _get(item, "id")) not in known:
                return remote
        return None


class OpenRouterBatches(OpenAIBatches):
    """Requests within the order, and results in pages."""

    most_requests = 10_000
    most_bytes = 50_000_000
    purpose_of_file = False

    async def create(self, client: Client, order: Order) -> str:
        """Create a batch. The endpoint and the model have to come before the requests."""
        head = b'{"endpoint":%b,"model":%b,"metadata":{"bactrian":"%b"},"requests":['
        head %= to_json(ENDPOINT), to_json(self._model), order.name.encode()
        return self._read(await client.post("/batches", [head, _join(order.content), b"]}"])).remote

    async def find(self, client: Client, order: Order, known: set[str]) -> str | None:
        """Return the batch with the name or, without names, one of the same size."""
        named = await super().find(client, order, known)
        return named or await _find_alike(self._list(client), self._read, order, known)

    async def fetch(self, client: Client, look: Look) -> AsyncGenerator[bytes]:
        """Yield the results, page by page."""
        query: dict[str, str] = {}
        for _ in range(_MOST_PAGES):
            page = await client.get(f"/batches/{quote(look.remote)}/results", **query)
            yield b"\n".join(map(_dump, page.get("data") or ()))
            if not page.get("has_more") or not page.get("next_cursor"):
                return
            query = {"cursor": page["next_cursor"]}


class MistralBatches(OpenAIBatches):
    """Mistral's jobs. Their results are kept for a day."""

    most_requests = 100_000
    most_bytes = 400_000_000
    _path = "/batch/jobs"
    _phases: ClassVar[Mapping[str, Phase]] = {
        "SUCCESS": "ended",
        "TIMEOUT_EXCEEDED": "ended",
        "CANCELLED": "ended",
        "FAILED": "refused",
    }

    def write_line(self, custom_id: str, body: Sequence[bytes]) -> bytes:
        """Return the line of a request. The model is that of the job."""
        return b"".join((b'{"custom_id":"%b","body":' % custom_id.encode(), *body, b"}\n"))

    async def create(self, client: Client, order: Order) -> str:
        """Create a job of an uploaded file."""
        job = {
            "input_files": [order.file],
            "model": self._model,
            "endpoint": ENDPOINT,
            "timeout_hours": 24,
            "metadata": {"bactrian": order.name},
        }
        return self._read(await client.post(self._path, [to_json(job)])).remote

    def _list(self, client: Client) -> AsyncGenerator[dict[str, Any]]:
        numbers = count(1)
        return _page(client, self._path, "data", lambda _page, _last: {"page": next(numbers)}, "page_size")

    def _read(self, value: Any) -> Look:
        remote, state = _get(value, "id"), str(value.get("status"))
        phase: Phase = self._phases.get(state, "running")
        files = tuple(
            f"/files/{quote(value[name])}/content"
            for name in ("output_file", "error_file")
            if value.get(name)
        )
        inline = b"\n".join(map(_dump, value.get("outputs") or ()))
        if phase == "refused" and (files or inline):
            phase = "ended"
        errors = "; ".join(
            str(error.get("message")) for error in value.get("errors") or () if is_object(error)
        )
        return Look(
            remote,
            phase,
            value.get("total_requests"),
            files,
            inline,
            message=errors or "without a reason",
            answered=bool(value.get("output_file")),
        )


class AnthropicBatches(OpenAIBatches):
    """Anthropic's message batches. They have no name, so that they are found again by their size and time."""

    most_requests = 100_000
    most_bytes = 200_000_000
    purpose_of_file = False
    _path = "/messages/batches"

    def write_header(self, key: str) -> str:
        """Return the headers with key and version."""
        version = "anthropic-version: 2023-06-01"
        return f"x-api-key: {key}\r\n{version}" if key else version

    def write_line(self, custom_id: str, body: Sequence[bytes]) -> bytes:
        """Return the line of a request, in the format of messages."""
        params = write_anthropic(from_json(b"".join(body)))
        return to_json({"custom_id": custom_id, "params": params}) + b"\n"

    async def create(self, client: Client, order: Order) -> str:
        """Create a batch."""
        parts = [b'{"requests":[', _join(order.content), b"]}"]
        return self._read(await client.post(self._path, parts)).remote

    async def find(self, client: Client, order: Order, known: set[str]) -> str | None:
        """Return a batch of the same size that was created since."""
        return await _find_alike(self._list(client), self._read, order, known)

    def read_line(self, line: Any) -> Result | None:
        """Return the result in a line."""
        custom_id = line.get("custom_id") if is_object(line) else None
        result = line.get("result") if is_object(line) else None
        if not isinstance(custom_id, str) or not is_object(result):
            return None
        if result.get("type") == "succeeded":
            return Result(custom_id, 200, _convert(read_anthropic, result.get("message")))
        if result.get("type") == "errored":
            return Result(custom_id, *_read_error(result.get("error")))
        return Result(custom_id, 503, _NO_REPLY)

    def _list(self, client: Client) -> AsyncGenerator[dict[str, Any]]:
        def follow(page: dict[str, Any], last: str) -> object:
            return page.get("has_more") and {"after_id": page.get("last_id") or last}

        return _page(client, self._path, "data", follow, "limit")

    def _read(self, value: Any) -> Look:
        counts = value.get("request_counts") if is_object(value) else None
        requests = sum(counts.values()) if is_object(counts) else None
        ended = value.get("processing_status") == "ended"
        remote = _get(value, "id")
        url, address = str(value.get("results_url")), str(self.address)
        path = urlsplit(url).path.partition("/messages/")[2] or f"batches/{quote(remote)}/results"
        # As it is, with a signature; the key goes to no other address.
        file = url.removeprefix(address) if url.startswith(f"{address}/") else f"/messages/{path}"
        return Look(
            remote, "ended" if ended else "running", requests, (file,) if ended else (), answered=True
        )


class GeminiBatches(OpenAIBatches):
    """Gemini's batches of generated content, with their requests and results within the operation."""

    most_requests = 10_000
    most_bytes = 18_000_000
    purpose_of_file = False

    def __init__(self, address: str, model: str) -> None:
        super().__init__(address.rstrip("/").removesuffix("/openai"), model.removeprefix("models/"))

    def write_header(self, key: str) -> str:
        """Return the header with the key."""
        return f"x-goog-api-key: {key}" if key else ""

    def write_line(self, custom_id: str, body: Sequence[bytes]) -> bytes:
        """Return the line of a request, in Gemini's format."""
        request = write_gemini(from_json(b"".join(body)))
        return to_json({"request": request, "metadata": {"key": custom_id}}) + b"\n"

    async def create(self, client: Client, order: Order) -> str:
        """Create a batch."""
        head = b'{"batch":{"displayName":"%b","inputConfig":{"requests":{"requests":[' % order.name.encode()
        path = f"/models/{quote(self._model)}:batchGenerateContent"
        return self._read(await client.post(path, [head, _join(order.content), b"]}}}}"])).remote

    async def look(self, client: Client, remote: str) -> Look:
        """Return the state of a batch."""
        return self._read(await client.get(f"/{quote(remote)}"))

    async def cancel(self, client: Client, remote: str) -> None:
        """Ask for the end of a batch."""
        await client.post(f"/{quote(remote)}:cancel", [b"{}"])

    async def find(self, client: Client, order: Order, known: set[str]) -> str | None:
        """Return the batch with the name."""
        async for item in self._list(client):
            remote, metadata = _get(item, "name"), item.get("metadata")
            if remote not in known and is_object(metadata) and metadata.get("displayName") == order.name:
                return remote
        return None

    def read_line(self, line: Any) -> Result | None:
        """Return the result in a line."""
        metadata = line.get("metadata") if is_object(line) else None
        custom_id = metadata.get("key") if is_object(metadata) else None
        if not isinstance(custom_id, str):
            return None
        if is_object(line.get("response")):
            return Result(custom_id, 200, _convert(partial(read_gemini, model=self._model), line["response"]))
        return Result(custom_id, *_read_error(line.get("error")))

    def _list(self, client: Client) -> AsyncGenerator[dict[str, Any]]:
        def follow(page: dict[str, Any], _last: str) -> object:
            return page.get("nextPageToken") and {"pageToken": page["nextPageToken"]}

        return _page(client, "/batches", "operations", follow, "pageSize")

    def _read(self, value: Any) -> Look:
        metadata: Any = value.get("metadata") if is_object(value) else None
        metadata = metadata if is_object(metadata) else {}
        output: Any = value.get("response") or metadata.get("output") or {}
        results: Any = output.get("inlinedResponses")
        results = results.get("inlinedResponses") if is_object(results) else results
        inline = b"\n".join(map(_dump, results or ()))
        # BATCH_STATE_SUCCEEDED, or JOB_STATE_SUCCEEDED
        state = str(metadata.get("state")).rpartition("_")[2]
        error = value.get("error")
        if state == "FAILED" or (error and not inline and state not in ("EXPIRED", "CANCELLED")):
            message = str(error.get("message")) if is_object(error) else "without a reason"
            return Look(_get(value, "name"), "refused", message=message)
        ended = bool(value.get("done")) or state in ("SUCCEEDED", "EXPIRED", "CANCELLED")
        return Look(_get(value, "name"), "ended" if ended else "running", inline=inline)


INTERFACES: dict[str, type[OpenAIBatches]] = {
    "openai": OpenAIBatches,
    "together": TogetherBatches,
    "openrouter": OpenRouterBatches,
    "mistral": MistralBatches,
    "anthropic": AnthropicBatches,
    "gemini": GeminiBatches,
}
"""By the key ``batches`` of a provider's row."""


def read_id(line: bytes) -> str:
    """Return the id in the line of a request."""
    value: Any = from_json(line)
    return value["metadata"]["key"] if "metadata" in value else value["custom_id"]


def split_lines(content: bytes) -> Iterator[Any]:
    """Yield the lines of results, decoded; ``None`` for one that is no JSON in UTF-8, such as one that was cut off."""
    for line in content.splitlines():
        if line.strip():
            try:
                value, lossy = decode_json(line)
                yield None if lossy else value
            except ValueError:
                yield None


def _dump(value: Any) -> bytes:
    """Return a value that was JSON as JSON."""
    try:
        return to_json(value)
    except PydanticSerializationError:  # half a character: readers of replies know what to do with its escape
        return json.dumps(value).encode()


def _convert(convert: Callable[[Any], Any], reply: Any) -> bytes:
    """Return a reply in the chat-completions wire format.

    What has another form than a reply stays as it is. So it is refused where replies are read, alone.
    """
    try:
        return _dump(convert(reply))
    except (AttributeError, KeyError, TypeError, ValueError):
        return _dump(reply)


def _join(content: bytes) -> bytes:
    """Return the lines of a file as the items of a JSON list."""
    return b",".join(content.splitlines())


def _get(value: Any, name: str) -> str:
    found = value.get(name) if is_object(value) else None
    if not isinstance(found, str) or not found:
        raise BadReply(f"The batch interface answered without {name!r}.", sample=json.dumps(value).encode())
    return found


async def _page(
    client: Client, path: str, items: str, follow: Callable[[dict[str, Any], str], object], size: str
) -> AsyncGenerator[dict[str, Any]]:
    """Yield the items of a list, page by page."""
    query: Any = {}
    seen = set[str]()
    for _ in range(_MOST_PAGES):
        page = await client.get(path, **{size: _PAGE}, **query)
        listed = [item for item in page.get(items) or () if is_object(item)]
        for item in listed:
            yield item
        new = {str(item.get("id") or item.get("name")) for item in listed} - seen
        seen |= new
        query = follow(page, str(listed[-1].get("id"))) if new else None
        if not query:
            return


async def _find_alike(
    items: AsyncGenerator[dict[str, Any]], read: Callable[[Any], Look], order: Order, known: set[str]
) -> str | None:
    """Return the first batch that is not ``known``, has as many requests, and was not created before."""
    async for item in items:
        look = read(item)
        created = item.get("created_at")
        if isinstance(created, str):
            created = datetime.fromisoformat(created).timestamp()
        since = created is None or created >= order.created - _SLACK
        if look.remote not in known and look.requests in (order.requests, None) and since:
            return look.remote
    return None


def _read_error(error: Any) -> tuple[int, bytes]:
    """Return the HTTP status that an error of one request stands for, and its body."""
    inner = error.get("error") if is_object(error) else None
    inner = inner if is_object(inner) else error
    if not is_object(inner):
        return 503, _NO_REPLY
    code, words = inner.get("code"), f"{inner.get('code')} {inner.get('type')} {inner.get('status')}".lower()
    if isinstance(code, str) and code.isdecimal():
        code = int(code)
    if isinstance(code, int) and 400 <= code < 600:
        status = code
    elif isinstance(code, int):  # a code of gRPC, of which these are faults of the request
        status = 400 if code in (3, 5, 7, 9, 11) else 503
    else:
        status = next((status for word, status in _WORDS if word in words), 503)
    return status, to_json({"error": inner})


_WORDS = (
    ("invalid_request", 400),
    ("request_too_large", 413),
    ("authentication", 401),
    ("permission", 403),
    ("not_found", 404),
    ("rate_limit", 429),
)


def find_status(error: ModelError) -> int | None:
    """Return the HTTP status behind an error of a :class:`Client`; None if there was no answer."""
    return next((part for part in error.args if isinstance(part, int)), None)
