"""The way through a proxy: a tunnel for TLS, whole addresses for plain HTTP, and none to this machine itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bactrian.errors import InputError, ModelError, Refused
from bactrian.models.model import Request
from bactrian.models.openai import OpenAIModel
from bactrian.records.text import Text
from bactrian.records.turn import Message
from tests.helpers.certificate import certificate
from tests.helpers.endpoint import Endpoint

ASK = Request([Message("user", Text("Go on."))])


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    yield


class Proxy:
    """Grants every tunnel, and leads all of them to ``port``."""

    def __init__(self, port: int) -> None:
        self.heads: list[bytes] = []
        self.url = ""
        self._port = port
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.heads.append(await reader.readuntil(b"\r\n\r\n"))
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        # Some proxies say so although they mean the tunnel.
        writer.write(b"HTTP/1.1 200 Connection established\r\nConnection: close\r\n\r\n")
        await asyncio.gather(_pass(reader, far_writer), _pass(far_reader, writer))

    async def end(self) -> None:
        await asyncio.gather(*self._tasks)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
    except ConnectionError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def proxied(endpoint: Endpoint) -> AsyncIterator[Proxy]:
    proxy = Proxy(int(endpoint.url.rpartition(":")[2].removesuffix("/v1")))
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.url = f"http://me:p%40ss@127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield proxy
        await proxy.end()


async def test_a_tunnel_carries_tls_that_the_proxy_cannot_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    context, file = certificate(tmp_path, "DNS:models.invalid")
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    async with Endpoint(tls=context) as endpoint, proxied(endpoint) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        model = OpenAIModel("m", base_url="https://models.invalid/v1", key="sk-secret")
        try:
            for _ in range(3):
                assert (await model.reply(ASK)).finish == "stop"
        finally:
            await model.close()
    assert len(proxy.heads) == 1
    head = proxy.heads[0].decode()
    assert head.startswith("CONNECT models.invalid:443 HTTP/1.1\r\nHost: models.invalid:443\r\n")
    assert "Proxy-Authorization: Basic bWU6cEBzcw==" in head
    assert "sk-secret" not in head
    assert len({request.peer for request in endpoint.requests}) == 1
    for request in endpoint.requests:
        assert request.headers["Host"] == "models.invalid"
        assert request.headers["Authorization"] == "Bearer sk-secret"
        assert "Proxy-Authorization" not in request.headers


async def test_a_certificate_for_another_name_is_refused_inside_a_tunnel_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    context, file = certificate(tmp_path, "DNS:other.invalid")
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    async with Endpoint(tls=context) as endpoint, proxied(endpoint) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        model = OpenAIModel("m", base_url="https://models.invalid/v1")
        try:
            with pytest.raises(
                ModelError, match=r"certificate of models\.invalid.*Hostname mismatch"
            ) as caught:
                await model.reply(ASK)
        finally:
            await model.close()
    assert type(caught.value) is Refused
    assert endpoint.requests == []


async def test_a_host_in_no_proxy_is_reached_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "models.invalid")
    with pytest.raises(ModelError, match=r"Cannot connect to models\.invalid"):
        await OpenAIModel("m", base_url="http://models.invalid/v1").reply(ASK)


async def test_a_tunnel_to_an_address_of_the_new_kind_has_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 403 No\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(ModelError, match="The proxy answered 403: No"):
            await OpenAIModel("m", base_url="https://[2001:db8::1]/v1").reply(ASK)
    assert asked[0].startswith(b"CONNECT [2001:db8::1]:443 HTTP/1.1\r\n")


@pytest.mark.parametrize("url", ["socks5://me:hunter2@127.0.0.1:1080", "http://me:hunter2@pro xy:1"])
async def test_a_proxy_of_another_kind_is_refused_without_showing_its_password(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("all_proxy", url)
    with pytest.raises(InputError, match="HTTP proxy") as caught:
        await OpenAIModel("m", base_url="http://models.invalid/v1").reply(ASK)
    assert "hunter2" not in str(caught.value)
    assert "no_proxy" in str(caught.value)
