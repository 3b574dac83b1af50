"""What goes wrong between this program and an endpoint, each fault injected for real."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import traceback
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from bactrian.errors import (
    BadReply,
    ContextFull,
    Denied,
    Filtered,
    Forbidden,
    ModelError,
    NotAnEndpoint,
    Oversize,
    Refused,
    TryAgain,
    UnknownModel,
)
from bactrian.models.faults import read_retry_after
from bactrian.models.http import Timeouts
from bactrian.models.model import Request
from bactrian.models.openai import OpenAIModel
from bactrian.records.text import Text
from bactrian.records.turn import Message
from tests.helpers.certificate import certificate
from tests.helpers.endpoint import Answer, Endpoint, Raw, Reply, completion

ASK = Request([Message("user", Text("Go on."))])
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


async def ask(url: str, *, name: str = "camel-1", key: str = "", limits: Timeouts | None = None) -> None:
    model = OpenAIModel(name, base_url=url, key=key, limits=limits)
    try:
        await model.reply(ASK)
    finally:
        await model.close()


async def fault(reply: Reply, **options: Any) -> ModelError:
    """Return the error that ``reply`` leads to."""
    async with Endpoint([reply]) as endpoint:
        with pytest.raises(ModelError) as caught:
            await ask(endpoint.url, **options)
        assert len(endpoint.requests) == 1
        assert caught.value.where == endpoint.url
    return caught.value


def refusal(status: int, message: str, **more: Any) -> Answer:
    return Answer({"error": {"message": message} | more}, status=status)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 520, 529])
async def test_a_passing_status_is_tried_again_and_shows_the_body(status: int) -> None:
    page = "<html>\n<b>Bad\x1b[31m gateway</b>" + "x" * 500
    error = await fault(Answer(page, status=status, content_type="text/html"))
    assert type(error) is TryAgain
    assert f"answered {status}: <html> <b>Bad" in error.what
    assert error.what.isprintable()
    assert len(error.what) < 260
    assert error.sample.startswith(b"<html>")


async def test_the_body_of_a_passing_status_may_be_huge_or_broken() -> None:
    huge = await fault(Answer("x" * (1 << 20), status=503))
    broken = await fault(Raw([b"HTTP/1.1 503 Busy\r\nContent-Length: 99\r\n\r\nbusy"]))
    assert type(huge) is type(broken) is TryAgain
    assert "busy" in broken.what


@pytest.mark.parametrize(
    ("header", "after"),
    [
        (None, None),
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", None),
        ("0", None),
        ("soon", None),
        ("nan", None),
        ("1e999", None),
    ],
)
async def test_the_wait_that_an_endpoint_asks_for_is_read(header: str | None, after: float | None) -> None:
    error = await fault(Answer("slow down", status=429, headers={"Retry-After": header} if header else {}))
    assert isinstance(error, TryAgain)
    assert error.after == after


def test_the_wait_may_be_a_date() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    assert read_retry_after(format_datetime(now + timedelta(seconds=90), usegmt=True), now) == 90
    assert read_retry_after(format_datetime(now - timedelta(seconds=90), usegmt=True), now) is None
    assert read_retry_after("Tue, 01 Jan 2030 00:00:30 -0000", now) == 30


@pytest.mark.parametrize(
    "answer",
    [
        refusal(429, "You exceeded your current quota.", code="insufficient_quota"),
        refusal(429, "You exceeded your current quota.", type="insufficient_quota"),
        refusal(402, "Pay first."),
    ],
)
async def test_an_empty_account_is_not_asked_again(answer: Answer) -> None:
    error = await fault(answer)
    assert type(error) is Denied
    assert "credit" in str(error)


@pytest.mark.parametrize(("status", "kind"), [(401, Denied), (403, Forbidden)])
async def test_a_refused_key_is_shown_by_its_last_four_characters_only(
    status: int, kind: type[ModelError]
) -> None:
    key = "sk-abcdefghijklmnop"
    error = await fault(refusal(status, f"Incorrect API key provided: {key}."), key=key)
    assert type(error) is kind
    shown = "".join(traceback.format_exception_only(error)) + str(error) + error.sample.decode()
    assert key not in shown
    assert "…mnop" in error.what
    assert "OPENAI_API_KEY" in str(error)


@pytest.mark.parametrize(
    "answer",
    [
        refusal(404, "The model `camel-1` does not exist", code="model_not_found"),
        refusal(404, 'model "camel-1" not found, try pulling it first'),
        refusal(400, "invalid model ID"),
    ],
)
async def test_an_unknown_model_names_close_ones(answer: Answer) -> None:
    models = ["camel-2", "camel-10", "whale", "camel-3", "camel-4", "camel-5", "camel-6"]
    async with Endpoint([answer], models=models) as endpoint:
        with pytest.raises(UnknownModel) as caught:
            await ask(endpoint.url)
    assert caught.value.next is not None
    named = caught.value.next.removeprefix("It has: ").split(", ")
    assert len(named) == 5
    assert "whale" not in named


async def test_an_unknown_model_is_told_even_where_no_list_can_be_had() -> None:
    missing = refusal(404, "model not found")
    async with Endpoint([missing]) as endpoint:
        with pytest.raises(UnknownModel, match="model not found"):
            await ask(endpoint.url.removesuffix("/v1") + "/elsewhere")


@pytest.mark.parametrize(
    "answer",
    [
        refusal(
            400,
            "This model's maximum context length is 8192 tokens. However…",
            code="context_length_exceeded",
        ),
        refusal(
            400, "This model's maximum context length is 4096 tokens and your request has 5000 input tokens"
        ),
        refusal(400, "the request exceeds the available context size.", type="exceed_context_size_error"),
        refusal(400, "prompt is too long: 210000 tokens > 200000 maximum"),
        refusal(400, "Prompt contains 40000 tokens … too large for model with 32768 maximum context length"),
        refusal(422, "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000"),
        Answer(
            {"object": "error", "message": "Please reduce the length of the messages", "code": 400},
            status=400,
        ),
        Answer("Payload Too Large", status=413, content_type="text/plain"),
    ],
)
async def test_a_full_window_is_known_in_many_wordings(answer: Answer) -> None:
    assert type(await fault(answer)) is ContextFull


@pytest.mark.parametrize(
    "answer",
    [
        refusal(400, "The response was filtered", code="content_filter"),
        refusal(400, "The prompt was filtered", innererror={"code": "ResponsibleAIPolicyViolation"}),
        refusal(400, "Rejected", code="content_policy_violation"),
    ],
)
async def test_filtered_content_is_known(answer: Answer) -> None:
    assert type(await fault(answer)) is Filtered


async def test_another_bad_request_names_its_parameter() -> None:
    error = await fault(refusal(400, "must be between 0 and 2", param="temperature"))
    assert type(error) is Refused
    assert "'temperature'" in str(error)
    assert "must be between 0 and 2" in str(error)


@pytest.mark.parametrize(
    "body", [{"detail": "Not Found"}, "404 page not found", ["no"], {"error": "not here"}]
)
async def test_a_wrong_path_hints_at_the_base_url(body: Any) -> None:
    error = await fault(Answer(body, status=404))
    assert type(error) is Refused
    assert "/v1" in str(error)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" \n",
        b'{"choices": [',
        b"[]",
        b"7",
        b"null",
        b'"text"',
        b"{}",
        b'{"choices": null}',
        b'{"choices": []}',
        b'{"choices": {}}',
        b'{"choices": [7]}',
        b'{"choices": [{}]}',
        b'{"choices": [{"message": "hello"}]}',
        b'{"choices": [{"message": {"content": 7}}]}',
        b'{"choices": [{"message": {"content": {"text": "a"}}}]}',
        b'{"choices": [{"message": {"role": "user", "content": "a"}}]}',
        b'{"error": {"message": "something broke"}}',
        b'{"error": "something broke"}',
        b"[" * 100_000,
        b"\xff\xfe\x00garbage",
    ],
    ids=lambda body: repr(body[:40]),
)
async def test_what_is_no_reply_is_a_bad_reply_with_its_sample(body: bytes) -> None:
    error = await fault(Answer(body))
    assert type(error) is BadReply
    assert error.sample == body[:2048] or not body.strip()


async def test_a_web_page_hints_at_the_base_url() -> None:
    error = await fault(Answer("\n<!DOCTYPE html><title>Log in</title>", content_type="text/html"))
    assert type(error) is NotAnEndpoint
    assert "does not look like an OpenAI-compatible API" in error.what
    assert error.next is not None
    assert "did you omit /v1?" in error.next


@pytest.mark.parametrize(("code", "kind"), [(429, TryAgain), (502, TryAgain), (401, Denied)])
async def test_an_error_under_status_200_counts_by_its_own_status(code: int, kind: type[ModelError]) -> None:
    assert type(await fault(Answer({"error": {"code": code, "message": "from behind"}}))) is kind


@pytest.mark.parametrize(
    "reply",
    [
        Raw([], "reset"),
        Raw([], "close"),
        Raw([OK], "reset"),
        Raw([OK + b"Content-Length: 500\r\n\r\n" + json.dumps(completion("x")).encode()[:80]], "close"),
        Raw([OK + b"Content-Length: 500\r\n\r\n{"], "reset", pause=0.01),
        Raw([OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel"], "close"),
    ],
    ids=[
        "reset",
        "closed",
        "reset in the head",
        "closed in the body",
        "reset in the body",
        "closed in a chunk",
    ],
)
async def test_a_dropped_connection_is_tried_again(reply: Raw) -> None:
    error = await fault(reply)
    assert type(error) is TryAgain
    assert "dropped the connection" in error.what


async def test_an_answer_that_is_not_http_is_a_bad_reply() -> None:
    assert type(await fault(Raw([b"SSH-2.0-OpenSSH_9.6\r\n"]))) is BadReply


async def test_a_server_that_says_nothing_is_given_up_on() -> None:
    error = await fault(Raw([], "hang"), limits=Timeouts(total=0.05))
    assert type(error) is TryAgain
    assert "did not finish its reply within 0.05 s" in error.what


async def test_a_slow_drip_is_ended_by_the_total_deadline() -> None:
    drip = Raw([OK + b"Content-Length: 500\r\n\r\n", *[b" "] * 400], "hang", pause=0.01)
    error = await fault(drip, limits=Timeouts(total=0.1))
    assert type(error) is TryAgain
    assert "did not finish its reply within 0.1 s" in error.what


async def test_a_connection_that_never_comes_about_is_given_up_on() -> None:
    # A listener whose queue is full answers no further connection: neither yes nor no.
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    waiting = [socket.socket() for _ in range(4)]
    for client in waiting:
        client.setblocking(False)
        client.connect_ex(listener.getsockname())
    try:
        with pytest.raises(TryAgain, match=r"No connection to 127.0.0.1:\d+ within 0.1 s"):
            await ask(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", limits=Timeouts(connect=0.1))
    finally:
        for opened in (*waiting, listener):
            opened.close()


async def test_a_refused_connection_names_the_host_and_the_cause() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(TryAgain) as caught:
            await ask(f"http://127.0.0.1:{port}/v1")
    assert f"127.0.0.1:{port}" in caught.value.what
    assert "refused" in caught.value.what.lower() or "Connect call failed" in caught.value.what
    assert (caught.value.next or "").startswith("Start the server, or check the base URL")


async def test_a_name_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(TryAgain, match=r"Cannot connect to no-such-host\.invalid"):
        await ask("http://no-such-host.invalid/v1")
    with pytest.raises(TryAgain) as caught:  # The port is Ollama's.
        await ask("http://no-such-host.invalid:11434/v1")
    assert "`ollama serve`" in (caught.value.next or "")


async def test_a_giant_reply_is_cut_off_and_its_connection_closed() -> None:
    gone = asyncio.Event()

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"Content-Length: 30000000\r\n\r\n")
        try:
            for _ in range(300):
                writer.write(b"x" * 100_000)
                await writer.drain()
        except ConnectionError:
            gone.set()
        finally:
            writer.close()

    server = await asyncio.start_server(flood, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(ModelError, match="larger than 1,048,576 bytes") as caught:
            await ask(f"http://127.0.0.1:{port}/v1")
        assert type(caught.value) is Oversize
        await asyncio.wait_for(gone.wait(), 5)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_refused_and_nothing_is_sent_on(status: int) -> None:
    async with Endpoint() as elsewhere:
        error = await fault(Answer(status=status, headers={"Location": elsewhere.url}), key="sk-secret-0000")
        assert elsewhere.requests == []
        assert type(error) is Refused
        assert elsewhere.url in error.what


@pytest.mark.parametrize(
    ("scheme", "status", "kind"),
    [("http", 407, Denied), ("https", 407, Denied), ("https", 502, TryAgain), ("https", 403, Refused)],
)
async def test_a_proxy_that_lets_nothing_through_is_named(
    monkeypatch: pytest.MonkeyPatch, scheme: str, status: int, kind: type[ModelError]
) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status)
        writer.close()

    proxy = await asyncio.start_server(refuse, "127.0.0.1", 0)
    monkeypatch.setenv(f"{scheme}_proxy", f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    async with proxy:
        with pytest.raises(kind, match=f"The proxy answered {status}") as caught:
            await ask(f"{scheme}://models.invalid/v1")
    assert type(caught.value) is kind


async def test_a_proxy_that_cannot_be_reached_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(TryAgain, match=r"proxy for models\.invalid"):
        await ask("http://models.invalid/v1")


@pytest.fixture(scope="module")
def self_signed(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    return certificate(tmp_path_factory.mktemp("tls"), "IP:127.0.0.1")[0]


async def test_a_certificate_that_nobody_vouches_for_is_refused(self_signed: ssl.SSLContext) -> None:
    async with Endpoint(tls=self_signed) as endpoint:
        with pytest.raises(ModelError, match="self-signed certificate") as caught:
            await ask(endpoint.url)
    assert type(caught.value) is Refused
    assert "The certificate of 127.0.0.1" in caught.value.what
    assert "SSL_CERT_FILE" in str(caught.value)
    assert endpoint.requests == []


async def test_a_plain_port_where_tls_is_expected_is_told() -> None:
    async with Endpoint() as endpoint:
        with pytest.raises(ModelError) as caught:
            await ask(endpoint.url.replace("http://", "https://"))
    assert type(caught.value) is Refused
    assert "http:// instead of https://" in str(caught.value)


async def test_a_call_that_is_cancelled_closes_its_connection() -> None:
    closed = asyncio.Event()

    async def wait_for_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        closed.set()
        writer.close()

    server = await asyncio.start_server(wait_for_end, "127.0.0.1", 0)
    async with server:
        model = OpenAIModel("m", base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(model.reply(ASK), 0.05)
        await asyncio.wait_for(closed.wait(), 5)
        await model.close()
