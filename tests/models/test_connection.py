"""One connection after another: every answer whole, and each for its own question."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from bactrian.models.http import Pool, Timeouts, read_address
from bactrian.models.http_response import Compressed, Dropped, IdleTimeout, NotHttp, Response, TooLarge

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\n"


@asynccontextmanager
async def pool(serve: Serve, *, limits: Timeouts | None = None, keep: bool = True) -> AsyncIterator[Pool]:
    served: list[asyncio.Task[None]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        served.append(task)
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    opened = Pool(read_address(f"http://127.0.0.1:{port}/v1"), "", limits or Timeouts(), keep=keep)
    try:
        yield opened
    finally:
        await opened.close()
        server.close()
        await asyncio.gather(*served)


async def request(reader: asyncio.StreamReader) -> bytes:
    """The body of the next request; raises IncompleteReadError when there is none."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
    return await reader.readexactly(length)


def counted(body: bytes) -> bytes:
    return OK + b"Content-Length: %d\r\n\r\n" % len(body) + body


async def ask(pool: Pool, body: bytes = b"{}", *, most: int = 1 << 20, stream: bool = False) -> Response:
    return await pool.post("/chat", [body], len(body), most=most, stream=stream)


def always(answer: bytes) -> Serve:
    """A server that gives the same answer to every request and closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(answer)

    return serve


@pytest.mark.slow
async def test_every_call_gets_its_own_answer_while_connections_change_hands() -> None:
    opened = 0

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        while True:
            writer.write(counted(await request(reader)))

    async with pool(echo) as connections:

        async def ten(number: int) -> None:
            for turn in range(10):
                body = f"{number}/{turn}".encode() * 500
                response = await ask(connections, body)
                assert await response.read_all() == body

        await asyncio.gather(*(ten(number) for number in range(200)))
    assert opened <= 200


async def test_a_body_without_a_length_runs_to_the_end_of_the_connection() -> None:
    async with pool(always(OK + b"\r\nall of it")) as connections:
        assert await (await ask(connections)).read_all() == b"all of it"


async def test_a_stream_is_given_out_as_it_comes() -> None:
    go_on = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(OK + b"Content-Length: 6\r\n\r\none")
        await go_on.wait()
        writer.write(b"two")

    async with pool(serve) as connections:
        response = await ask(connections, stream=True)
        assert await response.read() == b"one"
        go_on.set()
        assert (await response.read(), await response.read()) == (b"two", b"")


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", NotHttp),
        (OK + b"Content-Encoding: br\r\nContent-Length: 4\r\n\r\nfour", Compressed),
        (OK + b"Content-Length: 9\r\n\r\nhalf", Dropped),
        (OK + b"Content-Len", Dropped),
        (b"", Dropped),
        (counted(b"x" * 2000), TooLarge),
    ],
)
async def test_what_is_no_whole_answer_is_a_fault(answer: bytes, fault: type[Exception]) -> None:
    async with pool(always(answer)) as connections:
        with pytest.raises(fault):
            await ask(connections, most=1000)


async def test_a_connection_with_something_unasked_on_it_is_not_used_again() -> None:
    opened = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        await request(reader)
        writer.write(counted(b"good") + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        await reader.read()

    async with pool(serve) as connections:
        for _ in range(3):
            assert await (await ask(connections)).read_all() == b"good"
    assert opened == 3


async def test_a_kept_connection_that_the_server_closed_is_replaced() -> None:
    async with pool(always(counted(b"good"))) as connections:
        for _ in range(3):
            assert await (await ask(connections)).read_all() == b"good"
            await asyncio.sleep(0.02)


async def test_a_kept_connection_that_the_server_closes_on_the_next_request_is_replaced_once() -> None:
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await request(reader))
        writer.write(counted(asked[-1]))
        asked.append(await request(reader))  # Read, and never answered.

    async with pool(serve) as connections:
        for body in (b"first", b"second"):
            assert await (await ask(connections, body)).read_all() == body
    assert asked == [b"first", b"second", b"second"]


@pytest.mark.parametrize("begun", [b"", b"H"])
async def test_a_request_is_sent_again_once_and_only_if_nothing_of_an_answer_came(begun: bytes) -> None:
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            asked.append(await request(reader))
            if asked[-1] == b"bad":
                writer.write(begun)
                return
            writer.write(counted(b"good"))

    async with pool(serve) as connections:
        two = await asyncio.gather(ask(connections, b"1"), ask(connections, b"2"))
        assert [await each.read_all() for each in two] == [b"good", b"good"]
        with pytest.raises(Dropped):
            await ask(connections, b"bad")
    assert asked.count(b"bad") == (1 if begun else 2)


@pytest.mark.parametrize("pieces", [[], [OK], [OK + b"Content-Length: 9\r\n\r\n", b"half"]])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_server_that_falls_silent_is_given_up_on(pieces: list[bytes], stream: bool) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0.01)
        await reader.read()

    async with pool(serve, limits=Timeouts(silence=0.1)) as connections:
        with pytest.raises(IdleTimeout):
            await (await ask(connections, stream=stream)).read_all()


async def test_a_slow_server_that_keeps_talking_is_not_silent() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        for byte in counted(b"slowly"):
            writer.write(bytes([byte]))
            await asyncio.sleep(0.01)

    async with pool(serve, limits=Timeouts(silence=0.3)) as connections:
        assert await (await ask(connections)).read_all() == b"slowly"


async def test_no_request_is_kept_while_its_answer_is_awaited() -> None:
    here, go_on = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        left = len(half) * 2
        while left:
            left -= len(await reader.read(1 << 16))
        here.set()
        await go_on.wait()
        writer.write(counted(b"good"))

    half = b"x" * (8 << 20)
    async with pool(serve) as connections:
        tracemalloc.start()
        try:
            asking = asyncio.create_task(connections.post("/", [half, half], len(half) * 2, most=99))
            await here.wait()
            held, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        go_on.set()
        assert await (await asking).read_all() == b"good"
    assert most > len(half) * 2
    assert held < 1 << 20


async def test_a_connection_that_comes_about_after_the_end_is_closed() -> None:
    asked = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await request(reader)
        asked += 1

    async with pool(serve) as connections:
        asking = asyncio.create_task(ask(connections))
        await asyncio.sleep(0)
        await connections.close()
        with pytest.raises(Dropped):
            await asking
    assert not asked


async def test_an_error_is_told_even_if_its_body_is_cut_short() -> None:
    async with pool(always(b"HTTP/1.1 503 Busy\r\nContent-Length: 99\r\n\r\nbusy")) as connections:
        response = await ask(connections)
        assert (response.status, await response.read_all()) == (503, b"busy")


async def test_a_call_that_is_cancelled_leaves_its_connection_to_nobody() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await request(reader)
        await asyncio.sleep(0.1 if first == b"slow" else 0)
        writer.write(counted(first))

    async with pool(serve) as connections:
        slow = asyncio.create_task(ask(connections, b"slow"))
        await asyncio.sleep(0.03)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        assert await (await ask(connections, b"fast")).read_all() == b"fast"
